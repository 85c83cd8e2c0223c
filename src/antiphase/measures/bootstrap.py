"""Intervals over training seeds and images at once: a bootstrap that draws seeds, then images, the same for every model.

Models are compared on the same images and seed by seed, so both draws are shared by all arms of a comparison (paired). All
seeds look at the same images; an image that is drawn is drawn for every seed. S seeds, n images, R replicates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
REPLICATES = 2_000
Statistic = Callable[..., Array]  # arrays (R, S), one an arm -> (R, S)


@dataclass(frozen=True)
class Arm:
    """One number of one model, as a ratio of sums over images (a mean where every bottom is 1), or as a median."""

    top: Array  # (S, n)
    bottom: Array  # (S, n)
    sample: str = ""  # arms of the same sample are about the same images
    kind: Literal["ratio", "median"] = "ratio"

    @classmethod
    def of(cls, values: Any, sample: str = "", kind: Literal["ratio", "median"] = "ratio") -> Arm:
        """Of one value a seed and image; what is not finite is left out."""
        values = np.atleast_2d(np.asarray(values, dtype=np.float64))
        there = np.isfinite(values)
        return cls(np.where(there, values, 0.0), there.astype(np.float64), sample, kind)

    @classmethod
    def constant(cls, values: Any, sample: str = "") -> Arm:
        """One value a seed, the same whatever images are drawn."""
        column = np.asarray(values, dtype=np.float64)[:, None]
        return cls(column, np.ones_like(column), f"{sample}: no images")

    def at(self, weights: Array) -> Array:
        """(R, n) counts of images -> (R, S)"""
        if self.kind == "median":
            return np.stack([_median(t, b, weights) for t, b in zip(self.top, self.bottom)], axis=1)
        tops, bottoms = weights @ self.top.T, weights @ self.bottom.T
        ratio: Array = np.divide(tops, bottoms, out=np.full_like(tops, np.nan), where=bottoms > 0)
        return ratio


def _median(values: Array, there: Array, weights: Array) -> Array:
    """(n,), (n,), (R, n) -> (R,): the value at which half of the weight is reached"""
    order = np.argsort(values, kind="stable")
    heap = np.cumsum(weights[:, order] * there[order], axis=1)
    place = (heap >= heap[:, -1:] / 2).argmax(axis=1)
    return np.where(heap[:, -1] > 0, values[order][place], np.nan)


def first(a: Array) -> Array:
    return a


def difference(a: Array, b: Array) -> Array:
    return a - b


def log_ratio(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.log(a) - np.log(b)


def replicates(arms: Sequence[Arm], statistic: Statistic, *, draws: int = REPLICATES, seed: int = 0) -> Array:
    """(R + 1,): the statistic on the sample itself, then on each replicate; a mean over seeds."""
    seeds = max(len(arm.top) for arm in arms)
    random = np.random.default_rng([seed, draws])
    chosen = np.vstack([np.ones(seeds), random.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws)])
    weights: dict[str, Array] = {}
    for arm in arms:
        n = arm.top.shape[1]
        if arm.sample not in weights:
            weights[arm.sample] = np.vstack([np.ones(n), random.multinomial(n, np.full(n, 1 / n), size=draws)])
    found = statistic(*(arm.at(weights[arm.sample]) for arm in arms))  # (R + 1, S)
    there = np.isfinite(found) & (chosen > 0)
    total = np.where(there, chosen, 0.0)
    with np.errstate(all="ignore"):
        mean: Array = np.where(there, found * chosen, 0.0).sum(axis=1) / total.sum(axis=1)
    return mean


def interval(
    arms: Sequence[Arm], statistic: Statistic = first, *, level: float = 0.95, draws: int = REPLICATES, seed: int = 0
) -> dict[str, Any]:
    """Value and percentile interval; both None where the statistic does not exist."""
    found = replicates(arms, statistic, draws=draws, seed=seed)
    value, rest = float(found[0]), found[1:][np.isfinite(found[1:])]
    if not np.isfinite(value) or not len(rest):
        return {"value": None, "interval": None}
    low, high = np.quantile(rest, [(1 - level) / 2, (1 + level) / 2])
    return {"value": value, "interval": [float(low), float(high)]}
