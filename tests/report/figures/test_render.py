"""Figures are whole files, or an error that says why not."""

import subprocess
import sys

import pytest

from antiphase.report.figures.render import FORMS

TOO_LARGE = """
import resource, signal, sys
from pathlib import Path
from matplotlib import pyplot as plt
from antiphase.report.figures import render

def draw():
    drawing, axis = plt.subplots()
    axis.plot(range(2000), [i * 7 % 13 for i in range(2000)])
    return drawing

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then a write beyond the limit is an error, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
render.FORMS = (sys.argv[3],)
render.write_figures(Path(sys.argv[1]), {"figure": draw})
"""


@pytest.mark.parametrize("form", FORMS)
def test_a_figure_that_the_disk_does_not_take_is_an_error_of_the_disk_and_leaves_nothing(form, tmp_path):
    argv = [sys.executable, "-c", TOO_LARGE, str(tmp_path), "4000", form]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "OSError: [Errno 27]" in ended.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())
