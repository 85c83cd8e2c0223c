"""The public face: what `help(ap)` shows exists, its examples run, and a function does what its command does."""

import importlib.util
import json

import numpy as np
import pytest
import torch

import antiphase as ap
from antiphase.config import InputError
from tests.conftest import ROOT


def test_dir_and_all_list_the_documented_names_and_nothing_else():
    documented = [name for names in ap.API.values() for name in names]
    assert len(documented) == len(set(documented))
    assert dir(ap) == sorted(documented) == sorted(ap.__all__)
    for name in documented:
        assert f"ap.{name}" in ap.__doc__
        assert getattr(ap, name).__doc__


def test_functions_named_like_packages_stay_functions_once_these_are_imported():

    assert callable(ap.theory)
    assert callable(ap.report)


def test_the_examples_run_in_the_order_in_which_they_are_listed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = {"ap": ap}
    for names in ap.API.values():
        for name, entry in names.items():
            assert f"ap.{name}" in entry.example
            if entry.runs:
                exec(entry.example, session)
    assert session["page"].is_file()
    assert 0 <= session["rate"]["value"] <= 1


def test_the_page_of_the_interface_is_what_the_docstrings_say():
    path = ROOT / "docs" / "write_api.py"
    spec = importlib.util.spec_from_file_location("write_api", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = path.with_name("api.md").read_text(encoding="utf-8")
    assert written == module.page(), "run python docs/write_api.py"


def test_measure_returns_what_the_command_prints_and_the_same_reading_as_branch_alignment(pair, cli):
    code, out, _ = cli("measure", pair[1].folder, "--measures", "alignment", "--images", 12, "--json")
    assert code == 0
    printed, returned = json.loads(out), ap.measure(str(pair[1].folder), measures="alignment", **{"images": None})
    assert returned["alignment"][0]["reading"] == printed["alignment"][0]["reading"] == "R1"
    few = ap.load("digits", "test").at_most(12)
    again = ap.measure(pair[1], few, measures="alignment")
    assert json.loads(json.dumps(again["alignment"])) == printed["alignment"]
    layers = ap.branch_alignment(pair[1].classifier(), few, probes=8)
    assert [layer.summary() for layer in layers] == again["alignment"][0]["layers"]


def test_what_a_function_returns_prints_as_its_command_does(pair, cli):
    attacked = ap.attack_run(pair[1], eps=["16/255"], steps=2, **{"images": ap.load("digits", "test").at_most(8)})
    code, printed, _ = cli("attack", pair[1].folder, "--images", 8, "--eps", "16/255", "--steps", 2)
    assert code == 0
    assert str(attacked) == repr(attacked) == printed.strip("\n")
    assert json.loads(json.dumps(attacked)) == dict(attacked)


def test_functions_take_an_image_set_or_tensors(pair):
    model, few = pair[1].classifier(), ap.load("digits", "test").at_most(8)
    x, y, _ = few.all
    assert ap.accuracy(model, few) == ap.accuracy(model, (x, y))
    attack = ap.PGD(within=ap.Linf("16/255"), steps=3, random_start=False)
    by_set, by_tensors = ap.attack(model, few, attack), ap.attack(model, x, y, attack)
    assert torch.equal(by_set.adversarial, by_tensors.adversarial)
    assert torch.equal(by_set.adversarial, ap.attack(pair[1], (x, y), attack).adversarial)  # a run, and a tuple
    tensors = ap.ImageSet.of_tensors(x, y)
    draws = [ap.l_sample(model, images, draws=2)[0].summary() for images in (tensors, x)]
    assert draws[0] == draws[1]
    kept = ap.measure(pair[1], (x, y), measures="lipschitz", draws=2)["lipschitz"][0]
    assert kept["data"]["name"] == "tensors"
    assert kept["data"]["n"] == 8


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda run: ap.measure(run, probse=3), "'probse' is no argument here"),
        (lambda run: ap.measure(run, reading="R3"), "'reading' is no argument here"),
        (lambda run: ap.measure(run, images=12), "images are an ImageSet, a tensor"),
        (lambda run: ap.attack_run(run, eps=["4/0"]), "'4/0' is not a budget"),
        (lambda run: ap.attack(run, ap.load("digits", "test"), [ap.fgsm(ap.Linf(0.1))]), "takes one attack"),
        (lambda run: ap.sweep(run, ap.load("digits", "test"), ap.fgsm(ap.Linf(0.1))), "takes a list of attacks"),
        (
            lambda run: ap.attack(run.classifier(), ap.load("digits", "test"), 1, ap.fgsm(ap.Linf(0.1))),
            "brings its labels",
        ),
        (lambda run: ap.attack(run.classifier(), torch.zeros(1, 1, 8, 8), ap.fgsm(ap.Linf(0.1))), "need their labels"),
        (lambda _: ap.ImageSet.of_tensors(torch.zeros(8, 8)), r"a tensor \(n, C, H, W\)"),
        (lambda _: ap.ImageSet.of_tensors(torch.zeros(2, 1, 8, 8), torch.zeros(3).long()), "one label per image"),
        (lambda _: ap.Run("nowhere").about, "there is no folder nowhere"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(pair, call, sentence):
    with pytest.raises(InputError, match=sentence):
        call(pair[1])


def test_compare_without_a_folder_writes_no_page(pair, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = ap.load("digits", "test").at_most(16)
    result = ap.compare(*pair, images=few, eps=["16/255"], measure_images=8, look_images=2)
    assert np.isfinite(result["paired"][0]["both_right"]["p_holm"])
    assert "McNemar" in str(result)
    assert "whole story" not in str(result)
    assert not list(tmp_path.iterdir())
    with_page = ap.compare(*pair, out=tmp_path / "out", images=few, eps=["16/255"], measure_images=8, look_images=2)
    assert (tmp_path / "out" / "comparison.json").is_file()
    assert with_page["paired"] == result["paired"]
