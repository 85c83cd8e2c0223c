"""A verifier of somebody else's proved images robust: no attack may break them, and of the others AutoAttack must break some."""

import numpy as np
import pytest
import torch

from antiphase.attacks import CW, DDN, FMN, L2, PGD, AutoAttack, Linf, MinimalL2, Square
from antiphase.attacks.threat_model import SLACK
from antiphase.data import load
from antiphase.measures.success import accuracy
from tests.attacks.harness import run
from tests.attacks.verified_vit import outside_truth

pytestmark = pytest.mark.slow
PROVEN_AT = Linf("1/255")
ATTACKS = {
    "PGD with 10 restarts": PGD(within=PROVEN_AT, steps=40, restarts=10),
    "PGD by the margin": PGD(within=PROVEN_AT, steps=40, restarts=3, loss="margin"),
    "PGD in the L2 ball within": PGD(within=L2("1/255"), steps=40, restarts=3),
    "AutoAttack": AutoAttack(within=PROVEN_AT),
    "Square": Square(within=PROVEN_AT, queries=2000),
}


@pytest.fixture(scope="module")
def truth(data_root):
    folder = data_root / "vnncomp-vit"
    if not folder.is_dir():
        pytest.skip("there is no vnncomp-vit in ANTIPHASE_DATA: the VNN-COMP ViT with its proofs is needed")
    return outside_truth(folder)


@pytest.fixture(scope="module")
def test_images(data_root):
    return load("cifar10", "test", root=data_root)


@pytest.fixture(scope="module")
def proven(truth, test_images):
    return test_images.take(np.array(truth.proven)).all


def test_logits_and_accuracy_are_those_that_are_documented(truth, test_images):
    with torch.no_grad():
        logits = truth.classifier(test_images.take(np.arange(8)).all.pixels)
    torch.testing.assert_close(logits, truth.logits, rtol=0, atol=1e-5)
    assert round(accuracy(truth.classifier, test_images) * 10_000) == round(truth.accuracy * 10_000) == 5978


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_breaks_an_image_that_was_proved_robust(truth, proven, name):
    result = run(truth.classifier, proven, ATTACKS[name])
    assert bool(result.correct.all())
    assert int(result.success.sum()) == 0, proven.ids[result.success.numpy()]
    assert int(result.forwards.min()) > 100  # it tried


def test_the_smallest_perturbation_of_a_proven_image_leaves_the_ball(truth, proven):
    smallest = MinimalL2(fmn=FMN(steps=200), ddn=DDN(steps=200), cw=CW(searches=4, steps=50))
    result = run(truth.classifier, proven, smallest)
    assert bool(result.success.all())  # every image can be fooled, further away
    reach = (result.adversarial.double() - proven.pixels.double()).flatten(1).abs().amax(dim=1)
    assert float(reach.min()) > 1 / 255 + SLACK


def test_twice_as_far_autoattack_breaks_17_of_the_100_and_all_of_them_were_undecided(truth, test_images):
    hundred = test_images.take(np.array(truth.proven + truth.undecided)).all
    result = run(truth.classifier, hundred, AutoAttack(within=Linf("2/255")))
    assert bool(result.correct.all())
    broken = set(hundred.ids[result.success.numpy()].tolist())
    assert len(broken) == 17
    assert broken <= set(truth.undecided)
