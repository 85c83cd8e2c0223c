"""antiphase convert, and what the other commands do with a converted CLIP."""

import argparse
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from antiphase.data import load
from antiphase.models import Differential
from antiphase.models.checkpoint_formats import their_names
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import preset
from antiphase.models.convert import convert
from antiphase.models.run import Run
from antiphase.models.taps import taps
from tests.conftest import ROOT
from tests.models.small_models import TINY, parameters


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


def test_a_converted_run_holds_the_weights_of_the_checkpoint(fixtures, tmp_path, cli):
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


def test_the_schedule_of_lambda_init_is_given_on_the_command_line(fixtures, tmp_path, cli):
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
    _, out, _ = cli("attack", converted[1].folder, *images[:-1], "--eps", "8/255", "--steps", 2)
    fallback = 'classes by the prompts paper: "a photo of {}"; a fallback, since the run stores none: --prompts chooses'
    assert fallback in " ".join(out.split())
    words = ("--draws", 2, "--probes", 2, "--max-probes", 2)
    code, out, err = cli("measure", converted[1].folder, *images, *words, "--base", converted[0].folder)
    assert code == 0, err
    result = json.loads(out)
    assert {"lipschitz", "alignment", "cancellation", "lambda", "correlation"} <= result.keys()
    assert [row["layer"] for row in result["lambda"]][-1] == "text.blocks.0.attn"


def test_a_converted_clip_that_reads_bytes_classifies_and_is_attacked_as_the_run_it_was_made_of(
    fixtures, tmp_path, cli, data_root
):
    """The checkpoint of README: the DiffCLIP of results/clip-pair under the authors' names."""
    assert cli("convert", fixtures / "diffclip_cifar10.pt", tmp_path / "run")[0] == 0
    given = Run(ROOT / "results/clip-pair/DiffCLIP")
    for name, tensor in given.model().state_dict().items():
        assert torch.equal(Run(tmp_path / "run").model().state_dict()[name], tensor)
    images = load("cifar10", "test", root=data_root).subset(64)
    first, second = (run.classifier_for(images) for run in (given, Run(tmp_path / "run", prompts="a")))
    for theirs, ours in zip(first.modules(), second.modules(), strict=True):
        if isinstance(ours, torch.nn.LayerNorm):
            ours.eps = theirs.eps  # of `init="matched"` that of the softmax twin, 1e-6, which no tensor shows
    with torch.no_grad():
        assert torch.equal(first(images.all.pixels), second(images.all.pixels))
    flags = (
        "--data",
        "cifar10",
        "--data-root",
        data_root,
        "--prompts",
        "a",
        "--images",
        64,
        "--eps",
        "1/255",
        "--json",
    )
    code, out, err = cli("attack", tmp_path / "run", *flags)
    assert code == 0, err
    rates = json.loads(out)["cells"][0]["rates"]
    assert rates["clean_accuracy"]["value"] > 0.4
    assert rates["robust_accuracy"]["value"] < rates["clean_accuracy"]["value"]


def test_an_audit_of_a_clip_names_its_prompts_on_the_terminal_and_on_the_page(converted, cli, data_root, tmp_path):
    images = ("--data", "cifar10", "--data-root", data_root, "--images", 4)
    few = ("--quick", "--steps", 1, "--judge-images", 2, "--judge-queries", 5, "--judge-steps", 1, "--l2-steps", 1)
    code, out, err = cli("audit", converted[1].folder, *images, *few, "--out", tmp_path / "audit")
    assert code == 0, err
    assert 'classes by the prompts paper: "a photo of {}"; a fallback, since the run stores none' in " ".join(
        out.split()
    )
    assert "a fallback, since the run stores none" in (tmp_path / "audit/report/index.html").read_text()


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


def test_a_checkpoint_on_the_hub_is_downloaded_when_online_and_refused_in_a_sentence_when_not(
    fixtures, tmp_path, monkeypatch, cli
):
    import huggingface_hub

    monkeypatch.setattr("antiphase.models.convert.is_offline", lambda: True)
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
