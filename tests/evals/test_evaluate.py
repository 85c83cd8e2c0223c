"""Whole evaluations, by the command `antiphase eval`."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from antiphase.config import InputError
from antiphase.data.pair_catalog import load_pairs
from antiphase.data.readers.mmvp import load_mmvp
from antiphase.evals.config import GROUPS, EvalConfig
from antiphase.evals.evaluate import evaluate
from antiphase.evals.mmvp import TEMPLATE
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.tokenizer import encode
from antiphase.models.zero_shot import class_embeddings
from antiphase.store import read_entry
from tests.data.trees import TREES, mmvp
from tests.evals.small_models import clip_run


def test_a_second_probe_of_a_vit_on_digits_is_read_from_disk(cli, pair):
    words = ["eval", pair[1].folder, "--on", "digits", "--costs", 3]
    code, out, err = cli(*words, "--json")
    assert code == 0, err
    result = json.loads(out)
    rows = {row["name"]: row for row in result["rows"]}
    assert rows["linear probe"]["value"] > 0.8
    assert rows["few-shot"]["value"] > 0.8
    assert rows["linear probe"]["n"] == 64
    assert rows["linear probe"]["published"] is None
    assert cli(*words, "--json")[1] == out  # seconds and all: from the cells
    kept = sorted((pair[1].folder / "evals").glob("*.json"))
    assert [read_entry(path).content["task"] for path in kept].count("probe") == 1  # with its digest
    code, table, _ = cli(*words)
    assert "linear probe on digits: right, of 64 digits test images after 500 training images" in table
    assert "published" not in table


def test_a_clip_retrieves_real_captions(clip, cli, data_root):
    code, out, err = cli("eval", clip.folder, "--on", "flickr8k", "--images", 50, "--data-root", data_root, "--json")
    assert code == 0, err
    rows = {row["name"]: row for row in json.loads(out)["rows"]}
    pairs = load_pairs("flickr8k", "test", root=data_root, image_size=16).subset(50)
    model = clip.model()
    with torch.no_grad():
        image = F.normalize(model.encode_image(pairs.pixels(np.arange(50))), dim=-1)
        text = F.normalize(torch.cat([model.encode_text(model.tokenize(list(c))) for c in pairs.captions]), dim=-1)
    nearest = (text @ image.T).topk(10).indices
    hits = (nearest == torch.arange(50).repeat_interleave(5)[:, None]).any(dim=1)
    assert rows["image retrieval R@10"]["value"] == pytest.approx(hits.float().mean().item(), abs=1 / 250)
    assert rows["image retrieval R@10"]["n"] == 250
    assert rows["text retrieval R@10"]["n"] == 50
    text_config = clip.config.text
    cut = sum(len(encode(t, text_config.tokenizer)) > text_config.context for c in pairs.captions for t in c)
    (cell,) = json.loads(out)["cells"]
    assert cell["settings"].get("captions cut", 0) == cut
    assert (f"{cut:,} captions cut to the {text_config.context} tokens" in rows["text retrieval R@10"]["of"]) == (
        cut > 0
    )


def test_captions_left_out_or_cut_are_counted_in_the_result_and_printed(clip, cli, tmp_path, data_root):
    photographs = tmp_path / "own" / "Flicker8k_Dataset"
    photographs.mkdir(parents=True)
    for i in range(3):
        Image.new("RGB", (16, 16), (80 * i,) * 3).save(photographs / f"{i}.png")
    lines = [f"{i}.png#0\tpicture number {i}" for i in range(4)]
    (tmp_path / "own" / "Flickr8k.token.txt").write_text("\n".join(lines))
    words = ["eval", clip.folder, "--on", tmp_path / "own", "--split", "all", "--data-root", data_root]
    code, _, err = cli(*words)
    assert code == 2
    assert "--allow missing" in err
    code, out, err = cli(*words, "--allow", "missing", "--json")
    assert code == 0, err
    assert json.loads(out)["cells"][0]["settings"]["skipped"] == {"missing": 1}
    assert "left out of own: 1 images that are not there" in cli(*words, "--allow", "missing")[1]


def test_classes_that_are_the_same_once_cut_are_refused(clip):
    template = "x" * 400 + " {}"
    with pytest.raises(InputError, match="are the same once cut to the"):
        class_embeddings(clip.model(), ("cat", "dog"), (template,))


def test_a_clip_is_evaluated_with_the_prompts_it_was_trained_with(clip, cli, tmp_path, data_root):
    own = clip_run(tmp_path / "own", templates=["a small picture of {}"])
    words = ["--on", "cifar10", "--tasks", "zero-shot", "--images", 20, "--data-root", data_root, "--json"]
    asked = {}
    for run, more in ((clip, []), (own, []), (own, ["--prompts", "a"])):
        code, out, err = cli("eval", run.folder, *words, *more)
        assert code == 0, err
        asked[run.name, *more] = json.loads(out)["cells"][0]["prompts"]
    assert list(asked.values()) == ["paper", "own", "a"]


def test_an_evaluation_names_its_prompts_and_that_they_are_a_fallback_where_the_run_stores_none(
    clip, cli, tmp_path, data_root
):
    own = clip_run(tmp_path / "own", templates=["a small picture of {}"])
    words = ["--on", "cifar10", "--tasks", "zero-shot", "--images", 20, "--data-root", data_root]
    fallback = "; a fallback, since the run stores none: --prompts chooses others"
    named = {
        (clip.folder,): f'classes by the prompts paper: "a photo of {{}}"{fallback}',
        (clip.folder, "--prompts", "paper"): 'classes by the prompts paper: "a photo of {}"',
        (clip.folder, "--prompts", "imagenet80"): 'imagenet80: "a bad photo of a {}." and 79 more',
        (own.folder,): 'classes by the prompts that the run was trained with: "a small picture of {}"',
    }
    for run, sentence in named.items():
        code, out, err = cli("eval", *run, *words)
        assert code == 0, err
        printed = " ".join(out.split())
        assert sentence in printed
        assert ("fallback" in printed) == ("fallback" in sentence)
    _, out, _ = cli("eval", clip.folder, "--on", "cifar10", "--tasks", "probe", *words[4:], "--train-images", 40)
    assert "prompts" not in out  # a probe uses none


def test_ood_and_mmvp_from_their_trees_with_the_mean_of_the_four(clip, cli, tmp_path):
    for name in GROUPS["ood"]:
        TREES[name](tmp_path)
    mmvp(tmp_path)
    code, out, err = cli("eval", clip.folder, "--on", "ood,mmvp", "--data-root", tmp_path, "--json")
    assert code == 0, err
    rows = json.loads(out)["rows"]
    top1 = {row["data"]: row for row in rows if row["name"] == "zero-shot"}
    assert set(top1) == {*GROUPS["ood"], "ood"}
    assert top1["ood"]["value"] == pytest.approx(np.mean([top1[name]["value"] for name in GROUPS["ood"]]))
    assert "among 200 classes" in top1["imagenet-r"]["of"]
    assert "among 1,000 classes" in top1["imagenet-sketch"]["of"]
    assert {row["name"] for row in rows if row["data"] == "mmvp"} >= {"mmvp", "mmvp: Texts", "mmvp, by statement"}
    text, statements = clip.config.text, load_mmvp(root=tmp_path, image_size=16).images.captions
    cut = sum(len(encode(TEMPLATE.format(said), text.tokenizer)) > text.context for (said,) in statements)
    (cell,) = [cell for cell in json.loads(out)["cells"] if cell["task"] == "pairs"]
    assert cell["settings"].get("captions cut", 0) == cut
    assert all(("captions cut" in row["of"]) == (cut > 0) for row in rows if row["data"] == "mmvp")


def test_published_numbers_stand_beside_ours(clip, monkeypatch, cli, tmp_path):
    """Of a model that is taken for the published one: its weights are not to be had here."""
    from antiphase.evals import evaluate

    mmvp(tmp_path)
    words = ["eval", clip.folder, "--on", "mmvp", "--data-root", tmp_path, "--published", "CC12M"]
    code, _, err = cli(*words)
    assert code == 2
    assert "is no published model" in err
    monkeypatch.setattr(evaluate, "check_published", lambda *_: None)
    monkeypatch.setattr(CLIPConfig, "title", "DiffCLIP")
    code, out, err = cli(*words)
    assert code == 0, err
    assert [line for line in out.splitlines() if "mmvp, by statement " in line and "27.6 %" in line]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("VIT --on flickr8k", "is a DiffViT, which has no text tower: retrieval on flickr8k needs a CLIP"),
        ("VIT --on digits --tasks zero-shot", "which has no text tower: zero-shot on digits needs a CLIP"),
        (
            "VIT --on cifar10",
            "takes images of 1 x 8 x 8, and those of cifar10 are 3 x 8 x 8: this run looks at grey images",
        ),
        ("VIT --on cifra10", "there is no data set 'cifra10' to evaluate on: did you mean 'cifar10'?"),
        ("VIT --on digits --tasks probing", "task 'probing' is not known: --tasks takes zero-shot, probe"),
        ("VIT --on digits --tasks retrieval", "--tasks retrieval is for none of digits"),
        ("VIT --on digits --costs 1", "costs=1 must be at least 2"),
        ("VIT --on digits --episodes 10", "episodes=10 must be at least 1000"),
        ("VIT --on digits,mmvp", "mmvp is not below"),
        ("CLIP --on digits", "a CLIP looks at colour images"),
        ("nowhere --on digits", "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_one_sentence(words, sentence, cli, clip, pair, data_root):
    known = {"VIT": pair[1].folder, "CLIP": clip.folder}
    code, out, err = cli("eval", *(known.get(word, word) for word in words.split()), "--data-root", data_root)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_damaged_run_leaves_no_stored_result(tmp_path, data_root):
    run = clip_run(tmp_path / "run")
    (weights,) = run.folder.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    with pytest.raises(InputError, match="is damaged or was altered"):
        evaluate(run, ["cifar10"], ("zero-shot",), EvalConfig(), root=data_root, images=20, keep=False)
    assert not (run.folder / "evals").exists()
