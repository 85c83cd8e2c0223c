"""The verdict on noise and attacks follows the data."""

import json
from pathlib import Path

import numpy as np
import pytest

from antiphase import Run, load
from antiphase.config import InputError
from antiphase.measures.cancellation import Cancellation, cancellation
from antiphase.measures.common_mode import common_mode
from tests.measures.made_changes import of


def test_the_verdict_on_common_mode_follows_the_data():
    """Noise that moves both alike, an attack that moves them apart; then both alike; then neither."""
    rng = np.random.default_rng(0)
    d, other = rng.normal(size=(2, 40, 2, 30))
    alike, apart, orthogonal = of(d, d + other / 2), of(d, -d + other / 2), of(d, other)

    def verdicts(noise, attack):
        named = [Cancellation(**{**vars(c), "perturbation": p}) for c, p in ((noise, "sign"), (attack, "pgd"))]
        return {row["statistic"]: row for row in common_mode(named)}

    assert verdicts(alike, apart)["cos"]["verdict"] == "noise common-mode, attack opposed"
    assert verdicts(alike, apart)["log_cmrr"]["verdict"] == "noise cancelled, attack amplified"
    for row in verdicts(alike, apart).values():
        assert row["difference"]["interval"][0] > 0
        assert row["p"] < 1e-6
        assert (row["above"], row["below"], row["matched"]) == (40, 0, True)
        json.dumps(row, allow_nan=False)
    assert verdicts(apart, alike)["cos"]["verdict"] == "noise opposed, attack common-mode"
    assert verdicts(alike, alike)["cos"]["verdict"] == "both common-mode, no difference shown"
    assert verdicts(apart, apart)["log_cmrr"]["verdict"] == "both amplified, no difference shown"
    assert verdicts(alike, of(d, d + other / 4))["cos"]["verdict"] == "both common-mode, the attack more so"
    assert verdicts(orthogonal, apart)["cos"]["verdict"] == "noise undecided, attack opposed"
    smaller = Cancellation(**{**vars(apart), "perturbation": "pgd", "eps": 1 / 255})
    assert common_mode([alike, smaller]) == []  # of another size: nothing to compare
    with pytest.raises(InputError, match="noise is compared with attacks"):
        common_mode([alike])


@pytest.mark.usefixtures("data_root")
def test_noise_and_attacks_on_a_real_cifar_pair():
    """On these weights neither is common-mode: both move the maps of a differential layer apart, attacks further."""
    few = load("cifar10", "test").subset(24)
    model = Run(Path(__file__).parents[2] / "results/pair/DiffViT").classifier()
    found = cancellation(model, few, perturbations=("sign", "fgsm"), quantities=("maps",))
    row = common_mode(found)[0]
    assert row["matched"]
    assert row["verdict"] == "both opposed, noise less so"
