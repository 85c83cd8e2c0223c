"""ViT and DiffViT are one config; the maps are what the paper says they are."""

import argparse
import math

import pytest
import torch
from timm.layers import DiffAttention

from antiphase.config import InputError
from antiphase.models import Differential, Schedule, Softmax, ViTConfig
from antiphase.models.attention import DifferentialAttention, lambdas, project
from antiphase.models.classifier import Normalized
from antiphase.models.taps import attention_layers, explicit, taps
from antiphase.models.vit import build

CIFAR = {"shape": (3, 32, 32), "classes": 10}
BARE = Differential(lambda_init=0.8, learned=False, head_norm="none", out_scale="none")


def parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.fixture
def x():
    return torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


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


def _official_tower(fixtures, name):
    """Weights and outputs of the DiffCLIP authors' own code, renamed to timm's layout."""
    with torch.serialization.safe_globals([argparse.Namespace]):
        state = torch.load(fixtures / f"{name}.pt", weights_only=True)["state_dict"]
    vision = {k.removeprefix("module.visual."): v for k, v in state.items() if k.startswith("module.visual.")}
    renamed = {}
    for key, value in vision.items():
        if ".q_proj." in key:
            parts = [vision[key.replace("q_proj", f"{p}_proj")] for p in "qkv"]
            renamed[key.replace("q_proj", "qkv")] = torch.cat(parts)
        elif ".k_proj." not in key and ".v_proj." not in key:
            renamed[key.replace("out_proj", "proj").replace("diff_norm", "sub_norm")] = value
    return renamed, state["module.image_projection"], torch.load(fixtures / f"{name}.expected.pt", weights_only=True)


@pytest.mark.parametrize(("name", "attention"), [("diffclip", Differential()), ("clip", Softmax())])
def test_we_reproduce_the_diffclip_authors_vision_tower(fixtures, name, attention):
    weights, projection, expected = _official_tower(fixtures, name)
    config = ViTConfig(patch=8, width=64, heads=4, depth=3, attention=(attention,))
    model = build(config, shape=(3, 32, 32), classes=1).model
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert set(missing) == {"head.weight", "head.bias"}
    seam = Normalized(model, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with torch.no_grad(), taps(seam) as record:
        model_in = (expected["image"] - seam.mean) / seam.std
        features = model.forward_features(model_in)[:, 0] @ projection
        seam(expected["image"])
    assert (features - expected["image_embed"]).abs().max() < 5e-6
    for i, maps in enumerate(record.values()):
        if maps.noise is not None:
            theirs = expected["maps"][f"vision.{i}"]
            assert (torch.stack([maps.signal, maps.noise], dim=2) - theirs).abs().max() < 1e-5
            assert maps.lam.item() == pytest.approx(float(expected["maps"][f"vision.{i}.lambda"]), abs=1e-6)


def test_twins_differ_in_size_by_lambda_and_the_head_norm_only():
    """Four lambda vectors and one norm weight a layer: 4 x 32 + 64 = 192 at width 192 with 3 differential heads."""
    depth = 2
    vit = parameters(build(ViTConfig(depth=depth), **CIFAR))
    assert vit == 914_122
    assert parameters(build(ViTConfig(depth=depth, attention=(Differential(),)), **CIFAR)) - vit == depth * 192
    assert parameters(build(ViTConfig(depth=depth, attention=(BARE,)), **CIFAR)) == vit


def test_matched_twins_begin_with_the_same_weights_and_norms():
    vit = build(ViTConfig(depth=2), **CIFAR)
    twin = build(ViTConfig(depth=2, attention=(Differential(),), init="matched"), **CIFAR)
    shared = vit.state_dict()
    assert all(torch.equal(value, twin.state_dict()[name]) for name, value in shared.items())
    assert twin.model.blocks[0].norm1.eps == vit.model.blocks[0].norm1.eps == 1e-6


def test_official_initialisation_is_diffclips():
    model = build(ViTConfig(attention=(Differential(),)), **CIFAR).model
    assert {m.eps for m in model.modules() if isinstance(m, torch.nn.LayerNorm)} == {1e-5}
    spread = model.blocks[0].attn.qkv.weight.std().item()
    assert spread == pytest.approx(1 / math.sqrt(3 * 192), rel=0.02)  # PyTorch's uniform, not timm's 0.02


def test_softmax_and_differential_layers_mix(x):
    config = ViTConfig(depth=3, attention=(Softmax(), Differential(), Softmax()))
    model = build(config, **CIFAR)
    with taps(model) as record:
        assert model(x).shape == (3, 10)
    assert [maps.noise is None for maps in record.values()] == [True, False, True]
    assert list(lambdas(model)) == ["model.blocks.1.attn"]


def test_lambda_starts_where_it_is_told():
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


def test_the_same_seed_builds_the_same_weights_and_leaves_the_global_stream_alone():
    config = ViTConfig(attention=(Differential(),))
    torch.manual_seed(7)
    before = torch.get_rng_state()
    a, b, c = (build(config, **CIFAR, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not torch.equal(a["model.head.weight"], c["model.head.weight"])


def test_the_seam_normalises_inside(x):
    inner = torch.nn.Flatten()
    seam = Normalized(inner, (0.1, 0.2, 0.3), (0.5, 0.5, 0.25))
    by_hand = (x - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor([0.5, 0.5, 0.25]).view(3, 1, 1)
    assert torch.equal(seam(x), by_hand.flatten(1))
    assert not list(seam.state_dict())


def test_taps_change_nothing_and_leave_nothing(x):
    model = build(ViTConfig(depth=2, attention=(Softmax(), Differential())), **CIFAR)
    plain = model(x)
    with taps(model):
        assert torch.equal(model(x), plain)
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    with pytest.raises(ZeroDivisionError), taps(model):
        raise ZeroDivisionError
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_a_model_without_attention_is_refused():
    with pytest.raises(InputError, match="no attention layer"):
        attention_layers(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: ViTConfig(heads=7), "heads=7 does not divide width=192"),
        (lambda: ViTConfig(heads=3, attention=(Differential(),)), "heads=3 is odd"),
        (lambda: ViTConfig(diff_heads=5, attention=(Differential(),)), "diff_heads=5 does not fit width=192"),
        (lambda: ViTConfig(diff_heads=0, attention=(Differential(),)), "diff_heads=0"),
        (lambda: Differential(lambda_init=1.0), "exactly zero"),
        (lambda: ViTConfig(depth=2, attention=(Differential(lambda_init=(0.5, 1.0)),)), "layer 1"),
        (
            lambda: ViTConfig(depth=3, attention=(Differential(lambda_init=(0.5, 0.6)),)),
            "2 values for a model of depth 3",
        ),
        (lambda: ViTConfig(depth=3, attention=(Softmax(), Differential())), "2 layers for a model of depth 3"),
        (lambda: ViTConfig(depth=0), "depth=0"),
        (lambda: Differential(lambda_init=float("nan")), "nan"),
        (lambda: build(ViTConfig(patch=5), **CIFAR), "patch=5"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused_by_name(make, named):
    with pytest.raises(InputError, match=named):
        make()


def test_lambda_one_is_allowed_where_it_does_something(x):
    model = build(ViTConfig(attention=(Differential(lambda_init=1.0, out_scale="fixed"),)), **CIFAR)
    assert model(x).isfinite().all()
