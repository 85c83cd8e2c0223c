"""Layers whose lambda depends on the input, by token and head or by head alone, through taps and every family of measures."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from timm.layers import DiffAttention
from torch import nn

from antiphase.attacks.losses import cross_entropy
from antiphase.config import InputError
from antiphase.measures.alignment import align, finite_alignment
from antiphase.measures.cancellation import cancellation
from antiphase.measures.correlation import correlation
from antiphase.measures.jacobians_forward import branch_alignment, exact_alignment, gram_exact
from antiphase.measures.jacobians_local import local_moments
from antiphase.measures.jacobians_reverse import loss_alignment
from antiphase.measures.lipschitz import draw, l_sample
from antiphase.measures.perturbations import perturbed
from antiphase.measures.residual_stream import propagation
from antiphase.models import Differential, ViTConfig
from antiphase.models.adapters import ADAPTERS, adapter, check, read
from antiphase.models.attention import DifferentialAttention, DifferentialAttentionV2
from antiphase.models.config import DifferentialV2
from antiphase.models.taps import explicit, look, taps
from antiphase.models.vit import build
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


def v2_model():
    config = ViTConfig(patch=4, width=16, heads=2, attention=(DifferentialV2(),))
    model = build(config, shape=(1, 8, 8), classes=10, seed=0)
    with torch.no_grad():
        for linear in (model.model.blocks[0].attn.qkv, model.model.blocks[0].attn.noise_q):
            linear.weight.mul_(5)
        model.model.blocks[0].attn.lambda_proj.weight.mul_(5)
    return model.double().eval()


MODELS = {"per token": gated_model, "per image": lambda: gated_model(per_token=False), "v2": v2_model}


def jacobians_of(model, x):
    """J1, lambda J2, A2 dlambda and J_DA of one image by the product rule, from autograd's full Jacobians: (h, N, N, pixels)"""

    def parts(pixels):
        maps = look(model, pixels[None])[LAYER]
        return maps.signal[0], maps.noise[0], maps.lam.expand(1, 2, 5, 1)[0], maps.combined[0]

    j1, j2, j_lam, da = (j.flatten(3) for j in torch.func.jacrev(parts)(x))
    _, noise, lam, _ = parts(x)
    return j1, lam[..., None] * j2, noise[..., None] * j_lam, da


@pytest.mark.parametrize("name", MODELS)
def test_the_three_terms_are_those_of_exact_jacobians(name, few):
    """||J_DA||^2 of autograd is what J1, lambda J2 and A2 dlambda make of it, and each of them is autograd's own."""
    model = MODELS[name]()
    (layer,) = exact_alignment(model, few)
    n1, n2, ip = layer.means
    n3, ip1, ip2 = layer.third.means
    lam = np.broadcast_to(layer.lam, n1.shape)
    for i, image in enumerate(few.all.pixels):
        with torch.no_grad():
            j1, j2, j3, da = jacobians_of(model, image)
        for mine, (a, b) in {"n1": (j1, j1), "n2": (j2, j2), "ip": (j1, j2)}.items():
            weighted = {"n1": n1, "n2": lam**2 * n2, "ip": lam * ip}[mine][i]
            assert weighted == pytest.approx((a * b).flatten(1).sum(1).numpy(), rel=1e-9), mine
        for mine, (a, b) in ((n3, (j3, j3)), (ip1, (j1, j3)), (lam * ip2, (j2, j3))):
            assert mine[i] == pytest.approx((a * b).flatten(1).sum(1).numpy(), rel=1e-9)
        assert layer.map_energy[i] == pytest.approx(squared(da[None])[0], rel=1e-9)
        assert torch.allclose(da, j1 - j2 - j3, atol=1e-12)
    assert layer.third.name == "gate"
    assert layer.third_share.min() > 1e-6  # the gate does move here
    assert layer.amplification == pytest.approx(layer.energy * layer.angle * layer.third_factor)
    assert layer.stacked.amplification[:, 0] == pytest.approx(np.sqrt(layer.map_energy.sum(1) / n1.sum(1)), rel=1e-9)


def test_probes_agree_with_exact_jacobians(few):
    model = v2_model()
    (exact,), (probed,) = exact_alignment(model, few), branch_alignment(model, few, probes=512)
    assert probed.map_energy.sum() == pytest.approx(exact.map_energy.sum(), rel=0.1)
    assert probed.third.means[0].sum() == pytest.approx(exact.third.means[0].sum(), rel=0.1)
    (row, *_) = probed.rows(few.ids)
    assert {"n3", "ip13", "ip23", "gate", "gate_share", "mean_lambda"} <= row.keys()
    assert probed.summary()["lambda"] == pytest.approx(maps_of(model, few.all.pixels).lam.mean().item())


def test_reverse_mode_gives_the_gradient_of_the_loss_by_its_three_terms(few):
    """R5: J1'u, lambda J2'u and (A2 dlambda)'u add up to the gradient of the loss through this one layer's map."""
    model, one = v2_model(), few.take(np.array([0]))
    (layer,) = loss_alignment(model, one)
    image = one.all.pixels[0]
    with torch.no_grad():
        j1, j2, j3, _ = jacobians_of(model, image)
    with explicit(model) as record:
        loss = cross_entropy(model(one.all.pixels.requires_grad_()), one.all.labels).sum()
        (u,) = torch.autograd.grad(loss, record[LAYER].signal)
    g1, g2, g3 = (torch.einsum("hnm,hnmp->hp", u[0], j).numpy() for j in (j1, j2, j3))
    assert layer.map_energy[0] == pytest.approx(((g1 - g2 - g3) ** 2).sum(1), rel=1e-9)
    assert layer.third.means[0][0] == pytest.approx((g3**2).sum(1), rel=1e-9)


