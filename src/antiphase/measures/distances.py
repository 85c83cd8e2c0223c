"""How far the nearest adversarial image is: quantiles with intervals, and success against the distance allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphase.attacks.engine import AttackResult
from antiphase.config import check_value
from antiphase.measures.stats import Array, largest_finite, mean_interval, quantile_interval
from antiphase.rates import rate

QUANTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
POINTS = 50  # of the curve, beside zero


def distances(result: AttackResult) -> dict[str, Any]:
    """What `distances_of` says of an attack's result; images that were predicted as its target already are left out."""
    check_value("result", result, AttackResult)
    nearest, attackable = np.where(result.success.numpy(), result.distance.numpy(), np.nan), result.attackable.numpy()
    return distances_of(nearest[attackable], result.correct.numpy()[attackable])


def distances_of(nearest: Array, correct: NDArray[np.bool_]) -> dict[str, Any]:
    """Of images that were classified correctly, and apart from them of those that were wrong already: never a distance of 0.

    `nearest` is (n,), NaN where no adversarial image was found. The curve is the share of the correct images whose nearest one
    is at most `at` away; where none was found it is farther than any.
    """
    of_correct = nearest[correct]
    farthest = largest_finite(of_correct) or 0.0
    curve = [
        {"at": float(at), **rate(of_correct <= at).plain()}  # NaN is below nothing
        for at in (np.linspace(0, farthest, POINTS + 1) if farthest else [0.0])
    ]
    return {"correct": _spread(of_correct), "wrong": _spread(nearest[~correct]), "asr": curve}


def _spread(nearest: Array) -> dict[str, Any]:
    """For how many images an adversarial one was found, and how far away these are."""
    finite = nearest[np.isfinite(nearest)]
    return {
        "found": rate(np.isfinite(nearest)).plain(),
        "mean": mean_interval(finite),
        **{name: quantile_interval(finite, p) for name, p in QUANTILES.items()},
        "max": largest_finite(finite),
    }
