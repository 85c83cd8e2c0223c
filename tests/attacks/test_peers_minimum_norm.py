"""Ours against other people's minimum-norm attacks, on the committed pair and 64 real images."""

import json
import os
import subprocess

import pytest

from tests.conftest import ROOT, _missing

IMAGES = 64


@pytest.mark.slow
def test_our_minimum_norm_attacks_fool_as_many_and_come_as_near_as_peers(data_root, capsys):
    python = ROOT / ".venv-peers" / "bin" / "python"
    if not python.exists():
        _missing("no .venv-peers: make test-slow creates it")
    argv = [python, ROOT / "tests/attacks/peers_minimum_norm.py", ROOT / "results/pair/DiffViT", str(IMAGES)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "ANTIPHASE_DATA": str(data_root)}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    with capsys.disabled():
        for name, row in found.items():
            print(f"\n{name}: {row['success']} of {IMAGES} fooled, median L2 {row['median']:.4f}", end="")
    for ours, peer in (("CW", "CW, foolbox"), ("CW", "CW, torchattacks"), ("DDN", "DDN, foolbox")):
        assert found[ours]["success"] >= found[peer]["success"] - 1
        assert found[ours]["median"] <= 1.01 * found[peer]["median"]
        assert found[ours]["flags"] == []
    assert found["MinimalL2"]["success"] == IMAGES
    assert found["MinimalL2"]["median"] <= 0.8 * found["CW, foolbox"]["median"]
