"""Trained models by name."""

import shutil

import pytest
import torch

import antiphase as ap
from antiphase import files
from antiphase.config import InputError
from tests.conftest import ROOT


def test_every_model_of_the_zoo_is_there_with_the_weights_that_were_measured():
    zoo = ap.zoo()
    assert len(zoo) >= 5
    for name in zoo.models:
        assert ap.zoo(name).weights_digest == zoo.models[name]["weights"]
        assert zoo.models[name]["robust_accuracy"]["value"] <= zoo.models[name]["accuracy"]["interval"][1]


@pytest.mark.usefixtures("data_root")
def test_a_model_of_the_zoo_classifies_as_its_table_says():
    test, row = ap.load("cifar10", "test"), ap.zoo().models["desk-vit-d1-s0"]
    few = test.subset(512)
    low, high = row["accuracy"]["interval"]
    assert low - 0.06 < ap.accuracy(ap.zoo("desk-vit-d1-s0").classifier(), few) < high + 0.06
    assert row["accuracy"]["hits"] == round(ap.zoo("desk-vit-d1-s0").log[-1]["test_accuracy"] * len(test))


def test_the_table_and_the_page_have_a_line_for_every_model():
    zoo, page = ap.zoo(), (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    printed = str(zoo)
    for name in zoo.models:
        assert name in printed
        assert f"`{name}`" in page


def test_a_name_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"no model 'desk-vit-d1': did you mean 'desk-vit-d1-s0'\?"):
        ap.zoo("desk-vit-d1")


def test_a_folder_without_an_index_and_other_weights_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_ZOO", str(tmp_path))
    with pytest.raises(InputError, match=r"has no zoo\.json: the models lie in the folder results of a clone"):
        ap.zoo()
    shutil.copy(ROOT / "results" / "zoo.json", tmp_path)
    folder = tmp_path / "pair" / "ViT"
    shutil.copytree(ROOT / "results" / "pair" / "ViT", folder)
    assert torch.is_tensor(next(ap.zoo("desk-vit-d1-s0").classifier().parameters()))
    about = files.read_json(folder / "checkpoint.json")
    about["tensors"]["weights"]["sha256"] = "0" * 64
    files.write_json(folder / "checkpoint.json", about)
    with pytest.raises(InputError, match="its weights changed"):
        ap.zoo("desk-vit-d1-s0")
