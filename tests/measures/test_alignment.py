"""The lens against independent routes: autograd, full Jacobians, singular values, hand-computable cases."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from timm.layers import Attention, DiffAttention
from torch import nn

from antiphase.config import InputError
from antiphase.measures.alignment import READINGS, align, controls
from antiphase.measures.branch_pairs import Alignment, gamma
from antiphase.measures.jacobians_forward import branch_alignment, exact_alignment, gram_exact, map_norms
from antiphase.measures.jacobians_local import local_alignment, local_moments
from antiphase.measures.jacobians_reverse import loss_alignment, projected_alignment, scalar_alignment
from antiphase.measures.lipschitz import at_level, l_sample, l_search
from antiphase.measures.power_iteration import sigma_max
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.adapters import ADAPTERS, adapter, check, read
from antiphase.models.attention import DifferentialAttention, Heads
from antiphase.models.taps import attention_layers, explicit, taps
from antiphase.models.vit import build
from tests.models.encoder import Encoder

DOUBLE = torch.float64


def ours(width=24, heads=2, **kwargs):
    torch.manual_seed(0)
    given = {"lambda_init": 0.8, "learned": True, "head_norm": True, "gain": 0.2} | kwargs
    return DifferentialAttention(width, heads, **given).double().eval()


def layers():
    """Every kind of attention that is read, with q, k, v weights large enough for maps that are far from uniform."""
    torch.manual_seed(0)
    found = {
        "ours": ours(),
        "ours without norm": ours(head_norm=False, learned=False),
        "timm softmax": Attention(24, num_heads=4, qkv_bias=True),
        "timm gated, normed": Attention(24, 4, qk_norm=True, scale_norm=True, gated=True, norm_layer=nn.LayerNorm),
        "timm differential": DiffAttention(24, num_heads=2, depth=1),
        "timm differential, dual": DiffAttention(24, num_heads=2, dual_lambda=True, qk_norm=True, scale_norm=True),
    }
    for layer in found.values():
        with torch.no_grad():
            layer.qkv.weight.mul_(3)
    return {name: layer.double().eval() for name, layer in found.items()}


# ------------------------------------------------------------------------------------------------- taps and adapters


@pytest.mark.parametrize("name", layers())
@pytest.mark.parametrize("mask", ["none", "causal", "added", "added per image"])
def test_the_explicit_path_gives_the_layers_own_output(name, mask):
    x, layer = torch.randn(2, 7, 24, dtype=DOUBLE), layers()[name]
    added = torch.randn(2, 1, 7, 7, dtype=DOUBLE)
    kwargs = {"none": {}, "causal": {"is_causal": True}, "added": {"attn_mask": added[0, 0]}}.get(
        mask, {"attn_mask": added}
    )
    check(layer, x, tolerance=1e-12, **kwargs)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masks", [{}, {"padding"}, {"causal"}, {"padding", "causal"}, {"per head"}])
def test_multihead_attention_is_read_with_its_masks(batch_first, masks):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(24, 4, batch_first=batch_first).double().eval()
    query, key = torch.randn(2, 5, 24, dtype=DOUBLE), torch.randn(2, 7, 24, dtype=DOUBLE)
    kwargs = {}
    if "padding" in masks:
        kwargs["key_padding_mask"] = torch.arange(7).expand(2, 7) >= torch.tensor([[7], [4]])
    if "causal" in masks:
        kwargs["attn_mask"] = torch.ones(5, 7, dtype=torch.bool).triu(1)
    if "per head" in masks:
        kwargs["attn_mask"] = torch.randn(8, 5, 7, dtype=DOUBLE)
    given = (query, key, key) if batch_first else tuple(t.transpose(0, 1) for t in (query, key, key))
    check(layer, *given, tolerance=1e-12, **kwargs)
    theirs = layer(*given, average_attn_weights=False, **kwargs)[1]
    assert torch.allclose(read(layer, *given, **kwargs).signal, theirs, atol=1e-12)


def test_torchs_own_encoder_is_watched_and_measured(digits):
    model, few = Encoder().eval(), digits[1].subset(3)
    x = few.all.pixels
    with torch.no_grad():
        plain = model(x)
        with taps(model) as record:
            assert torch.allclose(model(x), plain, atol=1e-5)
    assert list(record) == ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"]
    assert record["encoder.layers.0.self_attn"].signal.shape == (3, 4, 4, 4)
    exact, probed = (
        exact_alignment(model, few, coupling="pseudo"),
        branch_alignment(model, few, probes=64, coupling="pseudo"),
    )
    for a, b in zip(exact, probed):
        assert (np.abs(a.cos - b.cos) < 4 * b.cos_se).all()


@pytest.mark.parametrize("context", [taps, explicit])
def test_taps_leave_nothing_behind(context, pair):
    model = pair[1].classifier()
    before = {name: (dict(vars(m)), list(m._forward_pre_hooks)) for name, m in model.named_modules()}
    fast = torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(RuntimeError), context(model):
        model(torch.zeros(1, 3, 8, 8))  # a digit has one channel
    after = {name: (dict(vars(m)), list(m._forward_pre_hooks)) for name, m in model.named_modules()}
    assert {n: set(v[0]) for n, v in after.items()} == {n: set(v[0]) for n, v in before.items()}
    assert all(after[n][1] == before[n][1] for n in before)
    assert torch.backends.mha.get_fastpath_enabled() is fast


def test_what_is_read_belongs_together(pair, digits):
    """Rows of A1 and A2 sum to one, those of A1 - lambda A2 to 1 - lambda; mixed, normed and output follow from them."""
    model, x = pair[1].classifier().double(), digits[1].subset(3).all.pixels.double()
    with taps(model) as record, torch.no_grad():
        model(x)
    (maps,) = record.values()
    assert torch.allclose(maps.signal.sum(-1), torch.ones(()).double(), atol=1e-12)
    assert torch.allclose(maps.combined.sum(-1), 1 - maps.lam, atol=1e-6)  # lambda itself is a float32
    assert torch.equal(maps.mixed, maps.combined @ maps.values)
    layer = model.model.blocks[0].attn
    unweighted = maps.normed / (layer.sub_norm.weight.double() * layer.gain)
    assert torch.allclose(
        unweighted.pow(2).mean(-1).sqrt(), torch.ones(()).double(), atol=1e-2
    )  # but for the norm's eps
    assert maps.output.shape == (3, 17, 64)


def test_an_adapter_of_ones_own_is_a_few_lines():
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.to_qkv = nn.Linear(8, 24)

        def forward(self, x):
            q, k, v = self.to_qkv(x).chunk(3, dim=-1)
            return (q @ k.mT / 8**0.5).softmax(-1) @ v

    with pytest.raises(InputError, match="no attention layer"):
        attention_layers(nn.Sequential(Mine()))
    with pytest.raises(InputError, match="no adapter reads"):
        read(Mine(), torch.zeros(1, 2, 8))
    try:

        @adapter(Mine)
        def _mine(module, x):
            q, k, v = (t[:, None] for t in module.to_qkv(x).chunk(3, dim=-1))
            return Heads(q, k, v, norm=nn.Identity(), project=lambda mixed: mixed[:, 0])

        x = torch.randn(2, 5, 8)
        check(Mine(), x)
        assert list(attention_layers(nn.Sequential(Mine()))) == ["0"]

        @adapter(Mine)
        def _wrong(module, x):
            q, k, v = (t[:, None] for t in module.to_qkv(x).chunk(3, dim=-1))
            return Heads(k, q, v, norm=nn.Identity(), project=lambda mixed: mixed[:, 0])

        with pytest.raises(InputError, match="adapter of Mine is wrong"):
            check(Mine(), x)
    finally:
        ADAPTERS.pop(Mine)


# ------------------------------------------------------------------------------------------------- E1, E2, E4


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layer", ["differential", "softmax"])
@pytest.mark.parametrize("coupling", ["branches", "shuffled", "pseudo"])
def test_the_closed_form_is_what_autograd_gives(layer, coupling, causal):
    """N = 13 tokens, D = 24, d = 6: the full Jacobian of every map with respect to the layer's input."""
    module = ours() if layer == "differential" else Attention(24, num_heads=4, qkv_bias=True).double()
    with torch.no_grad():
        module.qkv.weight.mul_(3)
    x = torch.randn(1, 13, 24, dtype=DOUBLE)

    def maps(t):
        found = read(module, t, is_causal=causal)
        if layer == "softmax":
            return found.signal[0, 0::2], found.signal[0, 1::2]
        return found.signal[0], found.noise[0].roll(1, dims=0) if coupling == "shuffled" else found.noise[0]

    moments = local_moments(read(module, x, is_causal=causal), coupling)
    if (layer == "softmax") is not (coupling == "pseudo"):
        assert moments is None
        return
    j1, j2 = (j.flatten(1) for j in torch.autograd.functional.jacobian(maps, x))
    exact = [(a * b).sum(1) for a, b in ((j1, j1), (j2, j2), (j1, j2))]
    for mine, theirs in zip(moments, exact):
        assert torch.allclose(mine[0], theirs, rtol=1e-10)


