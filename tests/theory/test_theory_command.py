"""The audit from the command line."""

import json
from dataclasses import replace

from antiphase.models import ViTConfig
from antiphase.theory import table
from antiphase.theory.evidence import Evidence, read
from antiphase.training import TrainConfig
from antiphase.training.loop import train
from tests.theory.evidence_of_models import NAMES

SIZES = ["--images", "6", "--probes", "4", "--draws", "4"]


def test_the_command_prints_every_row_and_keeps_what_it_measured(pair, cli):
    vit, diff = (run.folder for run in pair)
    code, out, err = cli("theory", diff, "--base", vit, *SIZES)
    assert (code, err) == (0, "")
    for name in NAMES:
        assert f"\n{name}: " in out
    code, stored, _ = cli("theory", "--base", vit, *SIZES, diff, "--json")
    result = json.loads(stored)
    assert code == 0
    assert [row["name"] for row in result["rows"]] == NAMES
    assert result["environment"]["threads"] >= 1
    assert result["seconds"] > 0
    assert len(result["ids"]) == 6
    assert len(result["evidence"]["layers"][0]["points"]["clean"]["n1"]) == 6
    again = table.audit(read(Evidence, result["evidence"]))
    assert [row.verdict.why for row in again] == [row["verdict"] for row in result["rows"]]
    assert all(len(line) <= 100 for line in out.splitlines())


def test_the_command_works_without_a_baseline(pair, cli):
    code, out, _ = cli("theory", pair[1].folder, "--images", 2, "--probes", 2, "--draws", 2)
    assert code == 0
    assert "Theorem 2: not evaluated: needs --base" in out
    assert "J1 of the same" in out


def test_what_cannot_be_audited_is_refused_in_a_sentence(pair, cli, digits, tmp_path):
    vit, diff = (run.folder for run in pair)
    deep = ViTConfig(patch=4, width=16, heads=4, depth=2)
    train(deep, TrainConfig(epochs=1), *digits, tmp_path / "deep")
    other = tmp_path / "other"
    elsewhere = [replace(part, name="letters") for part in digits]
    train(ViTConfig(patch=4, width=16, heads=4), TrainConfig(epochs=1), *elsewhere, other)
    for words, said in (
        ((vit,), "no layer with two branches"),
        ((diff, "--base", diff), "takes a softmax model"),
        ((diff, "--base", tmp_path / "deep"), "the depths must be equal"),
        ((diff, "--base", other), "the data must be the same"),
        ((diff, "--base", tmp_path / "none"), "there is no folder"),
        ((diff, "--probes", "1"), "probes=1"),
    ):
        code, out, err = cli("theory", *words)
        assert (code, out) == (2, "")
        assert said in err
        assert len(err.strip().splitlines()) == 1
