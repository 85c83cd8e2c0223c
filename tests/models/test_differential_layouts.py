"""Differential attention of unilm, DiffCLIP, transformers, timm and attention of open_clip: what is read is what they compute."""

import pytest
import torch
from open_clip.transformer import Attention as OpenClipAttention
from timm.layers import DiffAttention, LayerNorm
from torch import nn

from antiphase.config import InputError
from antiphase.measures.jacobians_local import local_moments
from antiphase.models.adapters import ADAPTERS, adapter, check, read
from antiphase.models.attention import Heads
from antiphase.models.taps import attention_layers, explicit, gated_layers
from tests.models.foreign_models import transformers
from tests.models.published_layers import DiffCLIPAttention, UnilmV1, UnilmV2, angles, causal

DOUBLE, TOKENS = torch.float64, 6


def sharp(layer, times=3):
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "lambda_" not in name or "proj" in name:
                parameter.mul_(times)
    return layer.double().eval()


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(2, TOKENS, 24, dtype=DOUBLE)


@pytest.mark.parametrize("groups", [3, 1])
def test_unilms_first_version_is_read(groups, x):
    layer = sharp(UnilmV1(24, heads=3, groups=groups))
    positions = angles(TOKENS, 4)
    check(layer, x, positions, tolerance=1e-6)  # lambda is a float32 in theirs and in ours
    check(layer, x, positions, attn_mask=torch.randn(TOKENS, TOKENS, dtype=DOUBLE), tolerance=1e-6)
    maps = read(layer, x, positions)
    assert maps.signal.shape == (2, 3, TOKENS, TOKENS)
    assert torch.equal(maps.signal.triu(1), torch.zeros_like(maps.signal))
    assert maps.lam.item() == pytest.approx(layer.lam().item(), abs=1e-6)


@pytest.mark.parametrize("groups", [4, 2, 1])
def test_unilms_second_version_is_read_with_its_gate(groups, x):
    layer = sharp(UnilmV2(24, heads=4, groups=groups, d=6))
    positions = angles(TOKENS, 6)
    check(layer, x, positions, tolerance=1e-12)
    maps = read(layer, x, positions)
    assert maps.lam.shape == (2, 4, TOKENS, 1)
    assert ((maps.lam > 0) & (maps.lam < 1)).all()
    model = _WithPositions(layer, positions)
    assert list(attention_layers(model)) == ["layer"]
    assert gated_layers(model, x) == {"layer"}


class _WithPositions(nn.Module):
    def __init__(self, layer, positions):
        super().__init__()
        self.layer, self.positions = layer, positions

    def forward(self, x):
        return self.layer(x, self.positions)


def test_a_version_two_whose_pairs_do_not_share_values_is_refused(x):
    layer = sharp(UnilmV2(24, heads=2, groups=4, d=6))
    with pytest.raises(
        InputError, match="4 key heads for 4 queries: the two queries of a head do not share their values"
    ):
        read(layer, x, angles(TOKENS, 6))


def test_without_positions_version_two_has_a_closed_form(x):
    """The gate's closed form (R8) of a layer that is only known by its parts, against autograd."""
    layer = sharp(UnilmV2(24, heads=2, groups=2, d=4), 2)

    def parts(t):
        maps = read(layer, t)
        return maps.signal[0], maps.noise[0], maps.lam[0]

    with torch.no_grad():
        j1, j2, j_lam = (j.flatten(3) for j in torch.func.jacrev(parts)(x[:1]))
        _, noise, lam = parts(x[:1])
        moments = local_moments(read(layer, x[:1]), gated=True)[0]
    flat = torch.stack([j.flatten(1) for j in (j1, lam[..., None] * j2, noise[..., None] * j_lam)], dim=1)
    assert torch.allclose(moments, flat @ flat.mT, rtol=1e-9, atol=1e-12)


def test_the_diffclip_authors_layer_is_read(x):
    layer = sharp(DiffCLIPAttention(24, maps=4))
    check(layer, x, tolerance=1e-6)
    check(layer, x, attn_mask=causal(TOKENS), tolerance=1e-6)
    assert read(layer, x).signal.shape == (2, 2, TOKENS, TOKENS)  # num_heads counts maps: two heads


