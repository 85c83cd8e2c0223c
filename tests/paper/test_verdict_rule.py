"""How claims are decided: the rule, the intervals it reads, and a verdict from rows as a run would file them."""

import numpy as np
import pytest

from antiphase.config import Budget, to_plain
from antiphase.measures.stats import Contrast
from antiphase.paper.catalog import studies
from antiphase.paper.claims import verdicts
from antiphase.paper.contrasts import Series, about_equal, success
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Ask, Train, ordered
from antiphase.paper.study import Answers
from antiphase.paper.verdict_rule import decide, place_of
from antiphase.theory.question import AuditQuestion

# ------------------------------------------------------------------------------------------------- the rule

ENOUGH = {"seeds": 3, "correct": 200, "accuracy": 0.5}


def finding(low, high, **other):
    return Contrast(name="c", value=(low + high) / 2, interval=(low, high), **{**ENOUGH, **other})


UP, DOWN, TINY, OPEN = finding(0.02, 0.1), finding(-0.1, -0.02), finding(-0.008, 0.009), finding(-0.02, 0.1)
RULE = [
    ([UP, UP], "supported", "all 2"),
    ([UP, DOWN], "not supported", "other way round"),
    ([UP, TINY], "not supported", "no effect"),
    ([UP, finding(0.001, 0.009)], "not supported", "no effect"),
    ([UP, finding(0.001, 0.009, threshold=True)], "supported", "all 2"),  # just above a threshold is above it
    ([UP, finding(-0.009, -0.001, threshold=True)], "not supported", "other way round"),
    ([UP, OPEN], "inconclusive", "1 of 2"),
    ([OPEN, DOWN], "not supported", ""),
    ([UP, finding(0.02, 0.1, accuracy=0.39)], "inconclusive", "undertrained"),
    ([finding(-0.1, -0.02, accuracy=0.39)], "inconclusive", "undertrained"),
    ([UP, finding(0.02, 0.1, seeds=2)], "no verdict", "2 seeds, 3 are needed"),
    ([UP, finding(0.02, 0.1, correct=199)], "no verdict", "199 correctly classified"),
    ([UP, Contrast(name="c", missing="no row of X")], "not tested here", "no row of X"),
    ([DOWN, Contrast(name="c", missing="no row of X")], "not supported", ""),
    ([finding(0.02, 0.1, surrogate=True)], "not tested here", "surrogates"),
    ([finding(-0.1, -0.02, surrogate=True)], "not tested here", "surrogates"),
    ([], "not tested here", ""),
]


@pytest.mark.parametrize(("findings", "outcome", "why"), RULE)
def test_a_claim_is_decided_by_the_rule_that_was_fixed_before(findings, outcome, why):
    verdict = decide(findings, floor=0.4)
    assert verdict.outcome == outcome
    assert why in verdict.why


def test_a_scale_for_tests_never_decides():
    for findings, _, _ in RULE:
        assert decide(findings, floor=None).outcome == "no verdict"


def test_an_interval_that_touches_zero_is_open():
    assert [place_of(finding(*i)) for i in ((0.0, 0.1), (1e-9, 0.1), (-0.1, 0.0), (-0.1, -1e-9))] == [
        "open",
        "towards",
        "open",
        "opposite",
    ]


# ------------------------------------------------------------------------------------------------- intervals


@pytest.mark.parametrize(("gaps", "places"), [((0.01, -0.01, 0.0), "towards"), ((0.06, 0.05, 0.07), "opposite")])
def test_about_equal_is_said_of_the_mean_difference(gaps, places, tmp_path):
    """Seeds may scatter to both sides; a gap of five points is not equal."""
    grid, ledger = Grid.at("cpu"), Ledger(tmp_path)
    cells = {
        name: tuple(grid.under_attack(make(seed), grid.pgd(grid.middle)) for seed in range(3))
        for name, make in (("ViT", grid.vit), ("DiffViT", grid.diffvit))
    }
    for name, of_seeds in cells.items():
        for seed, cell in enumerate(of_seeds):
            share = 0.5 + (gaps[seed] if name == "DiffViT" else 0)
            broken = (np.arange(2000) < 2000 * share).astype(int).tolist()
            columns = {"id": list(range(2000)), "label": [0] * 2000, "clean": [0] * 2000}
            answer = {"images": {**columns, "changed_in_run": [broken]}}
            ledger.keep(cell, {"config": to_plain(cell), "answer": answer})
    series = [Series(cells[name], success("asr_change")) for name in ("DiffViT", "ViT")]
    above, below = (
        place_of(c.contrast(Answers(ledger))) for c in about_equal("K1", "gap", "part", "asr_change", series)
    )
    assert (above, below) == (places, "towards")


