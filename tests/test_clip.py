"""CLIP and DiffCLIP: the published weights are read, and give what their authors' code gives."""

import math

import pytest
import torch

from antiphase.config import InputError
from antiphase.models import Differential, Schedule, Softmax
from antiphase.models.attention import lambdas
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import CLIPConfig, TextConfig, VisionConfig, preset
from antiphase.models.readers import read_clip, read_state, their_names
from antiphase.models.taps import taps

NOT_IN_TENSORS = {  # what each fixture needs to be told
    "diffclip": {},
    "clip": {"heads": 4, "text_heads": 4},
    "diffclip_vision_only": {"text_heads": 4},
    "diffclip_dynamic": {"differential": Differential(lambda_init=Schedule())},
}
TITLES = ["DiffCLIP", "CLIP", "DiffCLIP-dagger", "DiffCLIP-star"]


def loaded(path, **told):
    config, tensors = read_clip(path, **told)
    model = CLIP(config)
    model.load_state_dict(tensors)
    return model.eval()


# ------------------------------------------------------------------------------------------------- the authors' code


@pytest.mark.parametrize("name", NOT_IN_TENSORS)
def test_we_return_what_the_authors_code_returns(fixtures, name):
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


def test_a_text_map_never_looks_ahead(fixtures):
    model = loaded(fixtures / "diffclip.pt")
    tokens = torch.load(fixtures / "diffclip.expected.pt", weights_only=True)["text"]
    with torch.no_grad(), taps(model) as record:
        model.encode_text(tokens)
    assert list(record) == ["text.blocks.0.attn", "text.blocks.1.attn"]
    for maps in record.values():
        assert not maps.combined.triu(1).any()


# ------------------------------------------------------------------------------------------------- shapes


@pytest.mark.parametrize(("name", "title"), list(zip(NOT_IN_TENSORS, TITLES)))
def test_the_kind_is_read_from_the_tensors(fixtures, name, title):
    config, _ = read_clip(fixtures / f"{name}.pt", **NOT_IN_TENSORS[name])
    assert config.title == title
    vision, text = config.vision, config.text
    assert (vision.image, vision.patch, vision.width, vision.depth, vision.heads) == (32, 8, 64, 3, 4)
    assert (text.context, text.vocabulary, text.width, text.depth, text.heads, config.joint) == (77, 1024, 48, 2, 4, 24)


def on_meta(*names):
    with torch.device("meta"):
        return CLIP(preset(*names))


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_full_size_has_the_published_number_of_parameters():
    assert parameters(on_meta("B/16", "DiffCLIP")) == 149_629_185
    assert parameters(on_meta("B/16", "CLIP")) == 149_619_969


def test_full_size_has_the_published_tensors():
    """517 of them (M4.1), each under its published name and in its published shape."""
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


def test_the_subtraction_costs_few_parameters():
    plain, both, vision = (parameters(on_meta("B/16", v)) for v in ("CLIP", "DiffCLIP", "DiffCLIP-dagger"))
    assert 100 * (both / plain - 1) == pytest.approx(0.0062, abs=5e-5)
    assert 100 * (vision / plain - 1) == pytest.approx(0.0031, abs=5e-5)


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


# ------------------------------------------------------------------------------------------------- refusals


def spoiled(fixtures, tmp_path, name="diffclip", **changes):
    """The fixture with tensors set anew, or removed where None."""
    state = {f"module.{k}": v for k, v in read_state(fixtures / f"{name}.pt").items()}
    for key, value in changes.items():
        state.pop(key) if value is None else state.update({key: value})
    torch.save({"state_dict": state}, tmp_path / "spoiled.pt")
    return tmp_path / "spoiled.pt"


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("module.visual.blocks.1.attn.k_proj.weight", None, "has no tensor visual.blocks.1.attn.k_proj.weight"),
        ("module.visual.pos_embed", None, "has no tensor visual.pos_embed"),
        ("module.head.weight", torch.zeros(2), "has a tensor head.weight that a DiffCLIP"),
        ("module.text_projection", torch.zeros(24, 48), r"text_projection has shape \(24, 48\), expected \(48, 24\)"),
        ("module.visual.pos_embed", torch.zeros(1, 16, 64), "visual.pos_embed has 16 rows"),
        ("module.token_embedding.weight", torch.zeros(4), "token_embedding.weight has shape"),
    ],
)
def test_a_checkpoint_with_missing_extra_or_misshapen_tensors_is_refused_by_name(fixtures, tmp_path, key, value, named):
    with pytest.raises(InputError, match=named):
        read_clip(spoiled(fixtures, tmp_path, **{key: value}))


@pytest.mark.parametrize(
    ("name", "told", "named"),
    [
        ("clip", {}, "give --heads"),
        ("clip", {"heads": 4}, "give --text-heads"),
        ("diffclip_vision_only", {}, "give --text-heads"),
        ("diffclip", {"heads": 4}, "--heads 4 is not needed"),
        ("clip", {"heads": 5, "text_heads": 4}, "heads=5 does not divide width=64"),
    ],
)
def test_what_no_tensor_shows_is_asked_for_by_name(fixtures, name, told, named):
    with pytest.raises(InputError, match=named):
        read_clip(fixtures / f"{name}.pt", **told)


class Harmful:
    """A pickle that would run code."""

    def __reduce__(self):
        return (print, ("unpickled!",))


def test_nothing_is_unpickled_blindly(tmp_path, capsys):
    torch.save({"state_dict": {}, "args": Harmful()}, tmp_path / "harmful.pt")
    with pytest.raises(InputError, match="print, and only tensors and plain values are read"):
        read_clip(tmp_path / "harmful.pt")
    assert "unpickled" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut short"])
def test_a_damaged_file_gets_one_sentence(tmp_path, content):
    (tmp_path / "bad.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.pt cannot be read"):
        read_clip(tmp_path / "bad.pt")


@pytest.mark.parametrize("held", [{"state_dict": {}}, {"state_dict": {"a": 1}}, [1, 2], {"a": torch.zeros(1)}])
def test_a_file_without_a_clip_gets_one_sentence(tmp_path, held):
    torch.save(held, tmp_path / "other.pt")
    with pytest.raises(InputError, match=r"holds no weights|has no tensor"):
        read_clip(tmp_path / "other.pt")


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: VisionConfig(patch=15), "patch=15 does not tile"),
        (lambda: TextConfig(heads=7), "heads=7"),
        (lambda: CLIPConfig(std=(0.0, 1.0, 1.0)), "std="),
        (lambda: CLIPConfig(mean=(math.nan, 0.0, 0.0)), "mean="),
        (lambda: preset("B/32"), "'B/32' is not known"),
        (lambda: preset("B/16", "SLIP"), "'SLIP' is not known"),
        (lambda: CLIPConfig().with_attention(Differential(lambda_init=1.0), Softmax()), "exactly zero"),
    ],
)
def test_a_clip_that_cannot_be_built_is_refused_by_name(make, named):
    with pytest.raises(InputError, match=named):
        make()


def test_lambda_is_there_for_both_towers(fixtures):
    assert len(lambdas(loaded(fixtures / "diffclip.pt"))) == 5
