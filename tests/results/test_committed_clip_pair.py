"""The committed CLIP and DiffCLIP are what their logs say, and one command each attacks and measures them."""

import json
import shutil

import pytest

from antiphase.data import load
from antiphase.measures.success import accuracy
from antiphase.models.run import Run
from tests.conftest import ROOT

PAIR = ROOT / "results" / "clip-pair"


@pytest.fixture(scope="module", params=["CLIP", "DiffCLIP"])
def run(request, tmp_path_factory):
    """A copy: what an attack keeps does not belong into the committed folder."""
    folder = tmp_path_factory.mktemp("pair") / request.param
    shutil.copytree(PAIR / request.param, folder, ignore=shutil.ignore_patterns("attacks", "measures", "texts"))
    return Run(folder)


def test_the_pair_is_small_and_whole():
    weights = list(PAIR.rglob("*.safetensors"))
    assert {p.parent.name for p in weights if p.name.startswith("weights")} == {"CLIP", "DiffCLIP"}
    assert sum(p.stat().st_size for p in weights if p.name.startswith("weights")) < 4e6


def test_it_learned_from_all_of_cifar10_and_reaches_half(run):
    assert run.about["data"]["train"]["images"] == 50_000
    assert run.log[-1]["zero_shot_accuracy"] >= 0.5  # chance is 0.1
    assert run.log[-1]["signs"] == []
    assert bool(run.log[-1]["lambda"]) == (run.config.title == "DiffCLIP")


def test_its_accuracy_is_the_logged_one(run, data_root):
    """On 2,000 of the 10,000 images, within three standard errors."""
    images = load("cifar10", "test", root=data_root).subset(2000)
    logged = run.log[-1]["zero_shot_accuracy"]
    assert accuracy(run.classifier_for(images), images) == pytest.approx(logged, abs=3 * (0.25 / 2000) ** 0.5)


def test_the_twins_were_trained_alike():
    first, second = (Run(PAIR / name) for name in ("CLIP", "DiffCLIP"))
    assert first.about["training"] == second.about["training"]
    assert first.about["data"] == second.about["data"]
    assert first.about["environment"] == second.about["environment"]


def test_it_is_attacked_and_measured_by_one_command_each(run, cli, data_root, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_DATA", str(data_root))
    code, out, err = cli("attack", run.folder, "--eps", "2/255", "--images", 50, "--json")
    assert code == 0, err
    (cell,) = json.loads(out)["cells"]
    assert (cell["data"]["name"], cell["prompts"]) == ("cifar10", "own")
    assert cell["rates"]["robust_accuracy"]["value"] < cell["rates"]["clean_accuracy"]["value"]
    code, out, err = cli("measure", run.folder, "--images", 4, "--json")
    assert code == 0, err
    assert ("alignment" in json.loads(out)) == (run.config.title == "DiffCLIP")
