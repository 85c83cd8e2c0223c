"""The differential layer is the paper's formula, timm's layer and DiffCLIP's, by explicit maps or fused kernels."""

import math

import pytest
import torch
from timm.layers import DiffAttention

from antiphase.models import Differential, Schedule, ViTConfig
from antiphase.models.attention import DifferentialAttention, lambdas, project
from antiphase.models.taps import explicit, taps
from antiphase.models.vit import build
from tests.models.small_models import CIFAR


def test_rows_of_a_differential_map_sum_to_one_minus_lambda(x):
    model = build(ViTConfig(depth=2, attention=(Differential(),)), **CIFAR)
    with taps(model) as record:
        model(x)
    for maps in record.values():
        rows = maps.combined.sum(dim=-1)
        assert torch.allclose(rows, (1 - maps.lam[..., 0]).expand_as(rows), atol=1e-6)
        assert torch.allclose(maps.signal.sum(dim=-1), torch.ones(()), atol=1e-6)


def test_explicit_and_fused_attention_agree(x):
    vit = build(ViTConfig(depth=2), **CIFAR)
    fused = vit(x)
    with explicit(vit):
        assert torch.allclose(vit(x), fused, atol=1e-5)
    layer = build(ViTConfig(attention=(Differential(),)), **CIFAR).model.blocks[0].attn
    q, k, v = project(layer, torch.randn(2, 65, 192))
    for causal in (False, True):
        assert torch.allclose(
            layer.mix_explicit(q, k, v, None, causal), layer.mix_fused(q, k, v, None, causal), atol=1e-5
        )


def test_the_bare_layer_is_the_papers_formula():
    """A direct transcription of section 3.2, head by head, with its own indexing."""
    torch.manual_seed(0)
    width, heads, tokens = 24, 2, 5
    layer = DifferentialAttention(width, heads, lambda_init=0.8, learned=False, head_norm=False, gain=1.0).double()
    x = torch.randn(1, tokens, width, dtype=torch.float64)
    w_q, w_k, w_v = layer.qkv.weight.chunk(3)
    b_q, b_k, b_v = layer.qkv.bias.chunk(3)
    d = width // heads // 2
    columns = []
    for i in range(heads):
        first, second = slice(2 * i * d, (2 * i + 1) * d), slice((2 * i + 1) * d, (2 * i + 2) * d)
        a1, a2 = (
            torch.softmax((x[0] @ w_q[s].T + b_q[s]) @ (x[0] @ w_k[s].T + b_k[s]).T / math.sqrt(d), dim=-1)
            for s in (first, second)
        )
        value = slice(2 * i * d, 2 * (i + 1) * d)
        columns.append((a1 - 0.8 * a2) @ (x[0] @ w_v[value].T + b_v[value]))
    expected = torch.cat(columns, dim=-1) @ layer.proj.weight.T + layer.proj.bias
    assert torch.allclose(layer(x)[0], expected, atol=1e-12)


def test_the_official_layer_is_timms():
    torch.manual_seed(0)
    theirs = DiffAttention(48, num_heads=2, qkv_bias=True, depth=3).double()
    ours = DifferentialAttention(
        48, 2, lambda_init=theirs.lambda_init, learned=True, head_norm=True, gain=1 - theirs.lambda_init
    ).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 7, 48, dtype=torch.float64)
    assert torch.allclose(ours(x), theirs(x), atol=1e-12)


def test_lambda_starts_at_lambda_init():
    schedule = [Schedule().at(layer) for layer in range(3)]
    assert schedule == pytest.approx([0.2, 0.3555, 0.4707], abs=1e-4)
    assert Schedule(index_base=1).at(0) == pytest.approx(0.3555, abs=1e-4)
    fixed = build(ViTConfig(depth=3, attention=(Differential(lambda_init=(0.1, 0.5, 0.9), learned=False),)), **CIFAR)
    assert list(lambdas(fixed).values()) == pytest.approx([0.1, 0.5, 0.9])
    learned = build(ViTConfig(attention=(Differential(lambda_init=Schedule()),)), **CIFAR)
    layer = learned.model.blocks[0].attn
    by_hand = (layer.lambda_q1 @ layer.lambda_k1).exp() - (layer.lambda_q2 @ layer.lambda_k2).exp() + 0.2
    assert next(iter(lambdas(learned).values())) == pytest.approx(by_hand.item(), abs=1e-6)


@pytest.mark.parametrize(("scale", "gain"), [("official", 0.5), ("fixed", 0.2), ("none", 1.0)])
def test_the_gain_is_what_out_scale_says(scale, gain):
    model = build(ViTConfig(attention=(Differential(lambda_init=0.5, out_scale=scale),)), **CIFAR)
    assert model.model.blocks[0].attn.gain == gain
