"""An attack stays where it may, says the truth about what it did, and leaves everything as it was."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphase import runtime
from antiphase.attacks import PGD, Linf, fgsm
from antiphase.attacks.engine import run
from antiphase.config import InputError
from antiphase.measures.success import success_rates


@pytest.fixture(scope="module")
def few(digits):
    return digits[1].subset(96)


@pytest.fixture(scope="module")
def victim(pair):
    return pair[1].classifier()


def test_adversarial_pixels_stay_in_the_ball_and_in_range(victim, few):
    attack = PGD(within=Linf("12/255"), runs=2)
    result = run(victim, few, attack)
    distance = (result.adversarial.double() - few.all.pixels.double()).abs().max().item()
    assert 0 < distance <= 12 / 255 + 1e-7
    assert 0 <= result.adversarial.min() <= result.adversarial.max() <= 1


def test_success_is_what_the_model_says_of_the_returned_pixels(victim, few):
    result = run(victim, few, PGD(within=Linf("12/255"), runs=2))
    with torch.no_grad():
        now = victim(result.adversarial).argmax(dim=1)
    assert torch.equal(now, result.adversarial_prediction)
    assert torch.equal(result.success, result.changed_in_run.any(dim=0))
    assert 0.1 < result.success.float().mean() < 0.9


def test_a_failed_example_comes_back_clean(victim, few):
    result = run(victim, few, PGD(within=Linf("4/255")))
    assert (~result.success).any()
    assert torch.equal(result.adversarial[~result.success], few.all.pixels[~result.success])


def test_a_zero_budget_changes_nothing(victim, few):
    result = run(victim, few, PGD(within=Linf(0)))
    assert torch.equal(result.adversarial, few.all.pixels)
    assert success_rates(result)["asr_change"]["value"] == 0


def test_a_larger_budget_fools_more(victim, few):
    rates = [run(victim, few, PGD(within=Linf(f"{e}/255"))).success.float().mean() for e in (2, 8, 24, 64)]
    assert rates == sorted(rates)
    assert rates[0] < 0.15
    assert rates[-1] > 0.9


def test_pgd_beats_noise_of_the_same_size(victim, few):
    noise = PGD(within=Linf("16/255"), steps=1, step_size=0.0)
    assert run(victim, few, noise).success.sum() < run(victim, few, PGD(within=Linf("16/255"))).success.sum()


def test_fgsm_is_one_step_of_pgd_from_the_image_itself(victim, few):
    x, y = few.all.pixels, few.all.labels
    leaf = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(torch.nn.functional.cross_entropy(victim(leaf), y, reduction="sum"), leaf)
    by_hand = (x + 8 / 255 * grad.sign()).clamp(0, 1)
    result = run(victim, few, fgsm(Linf("8/255")))
    assert result.success.any()
    assert torch.allclose(result.adversarial[result.success], by_hand[result.success], atol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 96])
def test_results_do_not_depend_on_the_batch(victim, few, size):
    attack = PGD(within=Linf("12/255"), runs=2, steps=10)
    a, b = run(victim, few, attack, batch_size=32), run(victim, few, attack, batch_size=size)
    assert torch.equal(a.changed_in_run, b.changed_in_run)
    assert torch.equal(a.adversarial_prediction, b.adversarial_prediction)
    assert torch.equal(a.forwards, b.forwards)


def test_results_do_not_depend_on_the_neighbours(victim, few):
    attack = PGD(within=Linf("12/255"), steps=10)
    whole = run(victim, few, attack)
    part = run(victim, few.take(np.arange(40, 60)), attack)
    assert torch.equal(whole.changed_in_run[:, 40:60], part.changed_in_run)


def test_the_model_and_the_global_stream_are_left_as_they_were(pair, few):
    model = pair[1].classifier()
    model.train()
    model.model.blocks[0].eval()
    modes = [m.training for m in model.modules()]
    before = {k: v.clone() for k, v in model.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    run(model, few, PGD(within=Linf("8/255"), steps=2))
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_forwards_are_spent_on_the_standing_only(victim, few):
    result = run(victim, few, PGD(within=Linf("48/255"), steps=20))
    fooled = result.forwards[result.success]
    assert fooled.float().mean() < 12  # of 23
    assert (result.forwards[~result.success] == 23).all()  # clean, 20 steps, last look, returned pixels


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: PGD(within=Linf(0.1), steps=0), "steps=0"),
        (lambda: PGD(within=Linf(0.1), runs=0), "runs=0"),
        (lambda: PGD(within=Linf(0.1), runs=2, random_start=False), "runs=2 without a random start"),
        (lambda: PGD(within=Linf(0.1), step_size=float("nan")), "step_size=nan"),
        (lambda: Linf(-0.1), "-0.1"),
    ],
)
def test_an_attack_that_cannot_be_is_refused_by_name(make, named):
    with pytest.raises(InputError, match=named):
        make()


# ------------------------------------------------------------------------------------------------- random streams


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20, unique=True), st.integers(0, 2**40))
def test_a_stream_belongs_to_its_example(ids, seed):
    ids = np.array(ids)
    together = runtime.uniform((seed, "start", 0), ids, (3, 4))
    alone = np.concatenate([runtime.uniform((seed, "start", 0), ids[i : i + 1], (3, 4)) for i in range(len(ids))])
    assert np.array_equal(together, alone)
    assert not np.array_equal(together, runtime.uniform((seed, "start", 1), ids, (3, 4)))
    assert ((together >= 0) & (together < 1)).all()


def test_streams_are_uniform_normal_and_uncorrelated():
    from scipy.stats import kstest

    draws = runtime.uniform((0, "test"), np.arange(2000), (50,))
    assert kstest(draws.ravel(), "uniform").pvalue > 0.01
    assert kstest(runtime.normal((0, "test"), np.arange(2000), (50,)).ravel(), "norm").pvalue > 0.01
    assert abs(np.corrcoef(draws[:, 0], draws[:, 1])[0, 1]) < 0.07  # along a stream
    assert abs(np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]) < 0.015  # between neighbours
    other = runtime.uniform((1, "test"), np.arange(2000), (50,))
    assert abs(np.corrcoef(draws.ravel(), other.ravel())[0, 1]) < 0.015  # between seeds
