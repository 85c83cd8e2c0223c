"""An attack stays where it may, says the truth about what it did, and leaves everything as it was."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphase import runtime
from antiphase.attacks import APGD, FAB, L2, PGD, Linf, Patch, Square, engine, fgsm
from antiphase.attacks.losses import LOSSES, margin
from antiphase.attacks.patch_placement import most_attended
from antiphase.attacks.quantize import to_eight_bits
from antiphase.attacks.red_flags import order_flags
from antiphase.config import InputError
from antiphase.data.imageset import Batch
from antiphase.measures.success import success_rates
from antiphase.models import ViTConfig
from antiphase.models.taps import taps


@pytest.fixture(scope="module")
def few(digits):
    return digits[1].subset(96).all


@pytest.fixture(scope="module")
def victim(pair):
    return pair[1].classifier()


def run(model, batch, attack, **kwargs):
    return engine.run(model, batch.pixels, batch.labels, attack, ids=batch.ids, **kwargs)


def take(batch, rows):
    return Batch(batch.pixels[rows], batch.labels[rows], batch.ids[rows])


ATTACKS = {
    "linf": PGD(within=Linf("12/255"), restarts=2),
    "l2": PGD(within=L2(0.6), restarts=2),
    "patch": PGD(within=Patch(width=3), steps=30),
    "patch where it looks": PGD(within=Patch(width=3, place="attention"), steps=30),
    "patch in a corner": PGD(within=Patch(width=4, place=(0, 4)), steps=30),
    "margin": PGD(within=Linf("12/255"), loss="margin"),
    "dlr": PGD(within=Linf("12/255"), loss="dlr"),
    "cosine": PGD(within=Linf("12/255"), loss="cosine"),
    "predicted label": PGD(within=Linf("12/255"), label="predicted"),
    "least likely": PGD(within=Linf("48/255"), target="least-likely"),
    "random target": PGD(within=Linf("32/255"), target="random"),
    "one target": PGD(within=Linf("32/255"), target=3),
    "fgsm": fgsm(Linf("16/255")),
    "apgd": APGD(within=Linf("12/255"), steps=20, restarts=2),
    "apgd dlr l2": APGD(within=L2(0.6), steps=20, loss="dlr"),
    "apgd by target": APGD(within=Linf("12/255"), steps=10, loss="dlr-targeted", targets=4, label="predicted"),
    "fab": FAB(within=Linf("12/255"), steps=5, restarts=2),
    "fab by target l2": FAB(within=L2(0.6), steps=5, targets=4),
    "square": Square(within=Linf("24/255"), queries=80),
    "square l2": Square(within=L2(1.2), queries=60, restarts=2, label="predicted"),
}


@pytest.fixture(scope="module", params=ATTACKS)
def attacked(request, victim, few):
    attack = ATTACKS[request.param]
    return attack, run(victim, few, attack)


# ------------------------------------------------------------------------------------------------- the contract, every attack


def test_adversarial_pixels_stay_in_the_set_and_in_range(attacked, few):
    attack, result = attacked
    delta = result.adversarial.double() - few.pixels.double()
    assert attack.within.size(delta).max() <= attack.within.eps + 1e-7
    assert torch.equal(result.distance, attack.within.size(delta))
    assert 0 <= result.adversarial.min() <= result.adversarial.max() <= 1


def test_success_is_what_the_model_says_of_the_returned_pixels(attacked, victim):
    attack, result = attacked
    with torch.no_grad():
        now = victim(result.adversarial).argmax(dim=1)
    assert torch.equal(now, result.adversarial_prediction)
    assert torch.equal(result.success, result.changed_in_restart.any(dim=0))
    assert (now[result.success] != result.clean_prediction[result.success]).all()
    if isinstance(getattr(attack, "target", None), int):
        assert (now[result.success] == attack.target).all()
    assert 0.02 < result.success.float().mean() < 1


def test_a_failed_example_comes_back_clean(attacked, few):
    _, result = attacked
    assert (~result.success).any()
    assert torch.equal(result.adversarial[~result.success], few.pixels[~result.success])
    assert (result.distance[~result.success] == 0).all()


def test_results_do_not_depend_on_batch_or_neighbours(attacked, few, victim):
    attack, result = attacked
    small = run(victim, few, attack, batch_size=7)
    part = run(victim, take(few, np.arange(40, 60)), attack)
    for other, rows in ((small, slice(None)), (part, slice(40, 60))):
        assert torch.equal(result.success[rows], other.success)
        assert torch.equal(result.adversarial_prediction[rows], other.adversarial_prediction)
        assert torch.equal(result.distance[rows] > 0, other.distance > 0)


def test_results_do_not_depend_on_the_order(attacked, few, victim):
    attack, result = attacked
    order = np.random.default_rng(0).permutation(96)
    shuffled = run(victim, take(few, order), attack)
    assert torch.equal(result.success[order], shuffled.success)
    assert torch.equal(result.adversarial_prediction[order], shuffled.adversarial_prediction)


def test_in_float64_the_pixels_themselves_do_not_depend_on_the_batch(pair, few):
    model = pair[1].classifier().double()
    wide = few._replace(pixels=few.pixels.double())
    for attack in (ATTACKS["linf"], ATTACKS["l2"]):
        a, b = run(model, wide, attack, batch_size=96), run(model, wide, attack, batch_size=11)
        assert (a.adversarial - b.adversarial).abs().max() < 1e-9


def test_in_float32_the_share_of_pixels_that_depend_on_the_batch_is_small(victim, few, record_property):
    a, b = (run(victim, few, ATTACKS["linf"], batch_size=size) for size in (96, 11))
    share = float((a.adversarial != b.adversarial).double().mean())
    record_property("share of differing pixels", share)
    assert share < 0.01


def test_a_zero_budget_changes_nothing_and_costs_nothing(victim, few):
    for within in (Linf(0), L2(0), Patch(eps=0, width=2)):
        result = run(victim, few, PGD(within=within))
        assert torch.equal(result.adversarial, few.pixels)
        assert success_rates(result)["asr_change"]["value"] == 0
        assert result.backwards.sum() == 0


def test_a_larger_budget_fools_more(victim, few):
    rates = [run(victim, few, PGD(within=Linf(f"{e}/255"))).success.float().mean() for e in (2, 8, 24, 64)]
    assert rates == sorted(rates)
    assert rates[0] < 0.15
    assert rates[-1] > 0.9


def test_fgsm_is_one_step_of_pgd_from_the_image_itself(victim, few):
    x, y = few.pixels, few.labels
    leaf = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(torch.nn.functional.cross_entropy(victim(leaf), y, reduction="sum"), leaf)
    by_hand = (x + 8 / 255 * grad.sign()).clamp(0, 1)
    result = run(victim, few, fgsm(Linf("8/255")))
    assert result.success.any()
    assert torch.allclose(result.adversarial[result.success], by_hand[result.success], atol=1e-6)


def test_the_model_and_the_global_stream_are_left_as_they_were(pair, few):
    model = pair[1].classifier()
    model.train()
    model.model.blocks[0].eval()
    model.model.head.weight.requires_grad_(False)
    model.model.head.bias.grad = torch.ones(10)
    modes, wants = [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]
    before = {k: v.clone() for k, v in model.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    run(model, few, PGD(within=Patch(width=2, place="attention"), steps=2))
    assert [m.training for m in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == wants
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(model.model.head.bias.grad, torch.ones(10))
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_forwards_are_spent_on_the_standing_only(victim, few):
    result = run(victim, few, PGD(within=Linf("48/255"), steps=20), batch_size=32)
    assert result.forwards[result.success].float().mean() < 12  # of 23
    stood = result.forwards[~result.success]
    assert set(stood.tolist()) <= {22, 23}  # clean, 20 steps and a last look; the first batch is asked twice
    assert (result.backwards[~result.success] == 20).all()


def test_an_example_fooled_at_its_start_costs_one_forward_more_than_looking(victim, few):
    result = run(victim, few, PGD(within=Linf(1.0), steps=100), batch_size=8)
    at_once = result.backwards == 0
    assert at_once.any()
    assert result.forwards[at_once].max() <= 4  # clean (twice in the first batch), start, judgement


# ------------------------------------------------------------------------------------------------- runs and budgets


def test_the_fast_protocol_finds_the_union_of_the_runs(victim, few):
    attack = PGD(within=Linf("8/255"), restarts=4, steps=5)
    fast, paper = (run(victim, few, attack, protocol=p) for p in ("fast", "paper"))
    assert paper.changed_in_restart.shape == (4, 96)
    assert torch.equal(fast.success, paper.changed_in_restart.any(dim=0))
    assert fast.forwards.sum() < paper.forwards.sum()
    assert paper.changed_in_restart.float().mean() <= paper.success.float().mean()


def test_a_sweep_contains_its_smaller_budgets_and_misses_nothing(victim, few):
    attacks = [PGD(within=Linf(f"{e}/255"), steps=10) for e in (4, 8, 16, 32)]
    args = (victim, few.pixels, few.labels, attacks)
    fast, paper = (engine.sweep(*args, ids=few.ids, protocol=p) for p in ("fast", "paper"))
    for i, (a, b) in enumerate(zip(fast, paper)):
        assert (a.success | ~b.success).all()  # whatever an independent attack breaks is broken
        assert a.distance.max() <= attacks[i].within.eps + 1e-7
        if i:
            assert (a.success | ~fast[i - 1].success).all()
    assert sum(r.forwards.sum() for r in fast) < sum(r.forwards.sum() for r in paper)


def test_a_sweep_looks_at_clean_images_once_and_keeps_what_it_saw(victim, few):
    """Fewer forwards, the same verdicts and flags as budget after budget by hand."""
    attacks = [PGD(within=Linf(f"{e}/255"), steps=5) for e in (4, 12)]
    unsteady = Returns(lambda x: victim(x).softmax(dim=1))
    small, large = engine.sweep(unsteady, few.pixels, few.labels, attacks, ids=few.ids)
    rest = np.flatnonzero(~small.success.numpy())
    by_hand = run(unsteady, take(few, rest), attacks[1])
    assert torch.equal(large.success[rest], by_hand.success)
    assert torch.equal(large.adversarial_prediction[rest], by_hand.adversarial_prediction)
    assert large.flags == by_hand.flags != ()
    assert set((by_hand.forwards - large.forwards[rest]).tolist()) <= {1, 2}  # the looks, two in the first batch


def test_anybodys_attack_is_judged_by_the_same_rules(victim, few):
    def strong(model, x, y):
        leaf = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(torch.nn.functional.cross_entropy(model(leaf), y), leaf)
        return (x + 16 / 255 * grad.sign()).clamp(0, 1)

    ours = run(victim, few, fgsm(Linf("16/255")))
    theirs = run(victim, few, strong, within=Linf("16/255"))
    assert torch.equal(theirs.success, ours.success)
    cheating = run(victim, few, lambda m, x, y: 1 - x, within=Linf("16/255"))  # noqa: ARG005
    assert not cheating.success.any()
    assert "96 of 96 returned images lie outside" in cheating.flags[0]


# ------------------------------------------------------------------------------------------------- eight bits


def test_eight_bit_images_are_adversarial_as_bytes(data_root, tmp_path):
    """Real CIFAR-10 pixels lie on the grid; so do the returned ones, inside the ball in whole 255ths."""
    from antiphase.data import load
    from antiphase.training import TrainConfig
    from antiphase.training.loop import train

    sets = (load("cifar10", "train", root=data_root).subset(1000), load("cifar10", "test", root=data_root).subset(100))
    model = train(ViTConfig(width=32, heads=2), TrainConfig(epochs=2), *sets, tmp_path / "run").classifier()
    few = sets[1].all
    plain, result = (run(model, few, PGD(within=Linf("8/255")), eight_bit=bits) for bits in (False, True))
    assert result.success.sum() >= 0.9 * plain.success.sum() > 10
    steps = (result.adversarial.double() - few.pixels.double()) * 255
    assert (steps - steps.round()).abs().max() < 1e-4
    assert steps.round().abs().max() <= 8
    with torch.no_grad():
        reread = model((result.adversarial * 255).round().byte().float() / 255).argmax(dim=1)
    assert torch.equal(reread, result.adversarial_prediction)


@given(st.integers(0, 255), st.floats(-1, 1), st.integers(0, 16))
def test_eight_bit_pixels_are_on_the_grid_and_inside_the_set(original, move, budget):
    x = torch.tensor([[[[original / 255]]]])
    adv = Linf(f"{budget}/255").project(x + move, x).clamp(0, 1)
    for within in (Linf(f"{budget}/255"), L2(f"{budget}/255")):
        rounded = to_eight_bits(adv, x, within)
        assert within.size(rounded.double() - x.double()) <= budget / 255 + 1e-7
        assert abs(float(rounded * 255) - round(float(rounded * 255))) < 1e-3


# ------------------------------------------------------------------------------------------------- losses and geometry


def test_margin_is_right_when_every_logit_is_negative():
    assert margin(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([0])).item() == 1.0
    assert margin(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([2])).item() == -2.0


def test_dlr_does_not_see_the_scale_of_the_logits():
    logits, y = torch.randn(5, 6, dtype=torch.float64), torch.arange(5)
    assert torch.allclose(LOSSES["dlr"](logits, y), LOSSES["dlr"](100 * logits, y))
    with pytest.raises(InputError, match="at least 3 classes"):
        LOSSES["dlr"](logits[:, :2], y.clamp(max=1))


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_rises_as_the_label_becomes_less_likely(name):
    y = torch.tensor([1])
    values = [LOSSES[name](torch.tensor([[0.0, z, 0.5, 0.2]]), y).item() for z in (3.0, 1.0, -1.0)]
    assert values == sorted(values)


images = st.integers(0, 2**32).map(
    lambda s: torch.rand(3, 2, 4, 4, generator=torch.Generator().manual_seed(s), dtype=torch.float64)
)


@settings(max_examples=40, deadline=None)
@given(images, images, st.floats(0.001, 1.0))
def test_projection_lands_inside_and_moves_nothing_that_is_inside(x, adv, eps):
    for within in (Linf(eps), L2(eps)):
        once = within.project(adv, x)
        assert within.size(once - x).max() <= eps + 1e-12
        assert torch.allclose(within.project(once, x), once, atol=1e-12)
        clamped = once.clamp(0, 1)
        assert within.size(clamped - x).max() <= eps + 1e-12
        assert within.size(within.ascent(adv - 0.5)).max() <= 1 + 1e-9


def test_random_starts_fill_the_ball():
    ids = np.arange(4000)
    linf = Linf(0.1).start((0, "start", 0), ids, (1, 2, 2))
    assert abs(linf).max() <= 0.1
    assert abs(linf.mean()) < 0.002
    l2 = np.sqrt((L2(0.5).start((0, "start", 0), ids, (1, 2, 2)) ** 2).sum(axis=(1, 2, 3)))
    assert l2.max() <= 0.5
    assert np.mean(l2 < 0.25) == pytest.approx(0.5**4, abs=0.015)  # uniform in volume


def test_patches_change_their_square_and_nothing_else(victim, few):
    result = run(victim, few, PGD(within=Patch(width=3), steps=20))
    moved = (result.adversarial != few.pixels).any(dim=1)[result.success]  # (k, 8, 8)
    rows, columns = moved.any(dim=2).sum(dim=1), moved.any(dim=1).sum(dim=1)
    assert (rows <= 3).all()
    assert (columns <= 3).all()
    places = {tuple(torch.nonzero(m)[0].tolist()) for m in moved}
    assert len(places) > 5  # by chance, not always the same


def test_an_attention_aware_patch_lies_where_the_model_looks(victim, few):
    corners = most_attended(victim, few.pixels, 2)
    with torch.no_grad(), taps(victim) as record:
        victim(few.pixels)
    (maps,) = record.values()
    seen = maps.combined[:, :, 0, 1:].abs().mean(dim=1).reshape(-1, 4, 4)
    for (top, left), map_ in zip(corners.tolist(), seen):
        assert map_[min(top // 2, 3), min(left // 2, 3)] >= 0.5 * map_.max()


# ------------------------------------------------------------------------------------------------- refusals and red flags


class Returns(torch.nn.Module):
    """A model that answers what it is told, with a gradient path to the pixels."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        return self.answer(x)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"x": lambda x: x * 255}, "expected \\[0,1\\]"),
        ({"x": lambda x: x - 0.5}, "expected \\[0,1\\]"),
        ({"x": lambda x: x * float("nan")}, "nan"),
        ({"x": lambda x: (x * 255).byte()}, "uint8"),
        ({"x": lambda x: x[0]}, "shape"),
        ({"x": lambda x: x[:0], "y": lambda y: y[:0]}, "n at least 1"),
        ({"y": lambda y: y + 10}, "out of range for a model of 10 classes"),
        ({"y": lambda y: y - 1}, "label -1|out of range"),
        ({"y": lambda y: y[:-1]}, "labels have shape"),
        ({"y": lambda y: y.float()}, "float32"),
        ({"attack": PGD(within=L2(9))}, "more than sqrt\\(64\\) = 8"),
        ({"attack": PGD(within=Patch(width=9))}, "9 x 9"),
        ({"attack": PGD(within=Patch(width=4, place=(6, 0)))}, "at \\(6, 0\\)"),
        ({"attack": PGD(within=Linf(0.1), target=12)}, "label 12 is out of range"),
    ],
)
def test_what_cannot_be_attacked_is_refused_by_name(change, named, victim, few):
    keep = lambda value: value  # noqa: E731
    x, y = change.get("x", keep)(few.pixels), change.get("y", keep)(few.labels)
    with pytest.raises(InputError, match=named):
        engine.run(victim, x, y, change.get("attack", PGD(within=Linf(0.1), steps=1)))


