"""Auto-PGD."""

import pytest

from antiphase.attacks import APGD, L2, PGD, Linf
from antiphase.attacks.apgd import checkpoints
from tests.attacks.harness import run


@pytest.fixture(scope="module")
def few(digits):
    return digits[1].subset(48).all


def test_checkpoints_are_those_of_the_paper():
    since = checkpoints(100)
    assert [i for i, s in enumerate(since) if s] == [22, 41, 57, 70, 80, 87, 93, 99]
    assert [s for s in since if s] == [22, 19, 16, 13, 10, 7, 6, 6]


def test_apgd_is_at_least_as_strong_as_pgd_for_the_same_forwards(victim, few):
    for within in (Linf("8/255"), L2(0.4)):
        by_apgd, by_pgd = (run(victim, few, kind(within=within, steps=40)).success for kind in (APGD, PGD))
        assert by_apgd.sum() >= by_pgd.sum() - 1
