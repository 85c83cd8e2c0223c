"""Attack success rates, each over the denominator that its name says. No torch.

An attack without a target succeeds where the prediction changed, one with a target where the target is predicted. Robust accuracy
is of the first alone: against a target, an image whose prediction changed to yet another class would count as robust.

n images, R restarts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphase.attacks.question import AttackAnswer
from antiphase.rates import Rate, rate

DENOMINATORS = {
    "clean_accuracy": "correct without an attack, of all images",
    "robust_accuracy": "correct and changed by no restart, of all images",
    "asr_change": "prediction changed, of all images, mean over restarts (the paper's rate)",
    "asr_correct": "prediction changed, of the correctly classified images, mean over restarts",
    "asr_union": "prediction changed by at least one restart, of all images",
}
TARGETED = {  # of an attack with a target
    "clean_accuracy": "correct without an attack, of all images",
    "target_reached": "target predicted after at least one restart, of the images not predicted as the target before",
    "target_reached_correct": "the same, of the correctly classified images among these",
}


def rates_of(correct: NDArray[np.bool_], changed_in_restart: NDArray[np.bool_]) -> dict[str, Any]:
    """Of an attack without a target: from which images were classified correctly before it (n,) and which each restart changed
    (R, n)."""
    changed = changed_in_restart.T  # (n, R)
    union = changed.any(axis=1)
    return _plain(
        {
            "clean_accuracy": rate(correct),
            "robust_accuracy": rate(correct & ~union),
            "asr_change": rate(changed),
            "asr_correct": rate(changed[correct]),
            "asr_union": rate(union),
        }
    )


def target_rates_of(
    correct: NDArray[np.bool_], reached_in_restart: NDArray[np.bool_], attackable: NDArray[np.bool_]
) -> dict[str, Any]:
    """Of an attack with a target: which images each restart brought there (R, n), and which were not there before (n,)."""
    reached = np.logical_or.reduce(reached_in_restart)  # (n,)
    return _plain(
        {
            "clean_accuracy": rate(correct),
            "target_reached": rate(reached[attackable]),
            "target_reached_correct": rate(reached[attackable & correct]),
        }
    )


def rates_of_answer(answer: AttackAnswer) -> dict[str, Any]:
    """The rates of a stored answer, from what became of its images; one with a target may have been stored with other rates."""
    if answer.has_target:
        return target_rates_of(answer.correct, answer.changed, answer.attackable)
    return rates_of(answer.correct, answer.changed)


def _plain(rates: dict[str, Rate]) -> dict[str, Any]:
    return {name: value.plain() for name, value in rates.items()}
