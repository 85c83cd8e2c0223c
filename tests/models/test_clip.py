"""CLIP and DiffCLIP return what the authors' code returns and have the published shapes."""

from dataclasses import replace

import pytest
import torch

from antiphase.models import Differential, Schedule
from antiphase.models.attention import lambdas
from antiphase.models.checkpoint_formats import read_clip, their_names
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import PRESETS, preset
from antiphase.models.taps import taps
from tests.conftest import ROOT
from tests.models.small_models import NOT_IN_TENSORS, parameters
from tests.training.small_clip import SMALL_CLIP, SOFTMAX_CLIP


def loaded(path, **told):
    config, tensors = read_clip(path, **told)
    model = CLIP(config)
    model.load_state_dict(tensors)
    return model.eval()


@pytest.mark.parametrize("name", NOT_IN_TENSORS)
def test_embeddings_maps_and_lambda_are_those_of_the_authors_code(fixtures, name):
    model = loaded(fixtures / f"{name}.pt", **NOT_IN_TENSORS[name])
    expected = torch.load(fixtures / f"{name}.expected.pt", weights_only=True)
    with torch.no_grad(), taps(model) as record:
        image, text = model.encode_image(expected["image"]), model.encode_text(expected["text"])
    assert (image - expected["image_embed"]).abs().max() < 1e-5
    assert (text - expected["text_embed"]).abs().max() < 1e-5
    assert model.logit_scale.exp().item() == pytest.approx(float(expected["logit_scale"]), rel=1e-6)
    checked = 0
    for key, theirs in expected["maps"].items():
        tower, number, *is_lambda = key.split(".")
        ours = record[{"vision": "visual.model.vit", "text": "text"}[tower] + f".blocks.{number}.attn"]
        if is_lambda:
            assert ours.lam.item() == pytest.approx(float(theirs), abs=1e-5)
        else:
            assert (torch.stack([ours.signal, ours.noise], dim=2) - theirs).abs().max() < 1e-5
        checked += 1
    assert checked == {"clip": 0, "diffclip_vision_only": 6, "diffclip": 10, "diffclip_dynamic": 8}[name]


def test_a_schedule_with_the_other_index_base_gives_other_embeddings(fixtures):
    expected = torch.load(fixtures / "diffclip_dynamic.expected.pt", weights_only=True)
    wrong = Differential(lambda_init=Schedule(index_base=1))
    model = loaded(fixtures / "diffclip_dynamic.pt", differential=wrong)
    with torch.no_grad():
        assert (model.encode_image(expected["image"]) - expected["image_embed"]).abs().max() > 0.1


def test_text_attention_is_causal(fixtures):
    model = loaded(fixtures / "diffclip.pt")
    tokens = torch.load(fixtures / "diffclip.expected.pt", weights_only=True)["text"]
    with torch.no_grad(), taps(model) as record:
        model.encode_text(tokens)
    assert list(record) == ["text.blocks.0.attn", "text.blocks.1.attn"]
    for maps in record.values():
        assert not maps.combined.triu(1).any()


def on_meta(*names):
    with torch.device("meta"):
        return CLIP(preset(*names))


def test_full_size_has_the_published_number_of_parameters():
    assert parameters(on_meta("B/16", "DiffCLIP")) == 149_629_185
    assert parameters(on_meta("B/16", "CLIP")) == 149_619_969


def test_full_size_has_the_published_tensors():
    """517 of them (docs/method.md 4.1), each under its published name and in its published shape."""
    model, config = on_meta("B/16", "DiffCLIP"), preset("B/16", "DiffCLIP")
    theirs = {key: tuple(t.shape) for ours, t in model.state_dict().items() for key in their_names(ours, config)}
    assert len(theirs) == 517
    some = {
        "positional_embedding": (77, 512),
        "image_projection": (768, 512),
        "token_embedding.weight": (49408, 512),
        "visual.pos_embed": (1, 197, 768),
        "visual.blocks.11.attn.lambda_q1": (64,),
        "visual.blocks.0.attn.diff_norm.weight": (128,),
        "transformer.resblocks.11.mlp.c_proj.weight": (512, 2048),
        "transformer.resblocks.0.ln_1.bias": (512,),
    }
    assert some.items() <= theirs.items()


@pytest.mark.parametrize("size", PRESETS)
def test_the_table_of_sizes_is_what_the_models_have(size):
    """At B/16 the published .0062 % for both towers and .0031 % for the vision tower alone."""
    plain, both, vision = (parameters(on_meta(size, v)) for v in ("CLIP", "DiffCLIP", "DiffCLIP-dagger"))
    more = [f"+{n - plain:,} ({100 * (n / plain - 1):.4f} %)" for n in (both, vision)]
    assert f"| {size} | {plain:,} | {more[0]} | {more[1]} |" in (ROOT / "docs/clip.md").read_text()


def test_layer_norms_have_the_eps_of_the_originals():
    for variant, eps in (("CLIP", 1e-6), ("DiffCLIP", 1e-5)):
        model = on_meta("B/16", variant)
        norms = {name: m.eps for name, m in model.named_modules() if isinstance(m, torch.nn.LayerNorm)}
        assert {e for name, e in norms.items() if name.startswith("visual")} == {eps}
        assert {e for name, e in norms.items() if name.startswith("text")} == {1e-5}


def test_patch_features_are_the_tokens_behind_the_class_token(fixtures):
    model = loaded(fixtures / "diffclip.pt")
    pixels = torch.load(fixtures / "diffclip.expected.pt", weights_only=True)["image"]
    with torch.no_grad():
        assert model.patch_features(pixels).shape == (4, 16, 64)


def test_lambda_is_listed_for_both_towers(fixtures):
    assert len(lambdas(loaded(fixtures / "diffclip.pt"))) == 5


def test_twins_share_every_weight_they_have_in_common():
    matched = replace(SMALL_CLIP, vision=replace(SMALL_CLIP.vision, init="matched"))
    plain, twin = CLIP(SOFTMAX_CLIP, seed=3).state_dict(), CLIP(matched, seed=3).state_dict()
    assert set(plain) < set(twin)
    assert all(torch.equal(value, twin[name]) for name, value in plain.items())


def test_texts_of_different_lengths_are_encoded_alike_together_and_alone():
    clip = CLIP(SMALL_CLIP).eval()
    some = ["one", "the digit seven", "x"]
    together = clip.encode_text(clip.tokenize(some))
    alone = torch.cat([clip.encode_text(clip.tokenize([text])) for text in some])
    assert torch.allclose(together, alone, atol=1e-6)