def test_probes_agree_with_the_exact_numbers_within_three_standard_errors(pair, digits):
    few, model = digits[1].subset(4), pair[1].classifier()
    for around in (0.0, 8 / 255):
        ((exact,), (probed,)) = (
            exact_alignment(model, few, around=around),
            branch_alignment(model, few, probes=256, around=around),
        )
        assert (np.abs(probed.cos - exact.cos) < 3 * probed.cos_se).all()
        assert (exact.cos_se == 0).all()
        assert exact.stacked.means[0] == pytest.approx(exact.means[0].sum(1, keepdims=True))


def test_probes_go_on_only_for_images_whose_sign_is_undecided(pair, digits):
    few, model = digits[1].subset(24), pair[1].classifier()
    (fixed,) = branch_alignment(model, few, probes=4)
    (adaptive,) = branch_alignment(model, few, probes=4, max_probes=64)
    wanted = (fixed.alive & ~fixed.decided).any(axis=1)
    assert wanted.any()
    assert not wanted.all()
    assert (adaptive.probes[~wanted] == 4).all()
    assert (adaptive.probes[wanted] > 4).all()
    assert adaptive.probes.max() <= 64
    assert adaptive.summary()["undecided"]["hits"] <= fixed.summary()["undecided"]["hits"]
    assert np.array_equal(adaptive.n1[:, :, :4], fixed.n1)  # the first probes are the same
    (eight,) = branch_alignment(
        model, few, probes=8
    )  # and those that follow are the next of the stream, not the first again
    assert adaptive.n1[wanted, :, 4:8] == pytest.approx(eight.n1[wanted, :, 4:8], rel=1e-4)
    assert not np.allclose(eight.n1[:, :, 4:], eight.n1[:, :, :4])


