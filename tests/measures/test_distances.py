"""The smallest perturbation from the command line: distances with n and intervals, and whose they are."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import antiphase as ap
from antiphase.attacks.red_flags import unfound_flags
from antiphase.measures.distances import distances_of
from antiphase.models.run import Run
from antiphase.results import attack

SHORT = ("--images", "40", "--steps", "30")


@pytest.fixture(scope="module")
def folder(pair, tmp_path_factory):
    """A copy of the trained run without what others asked of it."""
    to = tmp_path_factory.mktemp("smallest") / "run"
    shutil.copytree(pair[1].folder, to, ignore=shutil.ignore_patterns("attacks", "measures"))
    return to


def cell_of(cli, folder, *words):
    code, out, err = cli("attack", folder, *words, "--json")
    assert code == 0, err
    (cell,) = json.loads(out)["cells"]
    return cell


def test_distances_of_the_correct_and_of_the_wrong_are_never_mixed():
    found = np.array([0.1, 0.3, np.nan, 0.2, 9.0, np.nan])
    summary = distances_of(found, np.array([True, True, True, True, False, False]))
    right, wrong = summary["correct"], summary["wrong"]
    assert (right["found"]["hits"], right["found"]["n"]) == (3, 4)
    assert (right["median"]["value"], right["max"], right["mean"]["n"]) == (0.2, 0.3, 3)
    assert (wrong["found"]["hits"], wrong["found"]["n"], wrong["median"]["value"]) == (1, 2, 9.0)
    first, last = summary["asr"][0], summary["asr"][-1]
    assert (first["at"], first["hits"]) == (0.0, 0)  # who is wrong already is not fooled at distance zero
    assert (last["at"], last["hits"], last["n"]) == (0.3, 3, 4)  # who was never found is farther than any


def test_without_any_adversarial_image_no_distance_is_reported():
    summary = distances_of(np.full(3, np.nan), np.array([True, True, False]))
    assert summary["correct"]["median"] == {"value": None, "interval": None, "n": 0}
    assert summary["correct"]["max"] is None
    assert summary["asr"] == [
        {"at": 0.0, "value": 0.0, "interval": [0.0, pytest.approx(0.6576, abs=1e-3)], "hits": 0, "n": 2}
    ]
    json.dumps(summary, allow_nan=False)


@pytest.mark.parametrize(
    ("name", "flags", "attack"),
    [
        (
            "cw",
            ("--searches", "4", "--initial-c", "10", "--lr", "0.03"),
            ap.CW(searches=4, steps=30, initial_c=10, lr=0.03),
        ),
        ("ddn", ("--gamma", "0.1", "--initial-eps", "0.5"), ap.DDN(steps=30, gamma=0.1, initial_eps=0.5)),
        ("fmn", ("--norm", "l2"), ap.FMN(steps=30)),
        ("fmn", ("--label", "true"), ap.FMN(steps=30, label="true")),
    ],
)
def test_the_command_gives_the_numbers_that_python_gives(name, flags, attack, cli, folder, digits):
    cell = cell_of(cli, folder, "--attack", name, *SHORT, *flags)
    x, y, ids = digits[1].subset(40).all
    result = ap.attack(Run(folder).classifier(), x, y, attack, ids=ids)
    assert cell["distances"] == ap.distances(result)
    assert cell["eps"] is None
    assert cell["rates"]["asr_change"]["hits"] == int(result.success.sum()) > 30
    assert cell["forwards_per_image"] == float(result.forwards.double().mean())
    unfound = 0 if "true" in flags else int((~result.success).sum())
    assert cell["flags"] == unfound_flags(unfound, 40)
    wrong = cell["distances"]["wrong"]["found"]
    assert wrong["n"] == int((~result.correct).sum()) > 0
    assert wrong["hits"] == (0 if "true" in flags else wrong["n"])  # driven from the true label they are left alone


def test_the_smallest_of_three_attacks_names_its_attack_and_keeps_what_each_found_alone(cli, folder):
    words = ("--attack", "minimal-l2", *SHORT, "--searches", "2", "--save")
    cell = cell_of(cli, folder, *words)
    images, names = cell["images"], ("FMN", "DDN", "CW")
    alone = np.array([images[f"distance_{name}"] for name in names], dtype=float)
    assert np.array_equal(np.nanmin(alone, axis=0), images["distance"])
    assert np.array_equal(np.nanargmin(alone, axis=0), images["broken_by"])
    assert cell["stages"] == {name: images["broken_by"].count(i) for i, name in enumerate(names)}
    assert sum(cell["stages"].values()) == 40
    by_cw = cell_of(cli, folder, "--attack", "cw", *SHORT, "--searches", "2")
    assert cell["alone"]["CW"]["distances"] == by_cw["distances"]
    assert cell["forwards_per_image"] == pytest.approx(sum(cell["alone"][n]["forwards_per_image"] for n in names))
    kept = folder / "attacks" / cell["saved"]["folder"]
    assert sorted(path.name for path in kept.iterdir()) == ["part-00000.json", "part-00000.safetensors"]  # no journal
    stored = load_file(kept / "part-00000.safetensors")
    assert len(stored["ids"]) == 40
    prediction = Run(folder).classifier()(stored["adversarial"]).argmax(dim=1)
    assert prediction.tolist() == [images["adversarial"][images["id"].index(i)] for i in stored["ids"].tolist()]


def test_the_command_prints_a_table_and_writes_a_figure(cli, folder, tmp_path):
    words = ("attack", folder, "--attack", "minimal-l2", *SHORT, "--searches", "2")
    code, out, err = cli(*words, "--out", tmp_path / "out")
    assert code == 0, err
    assert "the nearest was found by: FMN" in out
    assert "forwards and" in out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "attacks.json",
        "images.jsonl",
        "success.png",
        "success.pdf",
    }
    rows = [json.loads(line) for line in (tmp_path / "out" / "images.jsonl").read_text().splitlines()]
    (cell,) = json.loads((tmp_path / "out" / "attacks.json").read_text())["cells"]
    assert len(rows) == 40
    assert [row["distance_CW"] for row in rows if row["label"] == row["clean"]]
    assert max(row["distance"] for row in rows if row["label"] == row["clean"]) == cell["distances"]["correct"]["max"]
    words = ("--norm", "l2", "--eps", "0.5,1", "--images", "24", "--out", tmp_path / "budgets")
    code, out, _ = cli("attack", folder, *words)
    assert code == 0
    assert "255" not in out  # an L2 distance is of no single pixel
    assert len((tmp_path / "budgets" / "images.jsonl").read_text().splitlines()) == 2 * 24


def test_a_minimum_norm_attack_that_finds_nothing_is_flagged(folder, digits, monkeypatch):
    run = Run(folder)
    deaf = lambda self, x: torch.arange(10.0) + 0 * x.flatten(1)[:, :10]  # noqa: ARG005, E731
    monkeypatch.setattr(type(run.classifier()), "forward", deaf)
    (answer,) = attack.attack_answers(run, digits[1].subset(12), [ap.DDN(steps=5)], protocol="fast", seed=9)
    assert unfound_flags(12, 12)[0] in answer.content["flags"]
    assert answer.content["distances"]["correct"]["found"]["hits"] == 0
