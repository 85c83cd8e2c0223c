"""The rule by which a first look ranks recipes: fixed before any run. No torch.

A recipe is allowed if it keeps accuracy (test accuracy no more than a point below the plain model's, means over the seeds of the
look) and its training step costs no more than 1.3 of the plain one's. Allowed recipes come first; then the lowest attack success
leads, where an attack with a red flag of masked gradients counts every image as fooled; equal ones stay in the order in which
they are listed. The look decides nothing else: who is ranked first is trained anew from other seeds and attacked on other images,
so that being lucky in the look is of no use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from antiphase.paper.questions import Ask, Cell, Ranking, Recipe
from antiphase.paper.series import Series, Success, Unmasked, Values
from antiphase.paper.study import Answers
from antiphase.store import Content

MARGIN = 0.01  # of accuracy, and of attack success: a point
MOST_COST = 1.3  # of a training step, beside the plain model's
SUCCESS = "asr_correct"


def log_cost(content: Content) -> tuple[Any, Any]:
    """The logarithm of a step's cost beside the plain model's: one number, no images."""
    return np.array([np.log(content["ratio"])]), np.ones(1)


def ranked(ranking: Ranking, answers: Answers) -> Content:
    """Places of recipes in the order of the rule, and the numbers that it rests on."""
    plain = _numbers(ranking.beside, answers)
    looks = [_numbers(recipe, answers) for recipe in ranking.recipes]

    def allowed(look: dict[str, float]) -> bool:
        return look["accuracy"] >= plain["accuracy"] - MARGIN and look["cost"] <= MOST_COST

    order = sorted(range(len(looks)), key=lambda i: (not allowed(looks[i]), looks[i]["success"], i))
    return {
        "order": order,
        "recipes": [recipe.trained[0].title for recipe in ranking.recipes],
        "looks": looks,
        "allowed": [allowed(look) for look in looks],
        "plain": plain,
    }


def _numbers(recipe: Recipe, answers: Answers) -> dict[str, float]:
    def mean(cells: tuple[Ask, ...], values: Values) -> float:
        return float(Series(cells, values).arm(answers).value.mean())

    return {
        "accuracy": mean(recipe.accuracy, Success("accuracy")),
        "success": mean(recipe.attacked, Unmasked(SUCCESS)),
        "cost": float(np.exp(mean(recipe.cost, log_cost))),
    }


def place_of_ranking(ranking: Ranking, place: int, answers: Callable[[Cell], Content]) -> Recipe:
    """The recipe that came out at this place."""
    return ranking.recipes[int(answers(ranking)["order"][place])]