def test_r1_is_taken_at_a_point_near_the_image_and_not_at_it(pair, digits):
    few, model = digits[1].subset(3), pair[1].classifier()
    (at_image,), (near,) = branch_alignment(model, few, probes=4), align(model, few, "R1", probes=4)
    assert not np.allclose(at_image.n1, near.n1, rtol=1e-3)
    (far,) = branch_alignment(model, few, probes=4, around=0.5)
    assert np.abs(far.n1 - at_image.n1).mean() > 2 * np.abs(near.n1 - at_image.n1).mean()


def test_a_layer_that_never_moves_is_reported_and_not_divided_by(pair, digits):
    """Queries and keys of zero: uniform maps. Nothing is NaN, nothing is refused."""
    model, few = pair[1].classifier(), digits[1].subset(3)
    with torch.no_grad():
        model.model.blocks[0].attn.qkv.weight[:128] = 0
        model.model.blocks[0].attn.qkv.bias[:128] = 0
    (sharp,) = l_search(model, few, draws=2, steps=2, iterations=3)
    json.dumps(sharp.summary(), allow_nan=False)
    assert sharp.summary()["sample_short_by"] is None
    (layer,) = branch_alignment(model, few, probes=4)
    json.dumps([layer.summary(), gamma(layer, np.zeros((3, 4, 4)))], allow_nan=False)


