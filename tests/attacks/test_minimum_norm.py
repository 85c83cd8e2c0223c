"""The smallest perturbation that fools, measured on the returned pixels, for each example by itself."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from antiphase.attacks import CW, DDN, FMN, MinimalL2, engine
from antiphase.attacks.minimum_norm import smaller_of
from antiphase.config import InputError
from tests.attacks.harness import Linear, near_grey, run, take

QUICK = CW(searches=4, steps=40, lr=0.03, initial_c=1.0)


SHORT = {"cw": QUICK, "ddn": DDN(steps=40), "fmn": FMN(steps=40)}


ATTACKS = {
    **SHORT,
    "the best of them": MinimalL2(cw=replace(QUICK, searches=2, steps=20), ddn=DDN(steps=30), fmn=FMN(steps=30)),
    "cw to a class": replace(QUICK, initial_c=10.0, target=3),
    "ddn to a random class": DDN(steps=40, target="random"),
    "fmn to the least likely": FMN(steps=40, target="least-likely"),
    "cw from the true label": replace(QUICK, label="true"),
}


@pytest.fixture(scope="module")
def few(digits):
    return digits[1].subset(16).all


@pytest.fixture(scope="module", params=ATTACKS)
def attacked(request, victim, few):
    attack = ATTACKS[request.param]
    return attack, run(victim, few, attack)


# ------------------------------------------------------------------------------------------------- distances


@pytest.mark.parametrize("attack", [CW(), DDN(), FMN(), MinimalL2()], ids=lambda a: type(a).__name__)
def test_on_a_linear_classifier_the_distance_is_that_to_the_boundary(attack):
    model, x = Linear(), near_grey(8)
    result = engine.run(model, x, model(x).argmax(dim=1), attack)
    exact = model.distance(x)
    assert result.success.all()
    assert (result.distance > exact * (1 - 1e-4)).all()
    assert (result.distance < exact * 1.02 + 1e-4).all(), (result.distance / exact).max()


@pytest.mark.parametrize("shift", [-10.0, 10.0])
@pytest.mark.parametrize("attack", [CW(searches=3, steps=60, initial_c=0.1), DDN(), FMN()], ids=SHORT)
def test_the_sign_of_the_logits_does_not_matter(attack, shift):
    model, x = Linear(shift), near_grey(8)
    result = engine.run(model, x, model(x).argmax(dim=1), attack)
    assert result.success.all()
    assert (result.distance < 1.5 * model.distance(x)).all()


def test_black_and_white_pixels_can_move(victim, few):
    """Images of nothing but exact 0 and 1: a tanh map that sends them to infinity leaves them there."""
    x = (few.pixels[:8] > 0.5).float()
    patient = CW(searches=5, steps=80, lr=0.02, initial_c=0.1)
    near, *others = (engine.run(victim, x, few.labels[:8], attack) for attack in (FMN(), DDN(), patient))
    assert near.success.all()
    for result in others:
        assert result.success.all()
        assert result.distance.median() < 1.1 * near.distance.median()


def test_minimal_l2_is_the_smallest_of_its_parts(victim, few):
    parts = MinimalL2(**SHORT)
    best = run(victim, few, parts)
    alone = [run(victim, few, attack) for attack in SHORT.values()]
    smallest = torch.stack([r.distance.where(r.success, torch.inf) for r in alone]).amin(dim=0)
    assert best.success.all()
    assert torch.allclose(best.distance, smallest, rtol=1e-3)
    assert torch.equal(
        best.forwards, sum(r.forwards for r in alone) - 2 * (alone[0].forwards * 0 + 2)
    )  # the clean forwards once, not three times
    assert torch.equal(best.backwards, sum(r.backwards for r in alone))


def test_of_a_success_and_a_failure_the_success_is_kept(victim, few):
    good, none = run(victim, few, SHORT["fmn"]), run(victim, few, DDN(steps=1, initial_eps=1e-6))
    assert not none.success.any()
    for both in (smaller_of(good, none), smaller_of(none, good)):
        assert torch.equal(both.adversarial, good.adversarial)
        assert torch.equal(both.forwards, good.forwards + none.forwards)


# ------------------------------------------------------------------------------------------------- the contract, every attack


def test_the_distance_is_the_l2_of_the_returned_pixels(attacked, victim, few):
    attack, result = attacked
    delta = result.adversarial.double() - few.pixels.double()
    assert torch.equal(result.distance, delta.flatten(1).norm(dim=1))
    assert 0 <= result.adversarial.min() <= result.adversarial.max() <= 1
    with torch.no_grad():
        now = victim(result.adversarial).argmax(dim=1)
    assert torch.equal(now, result.adversarial_prediction)
    assert torch.equal(now != result.clean_prediction, result.success)
    if isinstance(attack.target, int):
        assert (now[result.success] == attack.target).all()
    assert (result.forwards <= attack.forwards + 5).all()  # two clean forwards, and the final judgement of each part


def test_without_a_target_every_image_is_fooled(attacked):
    attack, result = attacked
    wrong = ~result.correct if attack.label == "true" else torch.zeros_like(result.success)
    if attack.target is None:
        assert result.success[~wrong].all()
    else:
        assert result.success.float().mean() > 0.3


def test_results_do_not_depend_on_batch_order_or_neighbours(attacked, few, victim):
    attack, result = attacked
    order = np.random.default_rng(0).permutation(16)
    some = order[:5]  # other order, other batch, other neighbours
    for other, rows in (
        (run(victim, take(few, order), attack, batch_size=6), order),
        (run(victim, take(few, some), attack), some),
    ):
        assert torch.equal(result.success[rows], other.success)
        assert torch.equal(result.adversarial_prediction[rows], other.adversarial_prediction)
        assert torch.allclose(result.distance[rows], other.distance, rtol=0.02)


@pytest.mark.parametrize("attack", SHORT.values(), ids=SHORT)
def test_in_float64_the_pixels_do_not_depend_on_the_batch(attack, pair, few):
    model, wide = pair[1].classifier().double(), few._replace(pixels=few.pixels.double())
    a, b = (run(model, wide, attack, batch_size=size) for size in (16, 7))
    assert torch.equal(a.adversarial_prediction, b.adversarial_prediction)
    assert torch.allclose(a.distance, b.distance, rtol=1e-3)
    if not isinstance(attack, FMN):  # its steps turn about where two other classes are equally near
        assert (a.adversarial - b.adversarial).abs().max() < 1e-9


@pytest.mark.parametrize("attack", SHORT.values(), ids=SHORT)
def test_an_easy_neighbour_does_not_stop_a_hard_one(attack):
    """Stopped by the loss of the whole batch, one of the two would end with the other."""
    model, x = Linear().double(), near_grey(40).double()
    order = model.distance(x).argsort()
    two = x[order[[0, -1]]]
    y = model(two).argmax(dim=1)
    together = engine.run(model, two, y, attack)
    alone = [engine.run(model, two[i : i + 1], y[i : i + 1], attack, ids=np.array([i])) for i in range(2)]
    assert torch.allclose(together.distance, torch.cat([r.distance for r in alone]), rtol=1e-9)
    assert torch.equal(together.backwards, torch.cat([r.backwards for r in alone]))


class Constant(torch.nn.Module):
    """Class 0, whatever it sees; the slope leads nowhere."""

    def forward(self, x):
        return torch.cat([5 + 0 * x.flatten(1).sum(dim=1, keepdim=True), x.flatten(1)[:, :2]], dim=1)


@pytest.mark.parametrize("attack", SHORT.values(), ids=SHORT)
def test_an_example_that_cannot_be_fooled_comes_back_clean(attack, few):
    result = run(Constant(), few._replace(labels=few.labels * 0), attack)
    assert not result.success.any()
    assert torch.equal(result.adversarial, few.pixels)
    assert (result.distance == 0).all()


def test_model_and_global_stream_are_left_as_they_were(pair, few):
    model = pair[1].classifier()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    modes, wants = [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]
    torch.manual_seed(3)
    state = torch.get_rng_state()
    run(model, few, MinimalL2(cw=CW(searches=1, steps=2), ddn=DDN(steps=2), fmn=FMN(steps=2)))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert [m.training for m in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == wants
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("attack", [SHORT["cw"], ATTACKS["the best of them"]], ids=["cw", "the best of them"])
def test_a_journal_of_half_the_examples_gives_the_result_of_all(attack, victim, few, tmp_path):
    whole = run(victim, few, attack)
    run(victim, take(few, np.arange(8)), attack, journal=tmp_path / "journal")
    resumed = run(victim, few, attack, journal=tmp_path / "journal")
    assert torch.equal(resumed.success, whole.success)
    assert torch.allclose(resumed.distance, whole.distance, rtol=0.02)
    assert (resumed.forwards[8:] > 10).all()


def test_eight_bits_and_unknown_classes_are_refused_in_a_sentence(victim, few):
    for attack in (*SHORT.values(), MinimalL2()):
        with pytest.raises(InputError, match="rounding undoes it"):
            run(victim, few, attack, eight_bit=True)
    with pytest.raises(InputError, match="target 12 is out of range"):
        run(victim, few, CW(target=12))
