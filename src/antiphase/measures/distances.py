"""How far the nearest adversarial image is: quantiles with intervals, and success against the distance allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphase.attacks.engine import AttackResult
from antiphase.measures.stats import Array, mean_interval, quantile_interval, rate

QUANTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
POINTS = 50  # of the curve, beside zero


def distances(result: AttackResult) -> dict[str, Any]:
    """What `distances_of` says of an attack's result."""
    found = np.where(result.success.numpy(), result.distance.numpy(), np.nan)
    return distances_of(found, result.correct.numpy())


def distances_of(found: Array, correct: NDArray[np.bool_]) -> dict[str, Any]:
    """Of images that were classified correctly, and apart from them of those that were wrong already: never a distance of 0.

    `found` is (n,), NaN where no adversarial image was found. The curve is the share of the correct images whose nearest one
    is at most `at` away; where none was found it is farther than any.
    """
    right = found[correct]
    farthest = float(np.nanmax(right)) if np.isfinite(right).any() else 0.0
    curve = [
        {"at": float(at), **rate(right <= at).plain()}  # NaN is below nothing
        for at in (np.linspace(0, farthest, POINTS + 1) if farthest else [0.0])
    ]
    return {"correct": _spread(right), "wrong": _spread(found[~correct]), "asr": curve}


def _spread(found: Array) -> dict[str, Any]:
    """How many were found, and how far away these are."""
    there = found[np.isfinite(found)]
    return {
        "found": rate(np.isfinite(found)).plain(),
        "mean": mean_interval(there),
        **{name: quantile_interval(there, p) for name, p in QUANTILES.items()},
        "max": float(there.max()) if len(there) else None,
    }