def test_shards_merge_exactly(pair, digits):
    """What an image gives does not depend on which images it was measured with."""
    few, model = digits[1].subset(8), pair[1].classifier().double()
    whole = branch_alignment(model, few, probes=4, device="cpu")[0]
    halves = [branch_alignment(model, few.take(np.arange(a, a + 4)), probes=4)[0] for a in (0, 4)]
    assert np.concatenate([h.ip for h in halves]) == pytest.approx(whole.ip, rel=1e-4)


def mixed_model():
    config = ViTConfig(patch=2, width=32, heads=4, depth=3, attention=(Softmax(), Differential(), Differential()))
    return build(config, shape=(1, 8, 8), classes=10, seed=1).eval()


def test_layers_of_both_kinds_in_one_model(digits):
    few = digits[1].subset(3)
    for measure in (exact_alignment, local_alignment):
        assert [layer.layer for layer in measure(mixed_model(), few)] == ["model.blocks.1.attn", "model.blocks.2.attn"]
        assert [layer.layer for layer in measure(mixed_model(), few, coupling="pseudo")] == ["model.blocks.0.attn"]


@pytest.mark.parametrize("measure", [branch_alignment, exact_alignment, local_alignment])
def test_what_cannot_be_measured_is_refused_in_a_sentence(measure, pair, digits):
    few = digits[1].subset(2)
    with pytest.raises(InputError, match="two branches"):
        measure(pair[0].classifier(), few)
    with pytest.raises(InputError, match="no attention layer"):
        measure(nn.Flatten(), few)
    broken = pair[1].classifier()
    with torch.no_grad():
        broken.model.blocks[0].attn.qkv.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match="not finite"):
        measure(broken, few)


# ------------------------------------------------------------------------------------------------- Lipschitz


def test_power_iteration_finds_the_largest_singular_value():
    torch.manual_seed(0)
    matrices = torch.randn(3, 20, 12, dtype=DOUBLE)
    value, v, _, _ = sigma_max(lambda x: (matrices @ x[..., None])[..., 0], torch.zeros(3, 12, dtype=DOUBLE))
    assert value == pytest.approx(torch.linalg.svdvals(matrices)[:, 0], rel=1e-2)
    assert (matrices @ v[..., None]).flatten(1).norm(dim=1) == pytest.approx(value, rel=1e-2)


@pytest.mark.parametrize("level", ["maps", "branch", "block"])
def test_power_iteration_agrees_with_the_full_jacobian_of_a_trained_model(pair, digits, level):
    model, few = pair[1].classifier(), digits[1].subset(2)
    name = "model.blocks.0.attn"

    def f(x):
        return at_level(model, x, level, name)[name]

    with torch.no_grad():
        value = sigma_max(f, few.all.pixels, iterations=200, tolerance=1e-5).value
    full = torch.stack(
        [torch.autograd.functional.jacobian(f, x[None]).flatten(0, -5).flatten(1).detach() for x in few.all.pixels]
    )
    exact = torch.linalg.svdvals(full)[:, 0]
    assert value == pytest.approx(exact, rel=1e-2)
    assert (value <= exact * (1 + 1e-4)).all()


@pytest.mark.parametrize("level", ["maps", "branch", "block"])
def test_the_search_never_falls_below_the_samples_it_starts_from(pair, digits, level):
    few = digits[1].subset(6)
    for run in pair:
        (sharp,) = l_search(run.classifier(), few, draws=4, level=level, steps=8, iterations=10, batch_size=4)
        (sampled,) = l_sample(run.classifier(), few, draws=4, level=level)
        assert sharp.sample == pytest.approx(sampled.ratios.max(axis=1), rel=1e-4)
        assert (sharp.ascent >= sharp.sample * (1 - 1e-5)).all()
        assert (sharp.ascent > sharp.sample * 1.1).all()  # random directions miss the worst one by far
        (still,) = l_search(run.classifier(), few, draws=4, level=level, steps=0, iterations=10, batch_size=4)
        assert (sharp.ascent >= still.ascent * (1 - 1e-5)).all()
        assert (sharp.ascent > still.ascent * 1.0001).any()  # climbing finds more than its starts
        assert sharp.summary()["sample_at_most_ascent"]["value"] == 1


