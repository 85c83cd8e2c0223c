"""A slice of `make faults`: random kills, full disks, changed bytes, hostile files, command lines and misuses."""

import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.faults import child, full_disks
from benchmarks.faults.scene import nearly

ROOT = Path(__file__).parents[1]
SECONDS = 150
SLICE = """
import json, sys
from pathlib import Path
from benchmarks.faults.__main__ import slice_of
outcomes = slice_of(float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
print(json.dumps({name: [outcome.verdict, outcome.note] for name, outcome in outcomes.items()}))
"""


def program(behaviour):
    """A command that behaves like this; it says so when it begins."""

    def behave() -> int:
        os.write(2, b"at work\n")
        try:
            if behaviour != "ends":
                time.sleep(30)
        except KeyboardInterrupt:
            if behaviour == "ends when asked":
                return 130
            time.sleep(30)
        return 0

    return behave


@pytest.mark.parametrize(
    ("behaviour", "hung", "interrupted"),
    [("ends", False, False), ("ends when asked", False, True), ("does not end", True, False)],
)
def test_a_command_hangs_that_does_not_end_in_time_nor_when_it_is_asked_to(
    behaviour, hung, interrupted, tmp_path, monkeypatch
):
    monkeypatch.setattr(child, "PATIENCE", 0.5)
    ended = child.call(program(behaviour), tmp_path, interrupt=True)
    assert (ended.hung, ended.interrupted) == (hung, interrupted)
    assert (ended.crash is not None) == hung
    assert ended.err == "at work\n"
    assert ended.seconds < 20


def test_a_command_that_takes_as_long_as_undisturbed_does_not_hang(tmp_path, monkeypatch):
    monkeypatch.setattr(child, "PATIENCE", 0.2)
    ended = child.call(lambda: time.sleep(0.8) or 0, tmp_path, takes=5)
    assert (ended.hung, ended.code) == (False, 0)
    assert child.call(lambda: time.sleep(30) or 0, tmp_path, takes=0.1).crash.startswith("no end")


def test_without_root_full_disks_are_left_out_and_that_is_said(monkeypatch, capsys):
    monkeypatch.setattr(full_disks, "mountable", lambda: False)
    assert not list(full_disks.trials())
    assert "takes root" in capsys.readouterr().err


@pytest.mark.slow
def test_whatever_goes_wrong_nothing_is_lost_silent_or_ugly(tmp_path):
    """Other trials every day; the seed is in the name of the folder that a failure shows."""
    seed = datetime.date.today().toordinal()
    argv = [sys.executable, "-c", SLICE, str(SECONDS), str(seed), str(tmp_path / f"seed-{seed}")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=480)
    assert ended.returncode == 0, ended.stderr[-3000:]
    outcomes = json.loads(ended.stdout.splitlines()[-1])
    assert len(outcomes) >= 20
    assert {name: told for name, told in outcomes.items() if told[0] != "fine"} == {}


def test_results_are_the_same_but_for_rounding():
    result = {"cells": [{"distance": 0.0941725, "n": 3, "name": "fmn"}], "none": None}
    assert nearly(result, {"cells": [{"distance": 0.0941728, "n": 3, "name": "fmn"}], "none": None})
    for other in (
        {"cells": [{"distance": 0.0942, "n": 3, "name": "fmn"}], "none": None},
        {"cells": [{"distance": 0.0941725, "n": 4, "name": "fmn"}], "none": None},
        {"cells": [{"distance": 0.0941725, "n": 3, "name": "ddn"}], "none": None},
        {"cells": [], "none": None},
        {"cells": result["cells"]},
    ):
        assert not nearly(result, other)
