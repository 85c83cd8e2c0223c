"""Forwards are spent on examples that are not fooled yet; restarts and targets of one example are counted apart."""

import torch

from antiphase.attacks import APGD, PGD, Linf
from tests.attacks.harness import run, take


def test_forwards_are_spent_only_on_examples_that_are_not_fooled_yet(victim, few):
    result = run(victim, few, PGD(within=Linf("48/255"), steps=20), batch_size=32)
    assert result.forwards[result.success].float().mean() < 12  # of 23
    of_failed = result.forwards[~result.success]
    assert set(of_failed.tolist()) <= {22, 23}  # clean (twice in the first batch), 20 steps and a last forward
    assert (result.backwards[~result.success] == 20).all()


def test_an_example_fooled_at_its_start_costs_one_forward_and_its_judgement(victim, few):
    result = run(victim, few, PGD(within=Linf(1.0), steps=100), batch_size=8)
    at_once = result.backwards == 0
    assert at_once.any()
    assert result.forwards[at_once].max() <= 4  # clean (twice in the first batch), start, judgement


def test_restarts_of_one_example_in_one_batch_are_all_counted_and_the_first_success_is_kept(victim, few):
    attack, few = PGD(within=Linf("12/255"), restarts=4, steps=8), take(few, slice(20))
    together, alone = (run(victim, few, attack, protocol="paper", batch_size=size) for size in (80, 10))
    assert torch.equal(together.backwards, alone.backwards)
    assert torch.equal(together.forwards[:10], alone.forwards[:10])  # their clean prediction is made twice in both
    assert torch.equal(together.adversarial_prediction, alone.adversarial_prediction)
    assert (together.adversarial != alone.adversarial).double().mean() < 0.01


def test_the_targets_of_an_example_enter_and_leave_together(victim, few):
    """Every forward of a fooled example is one for each of its targets, so their number divides the cost."""
    attack = APGD(within=Linf("10/255"), steps=12, loss="dlr-targeted", targets=5)
    result = run(victim, few, attack, batch_size=10)
    other = 1 + (torch.arange(96) < 10).long() + result.success.long()  # clean, twice in the first batch; judged
    assert result.success.any()
    assert ((result.forwards - other) % 5 == 0).all()
    assert (result.forwards - other)[~result.success].unique().tolist() == [5 * 13]
