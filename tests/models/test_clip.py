"""CLIP and DiffCLIP: the published weights are read, and give what their authors' code gives."""

import argparse
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from antiphase.attacks import PGD, Linf
from antiphase.attacks.engine import run as attack
from antiphase.config import InputError
from antiphase.data import load
from antiphase.measures.caption_correlation import caption_correlation
from antiphase.models import Differential, Schedule, Softmax
from antiphase.models.attention import lambdas
from antiphase.models.checkpoint_formats import read_clip, read_state, their_names
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import PRESETS, CLIPConfig, TextConfig, VisionConfig, preset
from antiphase.models.convert import convert
from antiphase.models.prompts import fill_templates, templates
from antiphase.models.run import Run
from antiphase.models.taps import taps
from antiphase.models.tokenizer import tokenize
from antiphase.models.zero_shot import OPENAI_MEAN, OPENAI_STD, zero_shot
from tests.conftest import ROOT

NOT_IN_TENSORS = {  # what each fixture needs to be told
    "diffclip": {},
    "clip": {"heads": 4, "text_heads": 4},
    "diffclip_vision_only": {"text_heads": 4},
    "diffclip_dynamic": {"differential": Differential(lambda_init=Schedule())},
}
TINY = CLIPConfig(  # with the real vocabulary
    vision=VisionConfig(image=16, patch=8, width=32, depth=2, heads=4),
    text=TextConfig(width=16, depth=1, heads=2),
    joint=16,
)
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


# ------------------------------------------------------------------------------------------------- words


def test_tokens_are_clips():
    tokens = tokenize(["a photo of a cat", "A  photo of a CAT"])
    assert tokens[0, :8].tolist() == [49406, 320, 1125, 539, 320, 2368, 49407, 0]
    assert torch.equal(tokens[0], tokens[1])
    assert tokens.shape == (2, 77)


def test_a_text_that_is_too_long_keeps_its_end_or_loses_it_as_in_slip():
    long = ["cat " * 100]
    assert tokenize(long)[0, -1] == 49407
    slip = tokenize(long, truncate="slip")
    assert slip[0, -1] == 2368
    assert slip.argmax() == 0  # the feature is read at the start: the same for every text that is too long
    assert torch.equal(tokenize(["a cat"]), tokenize(["a cat"], truncate="slip"))