def test_a_linear_map_has_the_lipschitz_constant_of_its_matrix(digits):
    """Uniform attention over one token and a linear output: every ratio is known, and no search exceeds it."""

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.attn = nn.MultiheadAttention(64, 1, batch_first=True)

        def forward(self, x):
            x = x.reshape(len(x), 1, 64)
            return self.attn(x, x, x, need_weights=False)[0][:, 0, :10]

    model = Linear().eval()
    weight = model.attn.out_proj.weight @ model.attn.in_proj_weight[128:]
    (sharp,) = l_search(model, digits[1].subset(2), draws=4, level="branch", iterations=200)
    top = float(torch.linalg.svdvals(weight)[0].detach())
    assert sharp.power == pytest.approx(top, rel=1e-2)
    assert (sharp.ascent <= top * (1 + 1e-5)).all()
    assert (sharp.sample < top).all()


def test_spectral_and_linf_readings_are_what_they_say(pair, digits):
    few = digits[1].subset(3)
    (layer,) = l_sample(pair[1].classifier(), few, draws=4, spectral=True)
    per_head_frobenius = layer.ratios / layer.heads**0.5
    assert (layer.spectral <= layer.ratios).all()
    assert (layer.spectral > 0.2 * per_head_frobenius).all()
    pixels = np.prod(digits[1].shape)
    assert layer.linf / layer.ratios == pytest.approx((pixels / 3) ** 0.5, rel=0.25)
    curve = layer.summary()["max_by_draws"]
    assert list(curve) == ["1", "2", "4"]
    assert curve["1"] < curve["2"] < curve["4"] == layer.summary()["max"]
    with pytest.raises(InputError, match="spectral"):
        l_sample(pair[1].classifier(), few, draws=1, spectral=True, level="block")
    with pytest.raises(InputError, match="level 'nose'"):
        l_sample(pair[1].classifier(), few, draws=1, level="nose")


# ------------------------------------------------------------------------------------------------- readings


@pytest.mark.parametrize("reading", READINGS)
def test_every_reading_gives_raw_numbers_for_every_image_and_head(reading, pair, digits):
    few = digits[1].subset(4)
    (layer,) = align(pair[1].classifier(), few, reading, probes=4)
    heads = 1 if reading == "R2" else 2
    assert layer.n1.shape[:2] == (4, heads)
    assert (layer.n1 > 0).all()
    assert (np.abs(layer.cos) <= 1 + 1e-6).all()
    assert len(layer.rows(few.ids)) == 4 * heads
    assert {"n1", "n2", "ip", "lambda", "cos", "image", "head"} <= set(layer.rows(few.ids)[0])


def test_reverse_probes_estimate_what_forward_probes_do(pair, digits):
    few, model = digits[1].subset(3), pair[1].classifier()
    (exact,), (reverse,) = exact_alignment(model, few), projected_alignment(model, few, probes=64)
    assert (np.abs(reverse.cos - exact.cos) < 4 * reverse.cos_se).all()
    se = reverse.n1.std(-1, ddof=1) / 8
    assert (np.abs(reverse.n1.mean(-1) - exact.n1[..., 0]) < 4 * se).all()


def test_the_class_row_is_a_part_of_the_whole(pair, digits):
    few, model = digits[1].subset(3), pair[1].classifier()
    (whole,), (row,) = align(model, few, "R1", probes=4), align(model, few, "R7", probes=4)
    assert (row.n1 < whole.n1).all()


def test_loss_weighted_branch_gradients_add_up_to_the_gradient_of_the_loss_through_the_map(pair, digits):
    """J1'u - lambda J2'u is what the loss sends back through the map: its squared norm follows from n1, n2 and ip."""
    few, model = digits[1].subset(2), pair[1].classifier().double()
    few = _double(few)
    (layer,) = loss_alignment(model, few)
    lam = layer.lam
    by_parts = layer.n1 + lam**2 * layer.n2 - 2 * lam * layer.ip
    with explicit(model) as record:
        x = few.all.pixels.requires_grad_()
        loss = nn.functional.cross_entropy(model(x), few.all.labels, reduction="sum")
        (maps,) = record.values()
        (u,) = torch.autograd.grad(loss, maps.signal, retain_graph=True)
        for h in range(2):
            (g,) = torch.autograd.grad((maps.combined * u)[:, h].sum(), x, retain_graph=True)
            assert by_parts[:, h, 0] == pytest.approx(g.flatten(1).pow(2).sum(1).detach(), rel=1e-6)