@pytest.mark.parametrize("coupling", ["branches", "shuffled"])
def test_the_closed_form_of_the_gate_is_what_autograd_gives(coupling):
    """R8: with respect to the layer's own input, 7 tokens of width 24, three heads."""
    torch.manual_seed(1)
    module = DifferentialAttentionV2(24, 3).double()
    with torch.no_grad():
        for linear in (module.qkv, module.noise_q, module.lambda_proj):
            linear.weight.mul_(3)
    x = torch.randn(1, 7, 24, dtype=torch.float64)

    def parts(t):
        maps = read(module, t)
        return maps.signal[0], maps.noise[0], maps.lam[0]

    with torch.no_grad():
        j1, j2, j_lam = (j.flatten(3) for j in torch.func.jacrev(parts)(x))
        _, noise, lam = parts(x)
        moments = local_moments(read(module, x), coupling, gated=True)[0]
    shift = 1 if coupling == "shuffled" else 0
    j2, j3 = (lam[..., None] * j2).roll(shift, 0), (noise[..., None] * j_lam).roll(shift, 0)
    flat = torch.stack([j.flatten(1) for j in (j1, j2, j3)], dim=1)
    assert torch.allclose(moments, flat @ flat.mT, rtol=1e-9, atol=1e-12)


def test_a_gate_whose_form_is_not_known_has_no_closed_form(few):
    with pytest.raises(InputError, match=r"Heads.gate.*use probes"):
        align(gated_model(), few, "R8")
    (layer,) = align(v2_model(), few, "R8")
    assert layer.third.name == "gate"


@pytest.mark.parametrize("name", MODELS)
def test_the_three_terms_hold_for_finite_changes(name, few):
    """R3 and cancellation: the change of A1 - lambda A2 follows from the inner products of d1, d2 and d3."""
    model, batch = MODELS[name](), few.all
    (layer,) = finite_alignment(model, few, eps=EPS)
    moved = batch.pixels + draw(batch.ids, (1, 8, 8), 0, EPS, 0)
    change = maps_of(model, moved).combined - maps_of(model, batch.pixels).combined
    assert layer.map_energy == pytest.approx(squared(change), rel=1e-9)

    found = {c.quantity: c for c in cancellation(model, few, perturbations=("sign",), eps=EPS, batch_size=2)}
    clean, after = (maps_of(model, p) for p in (batch.pixels, perturbed(model, batch, "sign", EPS).pixels))
    assert found["maps"].combined == pytest.approx(squared(after.combined - clean.combined), rel=1e-9)
    assert found["values"].combined == pytest.approx(squared(after.mixed - clean.mixed), rel=1e-9)
    assert found["held"].combined == pytest.approx(squared((after.combined - clean.combined) @ clean.values), rel=1e-9)
    assert (found["maps"].alpha <= 1).all()
    assert 0 < found["maps"].summary()["gate_share"] < 1
    rows = found["maps"].rows(few.ids)
    if name == "per image":
        assert [row["lambda"] for row in rows] == pytest.approx(clean.lam[..., 0, 0].numpy().flatten())
    else:  # lambda is in n2 and ip already
        assert {row["lambda"] for row in rows} == {1.0}
        assert [row["mean_lambda"] for row in rows] == pytest.approx(clean.lam.mean(dim=(2, 3)).numpy().flatten())


def test_a_lambda_that_no_image_changes_has_no_gate(few):
    """One lambda for each head and token, learned and the same for every image: nothing is added to the two branches."""
    model = gated_model()
    fixed = torch.rand(1, 2, 5, 1, dtype=torch.float64)
    model.model.blocks[0].attn.lam = lambda _: fixed
    (layer,) = exact_alignment(model, few)
    assert layer.third is None
    da = gram_exact(model, few, lambda record: {name: (maps.combined,) for name, maps in record.items()})[LAYER]
    assert layer.map_energy == pytest.approx(da[:, :, 0, 0, 0], rel=1e-9)


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


def test_readings_that_need_one_lambda_per_head_say_so(few):
    with pytest.raises(InputError, match=f"needs one lambda per head, and that of {LAYER} differs between tokens"):
        align(gated_model(), few, "R6-energy")


def test_a_lambda_of_each_image_and_head_stays_outside_the_norms(few):
    model = gated_model(per_token=False)
    lam = maps_of(model, few.all.pixels).lam[..., 0, 0].numpy()
    whole, parts = (branch_alignment(model, few, probes=4, batch_size=size)[0] for size in (5, 2))
    for layer in (whole, parts, finite_alignment(model, few, batch_size=2)[0]):
        assert layer.lam == pytest.approx(lam)
        assert [row["lambda"] for row in layer.rows(few.ids)] == pytest.approx(lam.flatten())
        assert layer.kappa == pytest.approx(lam * layer.rho)
    assert whole.ip == pytest.approx(parts.ip, rel=1e-9)
    assert whole.stacked.map_energy[:, 0] == pytest.approx(whole.map_energy.sum(axis=1))
    near = align(model, few, "R1", probes=2)[0]
    assert near.lam.shape == (5, 2)
    assert not np.allclose(near.lam, lam, rtol=1e-6)  # taken at a point near the image, as the maps are
    (changed, *_) = cancellation(model, few, perturbations=("sign",), batch_size=1)
    assert changed.lam == pytest.approx(lam)


def test_what_does_not_split_the_branches_takes_any_lambda(few):
    model = gated_model()
    assert np.isfinite(l_sample(model, few, draws=2)[0].ratios).all()
    (curve,) = propagation(model, few, perturbations=("sign",))
    assert np.isfinite(curve.counterfactual).all()  # lambda set to zero for every token