def test_prompt_sets_are_the_published_ones(tmp_path):
    assert templates("paper") == ("a photo of {}",)
    assert templates("a") == ("a photo of a {}",)
    assert len(templates("imagenet80")) == 80
    assert templates("imagenet80")[0] == "a bad photo of a {}."
    (tmp_path / "mine.txt").write_text("a {}\n\nthe {} itself\n")
    assert fill_templates("lawn_mower", templates(str(tmp_path / "mine.txt"))) == [
        "a lawn mower",
        "the lawn mower itself",
    ]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda _: templates("poems"), "'poems' are not known"),
        (lambda file: templates(file("")), "holds no template"),
        (lambda file: templates(file("a photo")), "'a photo' has no {}"),
        (lambda file: templates(file(b"\xff\xfe")), "is not a text file"),
        (lambda _: tokenize(["a cat", "  "]), "a text is empty"),
        (lambda _: zero_shot(CLIP(TINY), ["cat", ""], ("{}",)), "class 1 has no name"),
        (lambda _: zero_shot(CLIP(replace(TINY, text=TextConfig(width=16, depth=1, heads=2, vocabulary=9))), ["cat"], ("{}",)),
         "knows 9 tokens"),
    ],
)  # fmt: skip
def test_words_that_cannot_be_used_get_one_sentence(tmp_path, make, named):
    def file(content):
        (tmp_path / "prompts.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(tmp_path / "prompts.txt")

    with pytest.raises(InputError, match=re.escape(named)):
        make(file)


# ------------------------------------------------------------------------------------------------- a classifier


def test_a_zero_shot_logit_is_a_scaled_cosine_to_the_mean_prompt():
    clip = CLIP(TINY.with_attention(Differential())).eval()
    pixels, names = torch.rand(2, 3, 16, 16), ["cat", "dog", "aquarium fish"]
    model = zero_shot(clip, names, ("a photo of {}", "a {}"))
    with torch.no_grad():
        columns = []
        for name in names:
            each = F.normalize(clip.encode_text(tokenize([f"a photo of {name}", f"a {name}"])), dim=-1)
            columns.append(F.normalize(each.mean(dim=0), dim=-1))
        image = F.normalize(clip.encode_image(pixels), dim=-1)
        expected = clip.logit_scale.exp() * image @ torch.stack(columns).T
        assert torch.allclose(model(pixels), expected, atol=1e-5)


def test_half_precision_weights_are_attacked_in_float32():
    model = zero_shot(CLIP(TINY).to(torch.bfloat16).eval(), ["cat", "dog"], ("{}",))
    assert {p.dtype for p in [*model.parameters(), model.classes]} == {torch.float32}
    assert model(torch.rand(1, 3, 16, 16)).dtype == torch.float32


def test_a_model_of_open_clip_comes_through_the_same_seam():
    import open_clip

    torch.manual_seed(0)
    vision = {"image_size": 16, "patch_size": 8, "width": 32, "layers": 2, "head_width": 16}
    theirs = open_clip.CLIP(16, vision, {"width": 16, "layers": 1, "heads": 2}).eval()
    names, pixels = ["cat", "dog", "ship"], torch.rand(2, 3, 16, 16)
    model = zero_shot(theirs, names, ("a photo of {}",), tokenizer=open_clip.SimpleTokenizer())
    with torch.no_grad():
        mean, std = (torch.tensor(v).view(3, 1, 1) for v in (OPENAI_MEAN, OPENAI_STD))
        image = theirs.encode_image((pixels - mean) / std, normalize=True)
        text = theirs.encode_text(open_clip.SimpleTokenizer()([f"a photo of {n}" for n in names]), normalize=True)
        assert torch.allclose(model(pixels), theirs.logit_scale.exp() * image @ text.T, atol=1e-5)
        with taps(model) as record:
            model(pixels)
    assert list(record) == [f"visual.model.transformer.resblocks.{i}.attn" for i in (0, 1)]
    result = attack(model, pixels, torch.tensor([0, 1]), PGD(within=Linf("8/255"), steps=2, loss="cosine"))
    assert (result.adversarial - pixels).abs().max() <= 8 / 255 + 1e-6


def test_only_what_looks_at_images_is_tapped():
    model = zero_shot(CLIP(TINY.with_attention(Differential())).eval(), ["cat", "dog"], ("{}",))
    assert list(lambdas(model)) == ["visual.model.vit.blocks.0.attn", "visual.model.vit.blocks.1.attn"]
    with taps(model) as record:
        model(torch.rand(1, 3, 16, 16))
    assert list(record) == list(lambdas(model))


# ------------------------------------------------------------------------------------------------- attention inside a CLIP

CAPTIONS = [  # of Flickr8k
    "A child in a pink dress is climbing up a set of stairs in an entry way .",
    "A girl going into a wooden building .",
    "A black dog and a spotted dog are fighting",
    "A little girl covered in paint sits in front of a painted rainbow with her hands in a bowl .",
]


def test_maps_of_captions_are_correlated_row_by_row_and_token_by_token():
    clip = CLIP(TINY.with_attention(Differential())).eval()
    found = {each.perturbation: each for each in caption_correlation(clip, CAPTIONS)}
    assert set(found) == {"short", "long", "short, inserted", "long, inserted"}
    assert {name: len(each.l2) for name, each in found.items()} == dict.fromkeys(found, 2)
    with torch.no_grad(), taps(clip.text) as record:
        clip.encode_text(tokenize([CAPTIONS[1]]))
    a, b = (m[0, :, :10, :10] for m in (record["blocks.0.attn"].signal, record["blocks.0.attn"].noise))
    by_hand = [np.mean([np.corrcoef(a[h, r, : r + 1], b[h, r, : r + 1])[0, 1] for r in range(3, 10)]) for h in (0,)]
    assert found["short"].statistics["pearson"][0] == pytest.approx(by_hand, abs=1e-4)
    assert np.isnan(found["short"].statistics["change_cosine"]).all()  # nothing moved
    assert np.isfinite(found["short, inserted"].statistics["change_cosine"]).all()


def test_tokens_before_an_inserted_word_do_not_move():
    clip = CLIP(TINY.with_attention(Differential())).eval()
    before, after = tokenize(["a dog runs home"]), tokenize(["a dog runs quickly home"])
    with torch.no_grad(), taps(clip.text) as record:
        clip.encode_text(before)
        first = record["blocks.0.attn"].signal
        clip.encode_text(after)
    assert torch.allclose(first[0, :, :4, :4], record["blocks.0.attn"].signal[0, :, :4, :4], atol=1e-6)


@pytest.mark.parametrize(
    ("captions", "named"),
    [
        (["a"], "has 3 tokens"),
        (["cat " * 80], "has 82 tokens"),
        ([""], "a text is empty"),
        ([], "at least one caption"),
    ],
)
def test_captions_that_cannot_be_read_get_one_sentence(captions, named):
    with pytest.raises(InputError, match=named):
        caption_correlation(CLIP(TINY.with_attention(Differential())), captions)


# ------------------------------------------------------------------------------------------------- the command line


def published(config, path, seed=0):
    """A random model in the authors' container."""
    state = {}
    for ours, tensor in CLIP(config, seed).state_dict().items():
        names = their_names(ours, config)
        parts = tensor.chunk(len(names)) if len(names) > 1 else [tensor]
        state |= {f"module.{name}": part.clone() for name, part in zip(names, parts)}
    held = {"epoch": 1, "state_dict": state, "best_acc1": np.float64(1.5), "args": argparse.Namespace(lr=5e-4)}
    torch.save(held, path)
    return path


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A CLIP and a DiffCLIP with the real vocabulary, as runs."""
    folder = tmp_path_factory.mktemp("clips")
    small = replace(TINY, vision=replace(TINY.vision, image=32))
    clip = convert(str(published(small, folder / "clip.pt")), folder / "clip", heads=4, text_heads=2)
    diffclip = convert(str(published(small.with_attention(Differential()), folder / "diff.pt")), folder / "diffclip")
    return clip, diffclip


def test_a_converted_run_holds_the_very_weights(fixtures, tmp_path, cli):
    code, out, _ = cli("convert", fixtures / "diffclip.pt", tmp_path / "run")
    assert code == 0
    assert "assumed: lambda_init = 0.8" in out
    assert "WARNING: lambda >= 1" in out  # of this fixture's third layer
    model, expected = Run(tmp_path / "run").model(), torch.load(fixtures / "diffclip.expected.pt", weights_only=True)
    with torch.no_grad():
        assert (model.encode_image(expected["image"]) - expected["image_embed"]).abs().max() < 1e-5
    assert cli("convert", fixtures / "diffclip.pt", tmp_path / "run")[0] == 0  # the same conversion twice is one
    told = ("--heads", 4, "--text-heads", 4)
    assert "holds another run" in cli("convert", fixtures / "clip.pt", tmp_path / "run", *told)[2]


def test_the_schedule_is_told_on_the_command_line(fixtures, tmp_path, cli):
    code, out, _ = cli("convert", fixtures / "diffclip_dynamic.pt", tmp_path, "--lambda-init", "schedule", "--json")
    assert code == 0
    result = json.loads(out)
    assert (result["title"], result["assumed"]) == ("DiffCLIP-star", [])
    assert result["lambda"][0]["lambda"] == pytest.approx(-0.30131, abs=1e-5)
    assert result["lambda"][0]["flags"] == ["lambda <= 0: the subtraction adds"]


def test_attack_and_measure_run_on_a_clip_with_no_flag_of_its_own_but_the_prompts(converted, cli, data_root):
    images = ("--data", "cifar10", "--data-root", data_root, "--images", 4, "--json")
    for run in converted:
        attacked = [
            json.loads(cli("attack", run.folder, *images, "--eps", "8/255", "--steps", 2, "--prompts", prompts)[1])
            for prompts in ("paper", "a")
        ]
        assert [result["cells"][0]["prompts"] for result in attacked] == ["paper", "a"]
        assert attacked[0]["cells"][0]["model"] == run.config.title
    assert len(list((converted[0].folder / "texts").glob("*"))) == 2  # prompts are encoded once a set
    words = ("--draws", 2, "--probes", 2, "--max-probes", 2)
    code, out, err = cli("measure", converted[1].folder, *images, *words, "--base", converted[0].folder)
    assert code == 0, err
    result = json.loads(out)
    assert {"lipschitz", "alignment", "cancellation", "lambda", "correlation"} <= result.keys()
    assert [row["layer"] for row in result["lambda"]][-1] == "text.blocks.0.attn"


def test_a_pair_of_clips_is_compared_and_reported(converted, cli, data_root, tmp_path):
    images = ("--data", "cifar10", "--data-root", data_root, "--images", 4)
    few = ("--eps", "8/255", "--steps", 2, "--restarts", 1, "--draws", 2, "--probes", 2, "--max-probes", 2)
    code, _, err = cli("compare", *(r.folder for r in converted), "--out", tmp_path, *images, *few)
    assert code == 0, err
    result = json.loads((tmp_path / "comparison.json").read_text())
    assert result["differences"] == []
    assert result["models"][1]["prompts"] == "paper"
    assert cli("report", tmp_path)[0] == 0
    assert "by prompts" in (tmp_path / "report/index.html").read_text()


BAD = [
    (["attack", "RUN"], "name images with --data"),
    (["attack", "RUN", "--data", "digits"], "a CLIP looks at colour images"),
    (["attack", "RUN", "--data", "cifar10", "--image-size", "64"], "give --image-size 32"),
    (["attack", "RUN", "--data", "cifar10", "--prompts", "poems"], "prompts 'poems' are not known"),
    (["convert", "nowhere.pt", "OUT"], "nowhere.pt is not a checkpoint file"),
    (["convert", "no/where/at-all", "OUT"], "is not a checkpoint file"),
    (["convert", "FIXTURES/clip.pt", "OUT"], "give --heads"),
    (["convert", "FIXTURES/clip.pt", "OUT", "--heads", "4", "--text-heads", "4", "--lambda-init", "0.5"], "no use"),
    (["convert", "FIXTURES/diffclip.pt", "OUT", "--lambda-init", "many"], "lambda_init='many'"),
    (["convert", "FIXTURES/diffclip.pt", "OUT", "--lambda-init", "0.1/0.2"], "2 values for a model of depth 3"),
    (["convert", "FIXTURES/README.md", "OUT"], "is not a checkpoint file"),
    (["convert", "FIXTURES/diffclip.pt", "FIXTURES"], "is not empty and not a run"),
]


@pytest.mark.parametrize(("words", "named"), BAD)
def test_the_command_line_refuses_in_one_sentence(
    words, named, converted, fixtures, cli, data_root, tmp_path, monkeypatch
):
    monkeypatch.setenv("ANTIPHASE_DATA", str(data_root))
    real = {"RUN": str(converted[1].folder), "OUT": str(tmp_path / "out"), "FIXTURES": str(fixtures)}
    code, out, err = cli(*(re.sub("RUN|OUT|FIXTURES", lambda m: real[m[0]], word) for word in words))
    assert (code, out) == (2, "")
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
    assert not (fixtures / ".lock").exists()


def test_a_name_on_the_hub_is_fetched_when_online_and_refused_in_a_sentence_when_not(
    fixtures, tmp_path, monkeypatch, cli
):
    import huggingface_hub

    monkeypatch.setattr("antiphase.models.convert._is_offline", lambda: True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    code, _, err = cli("convert", "somebody/some-clip", tmp_path / "run")
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "cannot be reached" in err

    def download(name, file, local_files_only):
        assert (name, file, local_files_only) == ("somebody/some-clip", "checkpoint_best.pt", True)
        return str(fixtures / "diffclip.pt")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert cli("convert", "somebody/some-clip", tmp_path / "run")[0] == 0


@pytest.mark.slow
def test_a_full_size_random_checkpoint_converts_and_classifies_a_photograph(tmp_path, data_root):
    config = preset("B/16", "DiffCLIP")
    run = convert(str(published(config, tmp_path / "checkpoint_best.pt")), tmp_path / "run")
    assert parameters(run.model()) == 149_629_185
    images = load("imagenet", "test", root=data_root).subset(1)
    model = run.classifier_for(images)
    with torch.no_grad(), taps(model) as record:
        logits = model(images.all.pixels)
    assert logits.shape == (1, 1000)
    assert logits.isfinite().all()
    assert len(record) == 12
    assert record["visual.model.vit.blocks.11.attn"].noise.shape == (1, 6, 197, 197)
