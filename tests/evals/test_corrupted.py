"""Evaluations under natural corruptions, by the command `antiphase eval RUN --on corrupted`."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from antiphase.config import Names
from antiphase.data import load
from antiphase.data.corruption_table import CORRUPTIONS
from antiphase.data.corruptions import corrupted
from antiphase.evals import corrupted as evaluator
from antiphase.evals.config import CorruptionQuestion, EvalConfig
from antiphase.evals.corrupted import under_corruption
from antiphase.measures import correlation as measured
from antiphase.measures.calibration import ece
from antiphase.measures.perturbations import displaced
from antiphase.models.run import Run
from antiphase.rates import wilson
from antiphase.results.ask import ask
from antiphase.store import read_entry

WORDS = [
    "--on",
    "corrupted",
    "--images",
    24,
    "--corruptions",
    "gaussian_noise,contrast,saturate",
    "--severities",
    "1,5",
]


def test_a_differential_run_under_corruptions_and_a_second_look_that_is_read_from_disk(cli, pair, digits):
    folder = pair[1].folder
    code, out, err = cli("eval", folder, *WORDS, "--json")
    assert code == 0, err
    (cell,) = json.loads(out)["cells"]
    assert cell["settings"] == {"corruptions": ["gaussian_noise", "contrast"], "severities": [1, 5]}
    assert cell["refused"] == {"saturate": "grey images have no saturation"}
    images = digits[1].subset(24)
    model = pair[1].classifier()
    for part, severity in zip(cell["corruptions"][1]["severities"], (0, 1, 5)):
        seen = images if severity == 0 else corrupted(images, "contrast", severity)
        with torch.no_grad():
            sure, chosen = model(seen.all.pixels).softmax(dim=1).max(dim=1)
        correct = chosen.numpy() == images.labels
        assert part["severity"] == severity
        assert part["accuracy"]["value"] == correct.mean()
        assert part["accuracy"]["interval"] == pytest.approx(wilson(correct.mean(), 24))
        assert part["confidence"]["value"] == pytest.approx(float(sure.mean()), abs=1e-5)
        assert part["ece"]["value"] == pytest.approx(ece(sure.double().numpy(), correct), abs=1e-5)
        assert [layer["layer"] for layer in part["layers"]] == ([] if severity == 0 else ["model.blocks.0.attn"])
    rows = {row["name"]: row for row in json.loads(out)["rows"]}
    parts = [part["accuracy"]["value"] for each in cell["corruptions"] for part in each["severities"][1:]]
    assert rows["accuracy, corrupted"]["value"] == pytest.approx(np.mean(parts))
    assert rows["accuracy, noise"]["value"] == pytest.approx(np.mean(parts[:2]))
    assert rows["accuracy, clean"]["n"] == 24
    assert cli("eval", folder, *WORDS, "--json")[1] == out  # seconds and all


def test_one_more_corruption_reads_what_is_there_and_computes_that_one(cli, pair, monkeypatch):
    folder = pair[1].folder
    assert cli("eval", folder, *WORDS)[0] == 0
    computed = []
    original = evaluator.corruption_conditions
    monkeypatch.setattr(
        evaluator, "corruption_conditions", lambda *a, **k: computed.append(a[2].corruption) or original(*a, **k)
    )
    more = [str(word).replace("saturate", "pixelate") for word in WORDS]
    assert cli("eval", folder, *more)[0] == 0
    assert computed == ["pixelate"]


def test_the_table_fits_80_columns_and_says_what_was_left_out(cli, pair):
    every = [word if word != "1,5" else "1,2,3,4,5" for word in WORDS]
    every[every.index("gaussian_noise,contrast,saturate")] = "gaussian_noise,elastic_transform,saturate"
    code, out, err = cli("eval", pair[1].folder, *every)
    assert code == 0, err
    table = out[out.index("accuracy in % under corruptions") :].splitlines()
    (header,) = [line for line in table if "mean" in line and "ECE" in line and line.strip().startswith("corruption")]
    assert header.split() == ["corruption", "1", "2", "3", "4", "5", "mean", "ECE", "conf", "cos", "left"]
    lines = [line for line in table if line.strip().startswith(("gaussian_noise ", "elastic_transform "))]
    assert len(lines) == 2
    assert all(len(line) <= 80 for line in [header, *lines])
    assert "left out: saturate, grey images have no saturation" in out


def test_a_softmax_run_has_accuracy_and_calibration_and_no_maps(cli, pair):
    code, out, err = cli("eval", pair[0].folder, *WORDS)
    assert code == 0, err
    assert " conf" in out
    assert " cos " not in out


def test_the_cosine_of_changes_is_that_of_the_map_correlation(pair, digits, monkeypatch):
    """Two routes: the cosine of a corruption's answer, and the cosine of changes that the maps' correlation measures."""
    images, question = digits[1].subset(8), CorruptionQuestion(corruption="fog", severities=(4,))
    answer = under_corruption(pair[1], images, question).content
    assert ask(pair[1], images, question).content["seconds"] == answer["seconds"]  # one door, one answer
    moved = corrupted(images, "fog", 4)
    monkeypatch.setattr(measured, "perturbed", lambda _, batch, *__: displaced(batch, moved.source.read(batch.ids)))
    _, layer = measured.correlation(pair[1].classifier(), images, perturbations=("blur",))
    cosines = layer.statistics["change_cosine"].mean(axis=1)
    assert answer["severities"][1]["layers"][0]["cos"]["value"] == pytest.approx(cosines.mean(), abs=1e-6)


def test_a_clip_is_asked_on_images_that_are_named(clip, cli, data_root):
    words = ["--images", 6, "--corruptions", "jpeg_compression", "--severities", "2", "--data-root", data_root]
    code, out, err = cli("eval", clip.folder, "--on", "cifar10", "--tasks", "corrupted", *words, "--json")
    assert code == 0, err
    (cell,) = json.loads(out)["cells"]
    assert cell["data"]["name"] == "cifar10"
    assert cell["corruptions"][0]["severities"][1]["accuracy"]["n"] == 6


CONTRAST_OF_CIFAR_C = (0.75, 0.5, 0.4, 0.3, 0.15)  # what is kept of it, as published for images of 32 pixels


@pytest.fixture(scope="module")
def own_pngs(tmp_path_factory, data_root):
    """A user's folder: one folder per class, PNGs, 96 of three classes of CIFAR-10 to learn from and 96 to test on."""
    folder = tmp_path_factory.mktemp("own") / "pictures"
    for split in ("train", "test"):
        images = load("cifar10", split, root=data_root)
        for label in range(3):
            of_class = images.take(np.flatnonzero(images.labels == label)[:32]).all
            place = folder / split / images.class_names[label]
            place.mkdir(parents=True)
            for i, pixels in enumerate((of_class.pixels * 255).round().byte().permute(0, 2, 3, 1).numpy()):
                Image.fromarray(pixels).save(place / f"{i}.png")
    return folder


