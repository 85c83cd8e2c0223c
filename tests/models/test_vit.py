"""ViT and DiffViT are the DiffCLIP authors', twins where they should be, and built from a seed."""

import argparse
import math

import pytest
import torch

from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.attention import lambdas
from antiphase.models.classifier import Normalized
from antiphase.models.taps import taps
from antiphase.models.vit import build
from tests.models.small_models import CIFAR, parameters

BARE = Differential(lambda_init=0.8, learned=False, head_norm="none", out_scale="none")


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


def test_the_same_seed_builds_the_same_weights_and_leaves_the_global_stream_alone():
    config = ViTConfig(attention=(Differential(),))
    torch.manual_seed(7)
    before = torch.get_rng_state()
    a, b, c = (build(config, **CIFAR, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not torch.equal(a["model.head.weight"], c["model.head.weight"])


def test_lambda_one_is_allowed_where_it_does_something(x):
    model = build(ViTConfig(attention=(Differential(lambda_init=1.0, out_scale="fixed"),)), **CIFAR)
    assert model(x).isfinite().all()


def test_a_mean_and_std_per_channel_equal_an_input_normalised_by_hand(x):
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.4, 0.25)
    shift, scale = (torch.tensor(values).view(3, 1, 1) for values in (mean, std))
    per_channel = build(ViTConfig(width=32, heads=4, mean=mean, std=std), **CIFAR)
    plain = build(ViTConfig(width=32, heads=4, mean=0.0, std=1.0), **CIFAR)
    with torch.no_grad():
        assert torch.equal(per_channel(x), plain((x - shift) / scale))
        assert not torch.allclose(per_channel(x), build(ViTConfig(width=32, heads=4), **CIFAR)(x), atol=1e-3)


def test_one_value_for_every_channel_is_the_same_model_as_one_number(x):
    grey, colour = ({"mean": value} for value in (0.4, (0.4, 0.4, 0.4)))
    one, three = (build(ViTConfig(width=32, heads=4, **mean), **CIFAR) for mean in (grey, colour))
    with torch.no_grad():
        assert torch.equal(one(x), three(x))
