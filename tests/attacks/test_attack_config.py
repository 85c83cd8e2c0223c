"""Attacks as values: impossible settings are refused, lists and costs are as announced."""

import pytest
import torch

from antiphase.attacks import APGD, CW, DDN, FAB, FMN, L2, PGD, AutoAttack, Linf, MinimalL2, Patch, Square
from antiphase.attacks.config import Attack
from antiphase.config import InputError
from tests.attacks.harness import Returns, run, take


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: PGD(within=Linf(0.1), steps=0), "steps=0"),
        (lambda: PGD(within=Linf(0.1), restarts=0), "restarts=0"),
        (lambda: PGD(within=Linf(0.1), restarts=2, random_start=False), "restarts=2 without a random start"),
        (lambda: PGD(within=Linf(0.1), step_size=float("nan")), "step_size=nan"),
        (lambda: Linf(-0.1), "-0.1"),
        (lambda: PGD(within=Linf(0.1), loss="dlr", target=1), "dlr"),
        (lambda: PGD(within=Linf(0.1), target=-2), "target=-2"),
        (lambda: Patch(width=0), "width=0"),
        (lambda: Patch(eps=8), "8/255"),
        (lambda: L2(float("nan")), "nan"),
    ],
)
def test_impossible_settings_are_refused_by_name(make, named):
    with pytest.raises(InputError, match=named):
        make()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: CW(searches=0), "searches=0"),
        (lambda: CW(steps=0), "steps=0"),
        (lambda: CW(lr=0.0), "lr=0 must be more than 0"),
        (lambda: CW(lr=float("nan")), "lr=nan"),
        (lambda: CW(initial_c=-1.0), "initial_c=-1"),
        (lambda: CW(confidence=-0.1), "confidence=-0.1"),
        (lambda: DDN(steps=0), "steps=0"),
        (lambda: DDN(gamma=1.0), "gamma=1 must be between 0 and 1"),
        (lambda: DDN(initial_eps=0.0), "initial_eps=0"),
        (lambda: FMN(gamma=0.0), "gamma=0 must be between 0 and 1"),
        (lambda: FMN(target=-1), "target=-1"),
        (lambda: MinimalL2(cw=CW(target=3)), "not to its part cw"),
    ],
)
def test_impossible_settings_of_minimum_norm_attacks_are_refused_by_name(make, named):
    with pytest.raises(InputError, match=named):
        make()


def test_only_pgd_works_within_a_patch():
    for kind in (APGD, FAB, Square, AutoAttack):
        sentence = f"{kind.__name__} works within Linf or L2 and does not know patches: use PGD within a patch"
        with pytest.raises(InputError, match=sentence):
            kind(within=Patch(width=2))


def test_the_lists_are_those_of_the_authors_code_and_of_the_papers_text():
    names = {
        v: [s.name for s in AutoAttack(within=Linf(0.1), version=v).stages]
        for v in ("standard", "plus", "rand", "paper")
    }
    assert names == {
        "standard": ["APGD-CE", "APGD-T", "FAB-T", "Square"],
        "plus": ["APGD-CE", "APGD-DLR", "FAB", "Square", "APGD-T", "FAB-T"],
        "rand": ["APGD-CE", "APGD-DLR"],
        "paper": ["APGD-CE", "APGD-DLR", "FAB", "Square"],
    }


def test_every_attack_knows_the_most_it_can_cost(victim, few):
    """Against a model that nothing fools, the forwards are those announced."""
    steady = Returns(lambda x: victim(x) * 0 + torch.arange(10.0) + 0 * x.flatten(1).sum(1, keepdim=True))
    attacks: list[Attack] = [
        PGD(within=Linf(0.1), steps=3, restarts=2),
        APGD(within=Linf(0.1), steps=3, restarts=2, loss="dlr-targeted", targets=4),
        Square(within=Linf(0.1), queries=7),
    ]
    few = take(few, slice(48))  # one batch: its clean prediction is made twice
    for attack in attacks:
        assert (run(steady, few, attack).forwards == attack.forwards + 2).all()
    assert (run(steady, few, FAB(within=Linf(0.1), steps=3, targets=2)).forwards <= 2 * 7 + 2).all()