def test_accuracy_on_a_folder_of_pngs_is_that_of_the_published_definition(own_pngs, tmp_path, shell):
    """Contrast as CIFAR-10-C has it: each channel is moved to its mean. Files are read, changed and classified here once more."""
    run = tmp_path / "run"
    trained = shell(
        *("train", "--data", own_pngs, "--out", run, "--attention", "differential", "--epochs", 6),
        *("--patch", 8, "--width", 32, "--heads", 2, "--batch-size", 32, "--lr", "2e-3"),
    )
    assert trained.returncode == 0, trained.stderr
    asked = ("--images", 96, "--corruptions", "contrast", "--severities", "1,3,5", "--json")
    done = shell("eval", run, "--on", "corrupted", *asked)
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    by_path = json.loads(shell("eval", run, "--on", own_pngs, "--tasks", "corrupted", *asked).stdout)["cells"]
    assert by_path == [cell]

    files = sorted((own_pngs / "test").rglob("*.png"))
    pixels = np.stack([np.asarray(Image.open(file), dtype=np.float64) / 255 for file in files])
    names = [folder.name for folder in sorted((own_pngs / "test").iterdir())]
    labels = np.array([names.index(file.parent.name) for file in files])
    means, model, rates = pixels.mean(axis=(1, 2), keepdims=True), Run(run).classifier(), []
    for part in cell["corruptions"][0]["severities"]:
        kept = CONTRAST_OF_CIFAR_C[part["severity"] - 1] if part["severity"] else 1.0
        moved = np.clip((pixels - means) * kept + means, 0, 1)
        with torch.no_grad():
            correct = model(torch.from_numpy(moved).float().permute(0, 3, 1, 2)).argmax(dim=1).numpy() == labels
        assert (part["accuracy"]["value"], part["accuracy"]["n"]) == (correct.mean(), 96)
        rates.append(correct.mean())
    assert len(set(rates)) > 1  # it matters to this model


def test_answers_hold_every_image_by_its_id_and_a_digest(pair, digits):
    images = digits[1].subset(10)
    entry = under_corruption(pair[0], images, CorruptionQuestion(corruption="contrast", severities=(3,)))
    per_image = read_entry(entry.path).content["per_image"]
    assert per_image["image"] == [*images.ids.tolist()] * 2
    assert per_image["severity"] == [0] * 10 + [3] * 10


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--corruptions gausian_noise", "there is no corruption 'gausian_noise': did you mean 'gaussian_noise'?"),
        ("--corruptions frost", "the corruption 'frost' is left out here: it needs photographs of frost"),
        ("--corruptions ,", "no corruption is named: give --corruptions"),
        ("--corruptions saturate", "no corruption is left for digits: saturate makes no sense"),
        ("--severities 0,1", "severity '0' does not exist: --severities takes some of 1,2,3,4,5"),
        ("--severities high", "severity 'high' does not exist"),
        ("--tasks probe", "--tasks probe is for none of corrupted"),
    ],
)
def test_wrong_names_and_severities_are_refused_in_one_sentence(cli, pair, words, sentence):
    code, out, err = cli("eval", pair[1].folder, "--on", "corrupted", "--images", 4, *words.split())
    assert code == 2
    assert not out
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_severities_are_sorted_and_names_taken_once():
    config = EvalConfig(corruptions=Names("fog,all,fog"), severities=Names("5,1,5"))
    assert config.corruption_names[0] == "fog"
    assert len(config.corruption_names) == len(CORRUPTIONS)
    assert config.corruption_question("fog").severities == (1, 5)
