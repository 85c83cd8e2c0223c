"""Penalties against computations of their own in float64: values by full Jacobians, gradients by difference quotients."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from antiphase.config import InputError
from antiphase.data.imageset import Batch
from antiphase.models import (
    BoundedDifferential,
    Differential,
    DifferentialV2,
    Dint,
    GroupedDifferential,
    LowRankDifferential,
    Softmax,
    ViTConfig,
)
from antiphase.models.adapters import read
from antiphase.models.fast_path import fast_path
from antiphase.models.taps import look, look_at_what_is_read
from antiphase.models.vit import build
from antiphase.training import Penalty, TrainConfig
from antiphase.training.augment import noisy
from antiphase.training.penalties import penalty_term
from antiphase.training.penalty_syntax import parse_penalty, penalty_text
from antiphase.training.tasks import ClassificationTask, classification_objective

TERMS = ("amplification", "kappa", "alignment", "jasmin", "noise-change", "attack-change", "gradient")
OF_BRANCHES = TERMS[:3]


def model_of(attention, depth=1, seed=0):
    """Weights large enough for maps that are far from uniform, and branches that differ."""
    config = ViTConfig(patch=4, width=16, heads=4, depth=depth, attention=(attention,))
    model = build(config, shape=(1, 8, 8), classes=10, seed=seed).double()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for block in model.model.blocks:
            for parameter in block.attn.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype))
    return model


@pytest.fixture
def batch():
    draw = torch.Generator().manual_seed(1)
    return Batch(torch.rand(3, 1, 8, 8, generator=draw, dtype=torch.float64), torch.tensor([0, 4, 7]), np.arange(3))


def first_row_jacobians(model, pixels):
    """Of the class token's row of A1, lambda A2 and A1 - lambda A2 by the layer's input, for one image: (3, h, N, N D)"""
    layer, inputs = model.model.blocks[0].attn, []
    hook = layer.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach()))
    model(pixels[None])
    hook.remove()
    (x,) = inputs

    def maps(x):
        both = read(layer, x)
        return torch.stack([both.signal[0, :, 0], (both.lam * both.noise)[0, :, 0], both.combined[0, :, 0]])

    jacobian = torch.autograd.functional.jacobian(maps, x)
    return jacobian.flatten(3)  # (3, h, N, N D)


@pytest.mark.parametrize(
    "attention",
    [
        Differential(),
        BoundedDifferential(),
        GroupedDifferential(ratio=2),
        LowRankDifferential(rank=2),
        DifferentialV2(),
    ],
    ids=lambda a: type(a).__name__,
)
def test_penalties_on_branches_are_those_of_full_jacobians(attention, batch):
    model = model_of(attention)
    logs, kappas, cosines = [], [], []
    for pixels in batch.pixels:
        j1, j2, whole = (j.flatten(1) for j in first_row_jacobians(model, pixels))
        logs.append((whole.norm(dim=1) / j1.norm(dim=1)).log())
        if not isinstance(
            attention, DifferentialV2
        ):  # whose lambda moves too: J2 alone is not the derivative of lambda A2
            kappas.append(j2.norm(dim=1) / j1.norm(dim=1))
            cosines.append((j1 * j2).sum(1) / j1.norm(dim=1) / j2.norm(dim=1))
    value = {name: penalty_term(Penalty(term=name, above=0.0), model, batch).item() for name in OF_BRANCHES}
    assert value["amplification"] == pytest.approx(float(torch.stack(logs).mean()), abs=1e-5)
    if kappas:
        assert value["kappa"] == pytest.approx(float(torch.stack(kappas).mean()), rel=1e-6)
        assert value["alignment"] == pytest.approx(1 - float(torch.stack(cosines).mean()), rel=1e-6)


@pytest.mark.parametrize("factor", [1.0, 1e4])
def test_branches_that_cancel_and_maps_that_no_longer_react_leave_every_penalty_a_number(factor, batch):
    """lambda = 1 and A2 = A1, in float32: nothing is left. With huge weights rows are one-hot, and no map has a derivative."""
    attention = LowRankDifferential(rank=2, lambda_init=1.0, learned=False, out_scale="fixed")
    model = build(ViTConfig(patch=4, width=16, heads=4, attention=(attention,)), shape=(1, 8, 8), classes=10)
    small = batch._replace(pixels=batch.pixels.float())
    with torch.no_grad():
        model.model.blocks[0].attn.qkv.weight.mul_(factor)
    for term in (*OF_BRANCHES, "jasmin"):
        value = penalty_term(Penalty(term=term), model, small)
        slopes = torch.autograd.grad(value, [model.model.blocks[0].attn.qkv.weight])
        assert value.isfinite()
        assert all(slope.isfinite().all() for slope in slopes), term
    assert penalty_term(Penalty(term="amplification"), model, small).item() >= 0.5 * math.log(1e-6) - 1e-6


def test_the_hinge_costs_nothing_below_it(batch):
    assert penalty_term(Penalty(term="kappa", above=100.0), model_of(Differential()), batch).item() == 0


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize(
    ("attention", "depth"), [(Differential(learned=False), 1), (Differential(learned=False), 2), (DifferentialV2(), 1)]
)
def test_the_gradient_of_every_penalty_is_its_difference_quotient(term, attention, depth, batch):
    """In a random direction of all weights. (A learned lambda is a float32, too coarse for a quotient; V2's is not.)"""
    penalty = Penalty(term=term, above=0.0)  # the hinge is open
    model = model_of(attention, depth)
    weights = [p for p in model.parameters() if p.requires_grad]
    draw = torch.Generator().manual_seed(2)
    way = [torch.randn(w.shape, generator=draw, dtype=w.dtype) for w in weights]
    slopes = torch.autograd.grad(penalty_term(penalty, model, batch), weights, allow_unused=True)
    slope = sum(float((g * v).sum()) for g, v in zip(slopes, way) if g is not None)

    def moved(step):
        with torch.no_grad():
            for weight, v in zip(weights, way):
                weight.add_(step * v)
        value = penalty_term(penalty, model, batch).item()
        with torch.no_grad():
            for weight, v in zip(weights, way):
                weight.sub_(step * v)
        return value

    step = 1e-6
    assert slope == pytest.approx((moved(step) - moved(-step)) / (2 * step), rel=2e-4, abs=1e-8)
    assert abs(slope) > 1e-6


def test_the_softmax_penalty_bounds_the_largest_singular_value_of_every_row(batch):
    model = model_of(Softmax())
    (maps,) = look_at_what_is_read(model, batch.pixels).values()
    largest = []
    for image in maps.signal:
        rows = image.flatten(0, 1)
        norms = [torch.linalg.matrix_norm(torch.diag(p) - torch.outer(p, p), ord=2) for p in rows]
        two = rows.sort(dim=-1, descending=True).values[:, :2]
        bounds = two[:, 0] * (1 - two[:, 0] + two[:, 1])
        assert all(norm <= bound + 1e-12 for norm, bound in zip(norms, bounds))
        largest.append(math.log(float(bounds.max())))
    assert penalty_term(Penalty(term="jasmin"), model, batch).item() == pytest.approx(np.mean(largest))


@pytest.mark.parametrize("attention", [Softmax(), Differential(), Dint()], ids=lambda a: type(a).__name__)
def test_the_change_of_mixed_values_is_what_reaches_the_class_token(attention, batch):
    """By the maps of all tokens, at the class token's row; the noise moves every pixel by eps unless the border is in the way."""
    model, penalty = model_of(attention), Penalty(term="noise-change", eps=4 / 255)
    value = penalty_term(penalty, model, batch, seed=5, epoch=2).item()
    assert value != penalty_term(penalty, model, batch, seed=5, epoch=3).item()
    seen = []
    hook = model.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    penalty_term(penalty, model, batch, seed=5, epoch=2)
    hook.remove()
    before, after = (look(model, x)["model.blocks.0.attn"].mixed for x in seen)
    inside = (seen[0] > 4 / 255) & (seen[0] < 1 - 4 / 255)
    assert torch.allclose((seen[1] - seen[0])[inside].abs(), torch.tensor(4 / 255, dtype=torch.float64))
    if not isinstance(attention, Dint):  # the mean over its rows reads all tokens
        before, after = before[:, :, :1], after[:, :, :1]
    change = (after - before).flatten(2).norm(dim=2) / before.flatten(2).norm(dim=2)
    assert value == pytest.approx(float(change.mean()))


def test_the_gradient_penalty_is_the_rise_of_the_loss_to_first_order(batch):
    model, eps = model_of(Differential()), 1e-4
    x = batch.pixels.clone().requires_grad_()
    loss = cross_entropy(model(x), batch.labels, reduction="none")
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    worst = cross_entropy(model(batch.pixels + eps * gradient.sign()), batch.labels, reduction="none")
    rise = float((worst - loss).mean())
    assert penalty_term(Penalty(term="gradient", eps=eps), model, batch).item() == pytest.approx(rise, rel=1e-2)


def test_what_is_read_is_the_first_row_of_the_last_layer_and_all_of_the_others(batch):
    model = model_of(Differential(), depth=2)
    everything = look(model, batch.pixels)
    with fast_path(model):
        first, last = look_at_what_is_read(model, batch.pixels).values()
    assert torch.allclose(first.mixed, everything["model.blocks.0.attn"].mixed)
    assert torch.allclose(last.mixed, everything["model.blocks.1.attn"].mixed[:, :, :1])


def test_a_penalty_is_added_to_the_loss_of_the_share_that_it_looks_at(digits):
    model = build(ViTConfig(patch=2, width=32, heads=4, attention=(Differential(),)), shape=(1, 8, 8), classes=10)
    batch = digits[0].batch(np.arange(32))
    few = digits[0].batch(np.arange(8))
    penalty = Penalty(term="alignment", weight=0.5, share=0.25)
    plain, _ = classification_objective(TrainConfig())(model, batch, epoch=0)
    penalised, correct = classification_objective(TrainConfig(penalty=penalty))(model, batch, epoch=0)
    assert float(penalised - plain) == pytest.approx(0.5 * float(penalty_term(penalty, model, few)), abs=1e-5)
    assert len(correct) == 32


def test_pixel_noise_belongs_to_the_image_and_the_epoch(digits):
    one, few = digits[0].batch(np.array([5])), digits[0].batch(np.array([9, 5]))
    own = noisy(one.pixels, one.ids, 0.1, seed=3, epoch=1)
    assert torch.equal(noisy(few.pixels, few.ids, 0.1, seed=3, epoch=1)[1], own[0])
    assert not torch.equal(noisy(one.pixels, one.ids, 0.1, seed=3, epoch=2), own)
    assert torch.equal(noisy(one.pixels, one.ids, 0.0, seed=3, epoch=1), one.pixels)
    assert 0 <= float(own.min()) <= float(own.max()) <= 1


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Penalty(term="kapa"), "term='kapa' must be one of amplification"),
        (lambda: Penalty(term="kappa", share=0.0), "share=0.0 must be above 0"),
        (lambda: Penalty(term="gradient", eps=0.0), "eps=0 moves no pixel"),
        (lambda: Penalty(term="kappa", weight=-1.0), "weight=-1.0 must be at least 0"),
        (lambda: parse_penalty("smooth:weight=1"), "penalty 'smooth:weight=1' is not known: write none"),
        (lambda: parse_penalty("kappa:weight"), "penalty option 'weight' needs a value"),
        (lambda: TrainConfig(noise=-0.1), "noise=-0.1 must be at least 0"),
    ],
)
def test_a_penalty_that_makes_no_sense_is_refused(make, named):
    with pytest.raises(InputError, match=named):
        make()


@pytest.mark.parametrize(("attention", "named"), [(Softmax(), "all softmax"), (Dint(), "no closed form for dint")])
@pytest.mark.parametrize("term", OF_BRANCHES)
def test_a_penalty_on_branches_needs_branches(attention, named, term, digits):
    model, config = (
        ViTConfig(patch=2, width=32, heads=4, attention=(attention,)),
        TrainConfig(penalty=Penalty(term=term)),
    )
    with pytest.raises(InputError, match=named):
        ClassificationTask(model, config, *digits)


@pytest.mark.parametrize("text", ["none", "kappa", "noise-change:weight=0.3,eps=4/255", "jasmin:share=0.5"])
def test_a_penalty_is_written_as_it_is_read(text):
    assert penalty_text(parse_penalty(text)) == text
