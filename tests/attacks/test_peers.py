"""Our attacks against other people's, image by image, on the committed pair, another's model, and real images."""

import json
import os
import subprocess

import pytest

from tests.conftest import ROOT, _missing


def _by_the_peers_python(script, *words, data_root):
    python = ROOT / ".venv-peers" / "bin" / "python"
    if not python.exists():
        _missing("no .venv-peers: make test-slow creates it")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "ANTIPHASE_DATA": str(data_root)}
    argv = [python, ROOT / "tests/attacks" / script, *words]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["torchattacks", "foolbox"])
def test_our_pgd_is_at_least_as_strong_as_a_peers_at_every_budget(peer, data_root, capsys):
    rows = _by_the_peers_python("peers_pgd.py", ROOT / "results/pair/DiffViT", peer, "512", data_root=data_root)
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


CASES = [
    ("apgd-ce", "1/255", 64, "DiffViT"),
    ("apgd-dlr", "1/255", 64, "ViT"),
    ("apgd-t", "1/255", 64, "DiffViT"),
    ("apgd-torchattacks", "1/255", 64, "DiffViT"),
    ("pgd-foolbox", "1/255", 64, "DiffViT"),
    ("fab", "1/255", 64, "DiffViT"),
    ("fab-t", "1/255", 64, "DiffViT"),
    ("square", "2/255", 64, "DiffViT"),
    ("square-torchattacks", "2/255", 64, "DiffViT"),
    ("apgd-ce", "L2 0.1", 64, "DiffViT"),
    ("apgd-t", "L2 0.1", 64, "ViT"),
    ("fab-t-pyautoattack", "L2 0.1", 64, "DiffViT"),
    ("square", "L2 0.5", 64, "DiffViT"),
    ("autoattack", "8/255", 64, "DiffViT"),
    ("autoattack", "1/255", 64, "DiffViT"),
    ("autoattack", "8/255", 16, None),  # on the model that pyautoattack ships
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "eps", "n", "model"), CASES)
def test_our_attacks_leave_at_most_one_image_more_than_a_peer(case, eps, n, model, data_root, capsys):
    folder = () if model is None else (ROOT / "results/pair" / model,)
    row = _by_the_peers_python("peers_autoattack.py", case, eps, str(n), *folder, data_root=data_root)
    with capsys.disabled():
        print(
            f"\n{case} at {eps} on {model or 'the shipped ResNet'}: of {row['clean']} correct, {row['ours']} stand after ours "
            f"and {row['theirs']} after theirs; the same verdict on {row['agree']}",
            end="",
        )
    assert row["ours"] <= row["theirs"] + 1
    assert row["flags"] == []


IMAGES = 64  # for the minimum-norm attacks


@pytest.mark.slow
def test_our_minimum_norm_attacks_fool_as_many_and_come_as_near_as_peers(data_root, capsys):
    folder = ROOT / "results/pair/DiffViT"
    results = _by_the_peers_python("peers_minimum_norm.py", folder, str(IMAGES), data_root=data_root)
    with capsys.disabled():
        for name, row in results.items():
            print(f"\n{name}: {row['success']} of {IMAGES} fooled, median L2 {row['median']:.4f}", end="")
    for ours, peer in (("CW", "CW, foolbox"), ("CW", "CW, torchattacks"), ("DDN", "DDN, foolbox")):
        assert results[ours]["success"] >= results[peer]["success"] - 1
        assert results[ours]["median"] <= 1.01 * results[peer]["median"]
        assert results[ours]["flags"] == []
    assert results["MinimalL2"]["success"] == IMAGES
    assert results["MinimalL2"]["median"] <= 0.8 * results["CW, foolbox"]["median"]
