"""The rule by which a comparison of two models is decided, from the paired tests at its budgets. No torch.

first is easier to fool   McNemar's test, Holm-corrected over the budgets, is below LEVEL at one budget or more, and at each of
second ...                these it is the same model that is fooled more often
neither is more robust    it is below LEVEL for the one model at some budgets and for the other at others
no difference shown       it is below LEVEL at no budget
not comparable            no image is classified correctly by both

The tests are over the images that both models classify correctly: an image that is wrong from the start is pushed deeper into
its wrong class by the attack, and says little about robustness.
"""

from __future__ import annotations

from typing import Any, Literal

from antiphase.config import Budget
from antiphase.measures.stats import Contrast, Verdict

Row = dict[str, Any]
LEVEL = 0.05
Outcome = Literal[
    "first is easier to fool",
    "second is easier to fool",
    "neither is more robust",
    "no difference shown",
    "not comparable",
]


def is_significant(test: Row) -> bool:
    """Whether a stored paired test shows a difference, corrected for the number of budgets."""
    return bool(test["p_holm"] < LEVEL)


def decide(comparison: Row) -> Verdict:
    """The verdict, with one contrast per budget at which the models differ: first minus second, of the images fooled."""
    n = comparison["paired"][0]["both_right"]["n"]
    contrasts = tuple(
        Contrast(name=str(Budget(row["eps"])), value=_difference(row["both_right"]), n=n, seeds=1, correct=n)
        for row in comparison["paired"]
        if n and is_significant(row["both_right"])
    )
    first_fooled = {contrast.value is not None and contrast.value > 0 for contrast in contrasts}
    outcome: Outcome
    if not n:
        outcome = "not comparable"
    elif not contrasts:
        outcome = "no difference shown"
    elif len(first_fooled) == 2:
        outcome = "neither is more robust"
    else:
        outcome = "first is easier to fool" if first_fooled == {True} else "second is easier to fool"
    why = f"McNemar on the {n} images that both classify correctly, Holm-corrected"
    return Verdict(outcome=outcome, why=why, contrasts=contrasts)


def _difference(test: Row) -> float:
    return float((test["only_first"] - test["only_second"]) / test["n"])


def largest_gap(comparison: Row) -> Row:
    """The paired test in which the two models differ most, with its budget: of those that show a difference, if any does."""
    rows = comparison["paired"]
    shown = [row for row in rows if is_significant(row["both_right"])]
    return max(shown or rows, key=lambda row: abs(row["both_right"]["only_first"] - row["both_right"]["only_second"]))


def withheld(comparison: Row) -> str | None:
    """Why the verdict does not count, if so: the scale is for tests, or a model is undertrained."""
    floor = comparison["config"]["accuracy_floor"]
    if floor is None:
        return "this scale is for tests"
    weak = [model["name"] for model in comparison["models"] if model["test_accuracy"] < floor]
    return f"{' and '.join(weak)} stayed below {100 * floor:.0f} % test accuracy" if weak else None
