"""`make bench` itself: what it keeps of a run, and that processes which are measured together run together."""

import json
import sys
from contextlib import ExitStack

import pytest
from benchmarks import __main__ as bench
from benchmarks import lens_lines, start_lines
from benchmarks.lines import LINES
from benchmarks.timing import Line, Measured


@pytest.fixture
def lines(monkeypatch, tmp_path):
    """Two lines that measure nothing, and files of their own: lines("--page") runs the command."""
    counted = []

    def measure(n):
        counted.append(n)
        return Measured([1.0] * n, {"cores": "2"})

    some = {"quick": Line("a / b", "<= 1.50", measure), "dear": Line("c / d", "<= 1.50", measure, long=True)}
    monkeypatch.setattr(bench, "LINES", some)
    for name in ("RESULTS", "PAGE", "WHOLE"):
        monkeypatch.setattr(bench, name, tmp_path / name)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["benchmarks", "--pairs", "30", *words])
        counted.clear()
        bench.main()
        return len(counted), bench.PAGE.read_text()

    return run


def test_every_line_says_what_it_took_and_only_a_whole_run_what_all_take(lines, capsys):
    assert lines("quick")[0] == 1
    assert not bench.WHOLE.exists()
    assert "has not been run as a whole" in bench.PAGE.read_text()
    measured, page = lines()
    assert measured == 1
    assert "`make bench` took 0 s when it was last whole" in page
    assert capsys.readouterr().out.splitlines()[-1] == "1 lines: 0 s (0 s)"
    measured, page = lines("--all")
    assert measured == 2
    assert {name: run["lines"] for name, run in bench.whole_runs().items()} == {
        "make bench": 1,
        "make bench-all": 2,
    }
    assert all("seconds" in record for record in json.loads(bench.RESULTS.read_text()))


def test_the_page_alone_measures_nothing_and_has_a_dash_for_seconds_that_were_not_kept(lines):
    lines("quick")
    (record,) = json.loads(bench.RESULTS.read_text())
    assert record.pop("seconds") >= 0
    bench.RESULTS.write_text(json.dumps([record]))
    measured, page = lines("--page")
    assert measured == 0
    assert next(line for line in page.splitlines() if line.startswith("| `quick`")).endswith(" | - |")
    assert json.loads(bench.RESULTS.read_text()) == [record]


WAITS = """
import os, sys, time
ready = time.time()
print("ready", flush=True)
for turn, _ in enumerate(sys.stdin):
    open(os.path.join(sys.argv[1], f"{os.getpid()}-{turn}"), "w").write(f"{ready} {time.time()}")
    print(os.environ.get("OMP_NUM_THREADS", 8), flush=True)
"""


@pytest.mark.parametrize(("count", "threads"), [(1, 1), (2, 2), (None, 8)])
def test_processes_that_are_measured_together_begin_when_all_are_ready(count, threads, monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")  # of the benchmark itself: none of theirs
    monkeypatch.setattr(start_lines, "STEPS", WAITS)
    with ExitStack() as stack:
        own = {} if count is None else {"OMP_NUM_THREADS": str(count)}
        team = start_lines._team(stack, (str(tmp_path), 64, 64, 1), own, processes=2)
        assert [start_lines._step(team) for _ in range(2)] == [threads, threads]
    times = [tuple(map(float, file.read_text().split())) for file in tmp_path.iterdir()]
    assert len(times) == 4
    assert max(ready for ready, _ in times) <= min(began for _, began in times)


def test_two_processes_at_once_are_a_line_for_small_and_for_larger_images():
    assert {name for name in LINES if name.endswith("two-at-once")} == {
        "threads-digits-two-at-once",
        "threads-cifar10-two-at-once",
    }


@pytest.mark.slow
def test_a_real_training_step_is_measured_in_two_processes_at_once():
    (ratio,) = start_lines.threads_of_several("digits", 64, processes=2, n=1).ratios
    assert ratio > 0


@pytest.mark.slow
def test_a_probe_of_a_large_model_holds_more_than_its_forward():
    """About 280 MB of two images on a ViT-B/16-sized model; twelve maps of 12 heads and 197 tokens are 45 MB."""
    above = lens_lines._megabytes("one forward-mode probe") - lens_lines._megabytes(lens_lines.FORWARD)
    assert 45 < above < 1_000


def test_every_measure_whose_memory_a_line_tells_is_there():
    told = {name for what, others in lens_lines.ALSO.items() for name in (what, *others)}
    assert told | {lens_lines.FORWARD} == set(lens_lines.AT_DEPTH)
