"""Images made for one model and shown to others, judged image by image and kept with the source."""

import json
import shutil

import numpy as np
import pytest

import antiphase as ap
from antiphase.config import InputError
from antiphase.measures.success import predictions
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.training import TrainConfig
from antiphase.training.loop import train

PGD = ap.PGD(within=ap.Linf("32/255"), steps=5)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, digits):
    folder = tmp_path_factory.mktemp("transfer")
    return [
        train(
            ViTConfig(patch=4, width=32, heads=4, attention=(attention,), init="matched"),
            TrainConfig(epochs=6, batch_size=64),
            digits[0].subset(600),
            digits[1].subset(50),
            folder / name,
        )
        for name, attention in (("vit", Softmax()), ("diffvit", Differential()))
    ]


@pytest.fixture(scope="module")
def few(digits):
    return digits[1].subset(20)


def by_hand(source, target, images):
    """(clean, shown, fooled_source) of the target"""
    result = ap.attack(source, images, PGD)
    clean = predictions(target, images)
    return clean, predictions(target, images.with_pixels(result.adversarial)), result.success.numpy()


def test_every_entry_of_the_matrix_is_what_one_gets_by_hand(runs, few):
    models = [run.classifier() for run in runs]
    result = ap.transfer(runs, few, PGD)
    assert result["models"] == ["vit", "diffvit"]
    for i, source in enumerate(models):
        for j, target in enumerate(models):
            clean, shown, fooled = by_hand(source, target, few)
            right, rates = clean == few.labels, result["matrix"][i][j]
            assert rates["transfer_change"]["hits"] == int((shown != clean).sum())
            assert rates["transfer_change"]["n"] == 20
            assert rates["transfer_correct"]["hits"] == int((shown != clean)[right].sum())
            assert rates["transfer_correct"]["n"] == int(right.sum()) == rates["clean_accuracy"]["hits"]
            assert rates["transfer_fooled"]["n"] == int(fooled.sum()) > 0
            if i == j:
                assert rates["transfer_fooled"]["value"] == 1.0  # what fooled a model fools it
    assert ap.transfer(models, few, PGD)["matrix"] == result["matrix"]  # classifiers, with nothing kept


def test_the_command_shows_the_images_of_all_smaller_budgets_too_and_reads_its_answer_again(cli, runs, few):
    del few
    words = ("attack", runs[0].folder, "--on", runs[1].folder, runs[0].folder, "--eps", "16/255,48/255")
    words += ("--steps", "5", "--images", "20")
    code, out, _ = cli(*words)
    assert code == 0
    assert "shown to" in out
    code, out, err = cli(*words, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert [(c["target"]["run"], round(c["eps"] * 255)) for c in result["transfer"]] == [
        ("diffvit", 16),
        ("vit", 16),
        ("diffvit", 48),
        ("vit", 48),
    ]
    for cell, own in zip(result["cells"], result["transfer"][1::2]):  # shown to the source itself
        assert (
            own["images"]["changed"]
            == own["images"]["fooled_source"]
            == [bool(c) for c in cell["images"]["changed_in_run"][0]]
        )
    assert sum(result["transfer"][3]["images"]["changed"]) > sum(result["transfer"][1]["images"]["changed"]) > 0
    kept = sorted((runs[0].folder / "transfers").glob("*.json"))
    assert len([path for path in kept if json.loads(path.read_text())["content"]["eps"] * 255 > 40]) >= 2
    cli(*words)
    assert sorted((runs[0].folder / "transfers").glob("*.json")) == kept


def test_another_target_of_the_same_name_has_an_answer_of_its_own(runs, few, tmp_path, digits):
    other = train(
        runs[1].config, TrainConfig(epochs=1, batch_size=64, seed=5), digits[0].subset(200), few, tmp_path / "diffvit"
    )
    first, second = (ap.transfer([runs[0], target], few, PGD)["matrix"][0][1] for target in (runs[1], other))
    assert first["clean_accuracy"]["hits"] == int((predictions(runs[1].classifier(), few) == few.labels).sum())
    assert second["clean_accuracy"]["hits"] == int((predictions(other.classifier(), few) == few.labels).sum())
    assert first != second


def test_images_that_were_deleted_are_missed_in_a_sentence(runs, few, tmp_path):
    source = tmp_path / "vit"
    shutil.copytree(runs[0].folder, source, ignore=shutil.ignore_patterns("attacks", "transfers"))
    ap.transfer([ap.Run(source)], few, PGD)
    shutil.rmtree(source / "transfers")
    for part in (source / "attacks").glob("*/part-*.safetensors"):
        part.unlink()
    with pytest.raises(InputError, match="are gone: delete"):
        ap.transfer([ap.Run(source)], few, PGD)


def test_eight_bit_images_are_shown_as_they_lie_on_disk(cli, runs):
    words = ("attack", runs[0].folder, "--on", runs[0].folder, "--eps", "48/255", "--steps", "5", "--images", "12")
    code, out, err = cli(*words, "--eight-bit", "--json")
    assert code == 0, err
    (own,) = json.loads(out)["transfer"]
    assert own["images"]["changed"] == own["images"]["fooled_source"]
    assert np.sum(own["images"]["changed"]) > 0


def test_what_is_no_list_of_models_is_refused(runs, few):
    for models in (runs[0], [], [runs[0], runs[1].classifier()]):
        with pytest.raises(InputError, match="transfer takes"):
            ap.transfer(models, few, PGD)