def _double(images):
    class Doubled:
        shape = images.shape

        def read(self, rows):
            return images.source.read(rows).double()

    return replace(images, source=Doubled())


@pytest.mark.parametrize(
    ("reading", "why"), [("D1", "rows of a softmax map always sum to one"), ("D2", "sign\\(lambda\\)")]
)
def test_degenerate_readings_are_found_out_and_refused(reading, why, pair, digits):
    with pytest.raises(InputError, match=why):
        align(pair[1].classifier(), digits[1].subset(4), reading)


def test_a_users_own_scalar_is_guarded_too(pair, digits):
    few, model = digits[1].subset(4), pair[1].classifier()
    assert scalar_alignment(model, few, lambda a, _: a.pow(3).sum((-1, -2)))
    with pytest.raises(InputError, match="degenerate"):
        scalar_alignment(model, few, lambda a, _: a.mean((-1, -2)))
    with pytest.raises(InputError, match="scalar 'nose'"):
        scalar_alignment(model, few, "nose")
    with pytest.raises(InputError, match="reading 'R9'"):
        align(model, few, "R9")


def test_controls_stand_beside_a_frequency(pair, digits):
    few = digits[1].subset(6)
    untrained = build(pair[1].config, shape=few.shape, classes=10, seed=0).eval()
    found = controls(pair[1].classifier(), few, "R3", untrained=untrained, softmax=pair[0].classifier())
    assert list(found) == ["untrained", "shuffled", "pseudo"]
    (own,) = align(pair[1].classifier(), few, "R3")
    (shuffled,) = found["shuffled"]
    assert np.array_equal(shuffled.n1, own.n1)
    assert np.allclose(shuffled.n2, own.n2[:, ::-1])
    assert not np.allclose(shuffled.ip, own.ip)
    assert found["pseudo"][0].lam == 0.8
    assert list(controls(pair[1].classifier(), few, "R3", softmax=pair[1].classifier())) == ["shuffled"]


def test_a_share_is_told_apart_from_one_half_only_where_its_interval_is():
    flags = {"above": 1.0, "below": -1.0}
    for said, sign in flags.items():
        ip = np.full((40, 2, 1), -sign)
        assert Alignment("x", 0.8, np.ones((40, 2, 1)), np.ones((40, 2, 1)), ip).summary()["versus_half"] == said
    coin = np.where(np.arange(40) % 2, 1.0, -1.0)[:, None, None]
    assert (
        Alignment("x", 0.8, np.ones((40, 1, 1)), np.ones((40, 1, 1)), coin).summary()["versus_half"] == "not told apart"
    )


def test_gamma_times_s_is_the_ratio_of_the_jacobians(pair, digits):
    """Thm 2 against a baseline, with exact norms: gamma s = ||J_DA|| / ||J_base||, heads stacked and per head."""
    few = digits[1].subset(3)
    (layer,) = exact_alignment(pair[1].classifier(), few)

    def readout(record):
        return {name: (maps.combined,) for name, maps in record.items()}

    (da,), (base,) = (gram_exact(run.classifier(), few, readout).values() for run in reversed(pair))
    found = gamma(layer, base[..., 0, 0])
    da, base = da[:, :, 0, 0, 0], base[:, :, 0, 0, 0]
    assert found["ratio_stacked"] == pytest.approx(np.sqrt(da.sum(1) / base.sum(1)).mean(), rel=1e-4)
    assert found["ratio_per_head"] == pytest.approx(found["ratio_stacked"] * np.sqrt(4 / 2))  # 4 heads against 2
    probed = map_norms(pair[0].classifier(), few, probes=64)["model.blocks.0.attn"]
    assert probed.mean(-1) == pytest.approx(base, rel=0.3)
