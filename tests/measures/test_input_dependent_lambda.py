"""Layers whose lambda depends on the input, by token and head or by head alone, through taps and every family of measures."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from timm.layers import DiffAttention
from torch import nn

from antiphase.config import InputError
from antiphase.measures.alignment import align, finite_alignment
from antiphase.measures.branch_pairs import combined_energy
from antiphase.measures.cancellation import cancellation
from antiphase.measures.correlation import correlation
from antiphase.measures.jacobians_forward import branch_alignment, exact_alignment, gram_exact
from antiphase.measures.lipschitz import draw, l_sample
from antiphase.measures.perturbations import perturbed
from antiphase.measures.residual_stream import propagation
from antiphase.models import Differential, ViTConfig
from antiphase.models.adapters import ADAPTERS, adapter, check, read
from antiphase.models.attention import DifferentialAttention
from antiphase.models.taps import taps
from antiphase.models.vit import build
from antiphase.theory.collect import collect
from tests.measures.doubled import doubled

EPS = 8 / 255
LAYER = "model.blocks.0.attn"


class GatedAttention(DifferentialAttention):
    """Differential attention with lambda = sigmoid(x W), one per token and head, or its mean over the tokens."""

    def __init__(self, width, heads, *, per_token=True):
        super().__init__(width, heads, lambda_init=0.8, learned=False, head_norm=True, gain=0.2)
        self.gate, self.per_token = nn.Linear(width, heads), per_token

    def lam(self, x):
        lam = self.gate(x).sigmoid().transpose(1, 2)[..., None]  # (B, h, N, 1)
        return lam if self.per_token else lam.mean(dim=2, keepdim=True)

    def forward(self, x, **_):
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        first, second = (
            (a @ b.mT / a.shape[-1] ** 0.5).softmax(-1) for a, b in zip(q.chunk(2, dim=-1), k.chunk(2, dim=-1))
        )
        return self.finish((first - self.lam(x) * second) @ v)


@pytest.fixture(autouse=True)
def _gated_layers_are_read():
    @adapter(GatedAttention)
    def _gated(module, x, **kwargs):
        return replace(ADAPTERS[DiffAttention](module, x, **kwargs), lam=module.lam(x))

    yield
    ADAPTERS.pop(GatedAttention)


def gated_model(*, per_token=True):
    config = ViTConfig(patch=4, width=16, heads=4, attention=(Differential(),))
    model = build(config, shape=(1, 8, 8), classes=10, seed=0)
    torch.manual_seed(0)
    layer = GatedAttention(16, 2, per_token=per_token)
    with torch.no_grad():
        layer.qkv.weight.mul_(5)
        layer.gate.weight.mul_(5)
    model.model.blocks[0].attn = layer
    return model.double().eval()


@pytest.fixture
def few(digits):
    return doubled(digits[1].subset(5))


def maps_of(model, pixels):
    with taps(model) as record, torch.no_grad():
        model(pixels)
    return record[LAYER]


def squared(a):
    """(B, h, ...) -> (B, h): squared norms"""
    return a.flatten(2).pow(2).sum(-1).numpy()


def test_taps_read_a_lambda_of_every_token_and_head(few):
    model = gated_model()
    check(model.model.blocks[0].attn, torch.randn(2, 5, 16, dtype=torch.float64), tolerance=1e-12)
    maps = maps_of(model, few.all.pixels)
    assert maps.lam.shape == (5, 2, 5, 1)
    assert maps.lam.std(dim=2).min() > 1e-3
    assert torch.allclose(maps.combined.sum(-1), 1 - maps.lam[..., 0], atol=1e-12)


def test_a_lambda_of_another_shape_is_refused():
    layer = gated_model().model.blocks[0].attn
    layer.lam = lambda x: torch.ones(x.shape[1], dtype=x.dtype)
    with pytest.raises(InputError, match=r"lambda of shape \(5,\) does not broadcast to \(2, 2, 5, 1\)"):
        read(layer, torch.randn(2, 5, 16, dtype=torch.float64))


def test_lemma_1_holds_for_jacobians_with_the_gradient_of_lambda_itself(few):
    """R1 without chance: lambda is part of the second map, so J_DA = J1 - J(lambda A2) exactly."""
    model = gated_model()
    (layer,) = exact_alignment(model, few)
    da = gram_exact(model, few, lambda record: {name: (maps.combined,) for name, maps in record.items()})[LAYER]
    assert np.all(layer.lam == 1)
    assert combined_energy(*layer.means, layer.lam) == pytest.approx(da[:, :, 0, 0, 0], rel=1e-9)
    assert layer.stacked.amplification[:, 0] == pytest.approx(
        np.sqrt(da.sum(axis=(1, 2, 3, 4)) / layer.n1.sum(axis=(1, 2))), rel=1e-9
    )
    (probed,) = align(model, few, "R1", probes=4)
    assert np.isfinite(probed.cos).all()


def test_lemma_1_holds_for_finite_changes(few):
    """R3 and cancellation: the change of A1 - lambda A2 follows from n1, n2 and ip."""
    model, batch = gated_model(), few.all
    (layer,) = finite_alignment(model, few, eps=EPS)
    moved = batch.pixels + draw(batch.ids, (1, 8, 8), 0, EPS, 0)
    change = maps_of(model, moved).combined - maps_of(model, batch.pixels).combined
    assert combined_energy(*layer.means, layer.lam) == pytest.approx(squared(change), rel=1e-9)

    found = {c.quantity: c for c in cancellation(model, few, perturbations=("sign",), eps=EPS, batch_size=2)}
    clean, after = (maps_of(model, p) for p in (batch.pixels, perturbed(model, batch, "sign", EPS).pixels))
    assert found["maps"].combined == pytest.approx(squared(after.combined - clean.combined), rel=1e-9)
    assert found["values"].combined == pytest.approx(squared(after.mixed - clean.mixed), rel=1e-9)
    assert (found["maps"].alpha <= 1).all()
    assert {row["lambda"] for row in found["maps"].rows(few.ids)} == {1.0}


def test_correlation_subtracts_each_row_with_its_own_lambda(few):
    model = gated_model()
    clean = correlation(model, few, perturbations=("blur",), batch_size=2)[0]
    maps = maps_of(model, few.all.pixels)
    below = (maps.combined < 0).double().mean(dim=(2, 3))
    assert clean.statistics["negative_share"] == pytest.approx(below.numpy())
    lam = maps.lam.mean(dim=(2, 3)).numpy()
    assert clean.lam == pytest.approx(lam)
    rows = clean.rows(few.ids)
    assert [row["lambda"] for row in rows] == pytest.approx(lam.flatten())
    assert clean.summary()["lambda"] == pytest.approx(lam.mean())


@pytest.mark.parametrize("reading", ["R6-energy", "R8"])
def test_readings_that_need_one_lambda_per_head_say_so(reading, few):
    with pytest.raises(InputError, match=f"needs one lambda per head, and that of {LAYER} differs between tokens"):
        align(gated_model(), few, reading)


def test_the_audit_needs_one_lambda_per_layer(few):
    for per_token in (True, False):
        with pytest.raises(InputError, match="the audit needs one lambda per layer"):
            collect(gated_model(per_token=per_token), None, few, probes=2, draws=1, steps=2)


def test_a_lambda_of_each_image_and_head_stays_outside_the_norms(few):
    model = gated_model(per_token=False)
    lam = maps_of(model, few.all.pixels).lam[..., 0, 0].numpy()
    whole, parts = (branch_alignment(model, few, probes=4, batch_size=size)[0] for size in (5, 2))
    for layer in (whole, parts, finite_alignment(model, few, batch_size=2)[0]):
        assert layer.lam == pytest.approx(lam)
        assert [row["lambda"] for row in layer.rows(few.ids)] == pytest.approx(lam.flatten())
        assert layer.kappa == pytest.approx(lam * layer.rho)
    assert whole.ip == pytest.approx(parts.ip, rel=1e-9)
    energy = combined_energy(*whole.means, whole.lam)
    assert combined_energy(*whole.stacked.means, whole.stacked.lam)[:, 0] == pytest.approx(energy.sum(axis=1))
    near = align(model, few, "R8")[0]
    assert near.lam.shape == (5, 2)
    assert not np.allclose(near.lam, lam, rtol=1e-6)  # taken at a point near the image, as the maps are
    (changed, *_) = cancellation(model, few, perturbations=("sign",), batch_size=1)
    assert changed.lam == pytest.approx(lam)


def test_what_does_not_split_the_branches_takes_any_lambda(few):
    model = gated_model()
    assert np.isfinite(l_sample(model, few, draws=2)[0].ratios).all()
    (curve,) = propagation(model, few, perturbations=("sign",))
    assert np.isfinite(curve.counterfactual).all()  # lambda set to zero for every token