def diffllama(implementation, groups):
    hf = transformers()
    config = hf.DiffLlamaConfig(
        vocab_size=20,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=groups,
        intermediate_size=32,
        attn_implementation=implementation,
    )
    torch.manual_seed(0)
    model = hf.DiffLlamaModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "self_attn" in name and "proj" in name:
                parameter.mul_(20)
    return model.double().eval()


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("groups", [8, 4, 2])
def test_difflamas_model_runs_the_same_on_what_is_read_of_its_layers(implementation, groups):
    model = diffllama(implementation, groups)
    ids = torch.tensor([[5, 7, 9, 11, 13, 2], [6, 8, 10, 12, 14, 2]])
    seen = torch.tensor([[1] * 6, [1, 1, 1, 1, 0, 0]])
    for mask in (None, seen):
        with torch.no_grad():
            theirs = model(ids, attention_mask=mask, use_cache=False).last_hidden_state
            with explicit(model) as record:
                ours = model(ids, attention_mask=mask, use_cache=False).last_hidden_state
        kept = slice(None) if mask is None else seen.bool()  # what padding itself becomes is nobody's business
        assert torch.allclose(theirs[kept], ours[kept], atol=1e-6)
        maps = record["layers.0.self_attn"]
        assert maps.signal.shape == (2, 4, 6, 6)
        assert maps.values.shape == (2, 4, 6, 8)
        assert torch.equal(maps.signal.triu(1), torch.zeros_like(maps.signal))


def test_a_cache_is_refused():
    with pytest.raises(InputError, match="use_cache=False"), explicit(model := diffllama("sdpa", 4)):
        model(torch.tensor([[5, 7, 9]]), use_cache=True)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dual_lambda": True},
        {"qk_norm": True},
        {"scale_norm": True},
        {"qk_norm": True, "scale_norm": True, "dual_lambda": True, "norm_layer": LayerNorm},
        {"qkv_bias": True, "proj_bias": False, "depth": 5},
    ],
    ids=str,
)
@pytest.mark.parametrize("fused", [True, False])
def test_every_option_of_timms_layer_is_read(options, fused, x):
    layer = DiffAttention(24, num_heads=2, **options)
    layer.fused_attn = fused
    if options.get("dual_lambda"):
        nn.init.constant_(layer.lambda_a, 0.3)
    layer = layer.double().eval()
    with torch.no_grad():
        layer.qkv.weight.mul_(3)
    check(layer, x, tolerance=1e-12)
    check(layer, x, is_causal=True, tolerance=1e-12)
    assert read(layer, x).lam.item() == pytest.approx(layer._compute_lambda().item())


@pytest.mark.parametrize(
    "options", [{}, {"qk_norm": True}, {"scale_heads": True}, {"inner_norm": True, "qkv_bias": False}], ids=str
)
def test_open_clips_own_attention_is_read(options, x):
    layer = OpenClipAttention(24, num_heads=4, norm_layer=nn.LayerNorm, **options)
    if options.get("scale_heads"):
        nn.init.uniform_(layer.head_scale)
    layer = layer.double().eval()
    for mask in (None, causal(TOKENS), torch.ones(TOKENS, TOKENS).triu(1).bool()):
        check(layer, x, attn_mask=mask, tolerance=1e-12)


def test_siglip_2s_layer_is_read(x):
    hf = transformers()
    config = hf.Siglip2VisionConfig(hidden_size=24, num_attention_heads=4, attn_implementation="eager")
    layer = hf.models.siglip2.modeling_siglip2.Siglip2Attention(config).double().eval()
    check(layer, x, tolerance=1e-6)
    check(layer, x, attention_mask=causal(TOKENS).expand(2, 1, TOKENS, TOKENS), tolerance=1e-6)


def test_scores_that_are_cosines_are_refused(x):
    layer = OpenClipAttention(24, num_heads=4, scaled_cosine=True).double()
    with pytest.raises(InputError, match="scaled_cosine=True is not read"):
        read(layer, x)


def test_one_map_has_no_second_branch():
    """DEX subtracts from the output of one map; nobody released its code."""

    class DexAttention(nn.Module):
        def forward(self, x):
            return x

    with pytest.raises(InputError, match="DEX, which has one map per head and subtracts from its output"):
        read(DexAttention(), torch.zeros(1, 2, 8))
    try:

        @adapter(DexAttention)
        def _dex(module, x):
            return Heads(x[:, None], x[:, None], x[:, None], nn.Identity(), module, lam=torch.tensor(0.5))

        with pytest.raises(InputError, match=r"shape \(1, 1, 2, 8\), one map per head.*leave lam out"):
            read(DexAttention(), torch.zeros(1, 2, 8))
    finally:
        ADAPTERS.pop(DexAttention)