def test_a_baseline_counts_among_the_models_that_must_be_right(tmp_path):
    grid, ledger = Grid.at("cpu"), Ledger(tmp_path)
    images = grid.test(400)
    question = AuditQuestion(probes=2, draws=1)
    audit = Ask(of=grid.diffvit(0), base=grid.vit(0), images=images, question=question)
    for predictions, wrong in zip(audit.clean_predictions, (0, 300)):
        columns = {"id": list(range(400)), "label": [0] * 400, "clean": [1] * wrong + [0] * (400 - wrong)}
        ledger.keep(predictions, {"config": to_plain(predictions), "answer": {"images": columns}})
    series = Series((audit,), lambda _: (np.ones(1), np.ones(1)))
    assert series.correct(Answers(ledger)) == 100
    assert set(series.models) == {grid.diffvit(0), grid.vit(0)}


def test_a_models_accuracy_is_judged_by_its_depth_1_witness():
    grid = Grid.at("cpu")
    deep = grid.diffvit(2, 4, data="tiny-imagenet")
    assert grid.witness(deep) == grid.diffvit(2)
    assert grid.witness(grid.diffvit(1, lambda_init=0.5)) == grid.diffvit(1, lambda_init=0.5)
    assert grid.witness(grid.vit(0, adv_eps=Budget("1/255"))) == grid.vit(0)


# ------------------------------------------------------------------------------------------------- a claim from rows


def pretend(ledger, grid, changed, accuracy=0.6, leave_out=""):
    """Rows of figure 2 as a run would file them, with a share of broken images by model."""
    cells = ordered(c for name in ("fig2a", "fig2c") for c in studies()[name].cells(grid))
    for cell in cells:
        if leave_out and leave_out in cell.title:
            continue
        if isinstance(cell, Train):
            reached = accuracy if cell.data == grid.data else 0.2  # of more classes fewer are learned: that is no fault
            answer = {"test_accuracy": reached, "train_accuracy": reached, "lambda": [{"lambda": 0.8}]}
        else:
            broken = (np.arange(400) % 10 < 10 * changed[cell.of.model.title]).astype(int).tolist()
            columns = {"id": list(range(400)), "label": [0] * 400, "clean": [0] * 300 + [1] * 100}
            answer = {"images": {**columns, "changed_in_run": [broken]}}
        ledger.keep(cell, {"config": to_plain(cell), "answer": answer})


@pytest.mark.parametrize(
    ("changed", "accuracy", "leave_out", "verdict"),
    [
        ({"ViT": 0.3, "DiffViT": 0.6}, 0.6, "", "supported"),
        ({"ViT": 0.6, "DiffViT": 0.3}, 0.6, "", "not supported"),
        ({"ViT": 0.3, "DiffViT": 0.3}, 0.6, "", "not supported"),
        ({"ViT": 0.3, "DiffViT": 0.6}, 0.3, "", "inconclusive"),
        ({"ViT": 0.3, "DiffViT": 0.6}, 0.6, "cifar100", "not tested here"),
    ],
)
def test_k1_follows_from_the_rows(tmp_path, changed, accuracy, leave_out, verdict):
    ledger, grid = Ledger(tmp_path), Grid.at("cpu")
    pretend(ledger, grid, changed, accuracy, leave_out)
    figure = [studies()[name] for name in ("fig2a", "fig2c")]
    (k1,) = [v for v in verdicts(figure, grid, Answers(ledger)) if v["claim"] == "K1"]
    assert k1["verdict"] == verdict
    assert set(k1["readings"]) == {"asr_change", "asr_correct"}
    if leave_out:
        assert k1["parts"]["cifar10, pixels"]["verdict"] == "supported"
        assert "cifar100" in k1["why"]
