"""Ours against other people's PGD, image by image, on the committed pair and 512 real images."""

import json
import os
import subprocess

import pytest

from tests.conftest import ROOT, _missing


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["torchattacks", "foolbox"])
def test_our_pgd_is_at_least_as_strong_as_a_peers_at_every_budget(peer, data_root, capsys):
    python = ROOT / ".venv-peers" / "bin" / "python"
    if not python.exists():
        _missing("no .venv-peers: make test-slow creates it")
    argv = [python, ROOT / "tests" / "peers_pgd.py", ROOT / "results/pair/DiffViT", peer, "512"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "ANTIPHASE_DATA": str(data_root)}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    with capsys.disabled():
        for row in rows:
            print(
                f"\n{peer} at {row['eps']}/255: ours {100 * row['ours']:.1f} %, theirs {100 * row['theirs']:.1f} %, "
                f"the same verdict on {100 * row['agree']:.1f} % of 512",
                end="",
            )
    for row in rows:
        assert row["ours"] >= row["theirs"] - 0.005
        assert row["agree"] > 0.97
        assert row["flags"] == []
