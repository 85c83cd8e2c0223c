"""A ledger that an earlier version wrote is converted in place, and says the same afterwards."""

import json

import pytest

from antiphase.attacks import PGD, Linf
from antiphase.attacks.question import AttackQuestion
from antiphase.config import Budget, Names, to_plain
from antiphase.measures.questions import (
    AlignmentQuestion,
    CancellationQuestion,
    CorrelationQuestion,
    DepthQuestion,
    LipschitzQuestion,
    PredictionQuestion,
)
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Ask, Evaluate
from antiphase.paper.upgrade import converted
from antiphase.results.questions import BranchPictureQuestion
from antiphase.store import digest_of
from antiphase.theory.question import AuditQuestion

GRID = Grid.at("smoke")
MODEL, BASE, IMAGES = GRID.diffvit(0), GRID.vit(0), GRID.test(32)
ATTACK = PGD(within=Linf("8/255"), steps=10, restarts=2)
OLD = {  # the fields of the earlier kinds, and the question that each stands for
    "Predicted": ({"prompts": None}, PredictionQuestion()),
    "Attacked": ({"attack": to_plain(ATTACK)}, AttackQuestion(attack=ATTACK)),
    "Lipschitz": (
        {"draws": 8, "estimator": "sharp", "level": "block"},
        LipschitzQuestion(draws=8, estimator="sharp", level="block"),
    ),
    "Aligned": (
        {"base": to_plain(BASE), "reading": "R3", "probes": 8, "max_probes": 16},
        AlignmentQuestion(reading="R3", probes=8, max_probes=16),
    ),
    "Cancelled": (
        {"perturbations": ["sign", "pgd"], "eps": 8 / 255},
        CancellationQuestion(perturbations=Names("sign,pgd"), eps=Budget("8/255")),
    ),
    "Propagated": (
        {"perturbations": ["pgd"], "eps": 4 / 255},
        DepthQuestion(perturbations=Names("pgd"), eps=Budget("4/255")),
    ),
    "Correlated": ({}, CorrelationQuestion()),
    "Audited": ({"base": to_plain(BASE), "probes": 8, "draws": 4}, AuditQuestion(probes=8, draws=4)),
    "Looked": ({"attack": to_plain(ATTACK)}, BranchPictureQuestion(attack=ATTACK)),
}


def old_config(kind):
    fields, _ = OLD[kind]
    return {"kind": kind, "of": to_plain(MODEL), "images": to_plain(IMAGES), "seed": 0, **fields}


@pytest.mark.parametrize("kind", OLD)
def test_every_earlier_kind_of_row_stands_for_a_question(kind):
    base = BASE if "base" in OLD[kind][0] else None
    assert converted(old_config(kind)) == Ask(of=MODEL, images=IMAGES, question=OLD[kind][1], base=base)


def test_models_are_as_they_were_and_an_evaluation_keeps_its_sizes():
    assert converted(to_plain(MODEL)) is None
    cell = Evaluate(of=GRID.clip(0), data="digits", task="probe", n=64, train_n=500, costs=7)
    assert converted({**to_plain(cell), "kind": "Evaluated"}) == cell


def test_the_command_converts_a_ledger_once_and_keeps_its_answers(cli, tmp_path):
    (tmp_path / "rows").mkdir()
    answer = {"images": {"label": [1], "clean": [1]}, "accuracy": {"value": 1.0}}
    for number, kind in enumerate(OLD):
        row = {"key": str(number), "kind": kind, "title": "", "config": old_config(kind), "needs": [], "answer": answer}
        row |= {"scale": "smoke", "provenance": {"group": kind, "operations": 1.0, "seconds": 1.0}}
        (tmp_path / "rows" / f"{number}.json").write_text(json.dumps({"digest": digest_of(row), "row": row}))
    (tmp_path / "rows" / "damaged.json").write_text("{")
    code, out, _ = cli("study", "upgrade", "--ledger", tmp_path, "--json")
    counts = {name: json.loads(out)[name] for name in ("converted", "present", "damaged")}
    assert (code, counts) == (0, {"converted": len(OLD), "present": 0, "damaged": 1})
    ledger, cell = Ledger(tmp_path), Ask(of=MODEL, images=IMAGES, question=PredictionQuestion())
    assert ledger.answer(ledger.row(cell)) == answer
    assert "0 rows converted, 9 were as they should be" in cli("study", "upgrade", "--ledger", tmp_path)[1]