def test_a_model_left_in_train_mode_is_refused_only_if_that_matters(victim, few):
    noisy = torch.nn.Sequential(victim, torch.nn.Dropout(0.5)).train()
    with pytest.raises(InputError, match=r"Dropout\) is in train mode"):
        run(noisy, few, PGD(within=Linf(0.1), steps=1))
    normed = torch.nn.Sequential(torch.nn.BatchNorm2d(1), victim)
    with pytest.raises(InputError, match=r"BatchNorm2d\) is in train mode"):
        run(normed.train(), few, PGD(within=Linf(0.1), steps=1))
    frozen = normed.eval()
    run(frozen, few, PGD(within=Linf(0.1), steps=1))
    assert not frozen[0].training


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (lambda v: lambda x: v(x).softmax(dim=1), "probabilities, not logits"),
        (lambda v: lambda x: v(x) + 1e-3 * torch.rand(len(x), 10), "differently when asked twice"),
        (lambda v: lambda x: v((x * 8).round() / 8 + 0 * x), "exactly zero"),
        (lambda v: lambda x: v(x) * (1 + 0 * x.flatten(1).sum(1, keepdim=True).sub(1e9).log()), "not a number"),
    ],
)
def test_red_flags_are_part_of_the_result(answer, named, victim, few):
    result = run(Returns(answer(victim)), few, PGD(within=Linf("4/255"), steps=3))
    assert any(named in flag for flag in result.flags), result.flags


def test_an_honest_attack_raises_no_flag(victim, few):
    attack = PGD(within=Linf("12/255"))
    assert run(victim, few, attack).flags == ()
    assert engine.strength_flags(victim, few.pixels, few.labels, attack) == []


def test_a_misled_attack_fails_at_a_huge_budget(victim, few):
    masked = Returns(lambda x: victim((x * 2).round() / 2 + 0 * x))
    flags = engine.strength_flags(masked, few.pixels, few.labels, PGD(within=Linf("4/255")))
    assert "huge budget" in flags[0]


def test_a_larger_budget_that_is_not_stronger_is_flagged():
    assert order_flags([0.1, 0.4, 0.3, 0.9]) == [
        [],
        [],
        ["a larger budget was not stronger: success 0.300 after 0.400"],
        [],
    ]


def test_noise_that_beats_the_gradient_is_flagged(victim, few):
    backwards = Returns(lambda x: -victim(x.detach()) + 2 * victim(x.detach()) - 0 * x.flatten(1).sum(1, keepdim=True))
    result = run(backwards, few, PGD(within=Linf("64/255"), steps=3))
    assert any("random starts alone" in flag for flag in result.flags)


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
