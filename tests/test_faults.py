"""A slice of `make faults`: random kills, full disks, changed bytes, hostile files, command lines and misuses."""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECONDS = 150
SLICE = """
import json, sys
from pathlib import Path
from benchmarks.faults.__main__ import slice_of
outcomes = slice_of(float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
print(json.dumps({name: [outcome.verdict, outcome.note] for name, outcome in outcomes.items()}))
"""


@pytest.mark.slow
def test_whatever_goes_wrong_nothing_is_lost_silent_or_ugly(tmp_path):
    """Other trials every day; the seed is in the name of the folder that a failure shows."""
    seed = datetime.date.today().toordinal()
    argv = [sys.executable, "-c", SLICE, str(SECONDS), str(seed), str(tmp_path / f"seed-{seed}")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr[-3000:]
    outcomes = json.loads(ended.stdout.splitlines()[-1])
    assert len(outcomes) >= 20
    assert {name: told for name, told in outcomes.items() if told[0] != "fine"} == {}
