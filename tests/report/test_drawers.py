"""Figures are drawn by other processes as this one would draw them, and those processes never outlive it."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from antiphase.report.drawers import Drawers
from antiphase.report.figures.render import draw
from antiphase.report.figures.study import study_figure
from antiphase.report.page import write_page
from antiphase.report.page_parts import Page, Section

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process draws")
KILLED = """
import os, signal
from antiphase.report.drawers import Drawers
drawers = Drawers(1)
print(drawers._pool.submit(os.getpid).result(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def figures():
    about = {"reading": "asr_change", "unit": "%", "axis": "eps", "reference": None, "n": 512, "seeds": 3}
    lines = [
        {
            **about,
            "label": f"{model}, eps {x}",
            "series": model,
            "model": model,
            "x": x,
            "value": 0.1 * x,
            "interval": None,
        }
        for model in ("ViT", "DiffViT")
        for x in (1.0, 2.0, 4.0)
    ]
    return [study_figure(f"figure-{n}", lines[: 3 * n], {"ViT": 0, "DiffViT": 1}) for n in (1, 2)]


def written(figures, folder, *draw):
    page = Page(title="x", lede="", sections=(Section(name="s", title="S", parts=tuple(figures)),))
    write_page(page, folder, *draw)
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_other_processes_draw_the_bytes_that_this_one_would_draw(figures, tmp_path):
    with Drawers(2) as drawers:
        drawers.begin(figures[0])  # the other one is drawn when it is asked for
        assert drawers._begun[figures[0].name].result().panels
        assert written(figures, tmp_path / "beside", drawers) == written(figures, tmp_path / "alone")


def test_a_process_that_is_killed_leaves_its_figures_to_this_one(figures):
    with Drawers(2) as drawers:
        drawers.begin(figures[0])
        with pytest.raises(BrokenProcessPool):
            drawers._pool.submit(os._exit, 1).result()
        drawers.begin(figures[1])
        assert [drawers(figure) for figure in figures] == [draw(figure) for figure in figures]


def test_processes_that_draw_end_when_the_one_that_started_them_is_killed():
    ended = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    path, patience = Path("/proc") / ended.stdout.strip() / "stat", time.monotonic() + 60
    while path.exists() and path.read_text().split()[2] != "Z" and time.monotonic() < patience:
        time.sleep(0.05)
    assert not path.exists() or path.read_text().split()[2] == "Z"
