"""Intervals over training seeds and images at once: a bootstrap that draws seeds, then images, the same for every model.

Models are compared on the same images and seed by seed, so both draws are shared by all arms of a comparison (paired). All
seeds look at the same images; an image that is drawn is drawn for every seed. S seeds, n images, R replicates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
from scipy.stats import permutation_test, rankdata

Array = np.ndarray[Any, np.dtype[np.float64]]
REPLICATES = 2_000
Statistic = Callable[..., Array]  # arrays (R, S), one an arm -> (R, S)


@dataclass(frozen=True)
class Arm:
    """One number of one model, as a ratio of sums over images (a mean where every bottom is 1), or as a quantile."""

    top: Array  # (S, n)
    bottom: Array  # (S, n)
    sample: str = ""  # arms of the same sample are about the same images
    quantile: float | None = None  # of the tops whose bottom is 1; None: the ratio

    @property
    def here(self) -> Array:
        """(S,): on the sample itself"""
        here: Array = self.at(np.ones((1, self.top.shape[1])))[0]
        return here

    def at(self, weights: Array) -> Array:
        """(R, n) counts of images -> (R, S)"""
        if self.quantile is not None:
            return np.stack([_quantile(self.quantile, *pair, weights) for pair in zip(self.top, self.bottom)], axis=1)
        tops, bottoms = weights @ self.top.T, weights @ self.bottom.T
        ratio: Array = np.divide(tops, bottoms, out=np.full_like(tops, np.nan), where=bottoms > 0)
        return ratio


def _quantile(q: float, values: Array, there: Array, weights: Array) -> Array:
    """(n,), (n,), (R, n) -> (R,): the value at which this share of the weight is reached"""
    order = np.argsort(values, kind="stable")
    heap = np.cumsum(weights[:, order] * there[order], axis=1)
    place = (heap >= heap[:, -1:] * q).argmax(axis=1)
    return np.where(heap[:, -1] > 0, values[order][place], np.nan)


def first(a: Array) -> Array:
    return a


def difference(a: Array, b: Array) -> Array:
    with np.errstate(invalid="ignore"):  # two quantiles that were not reached
        return a - b


def difference_of_gaps(a: Array, b: Array, c: Array, d: Array) -> Array:
    return np.subtract(a - b, c - d)


def log_ratio(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.log(a) - np.log(b)


def rank_correlation(*values: Array) -> Array:
    """Spearman's, of a few layers: the first half of the arrays against the second; NaN where one half is constant."""
    half = len(values) // 2
    x, y = (rankdata(np.stack(part), axis=0) for part in (values[:half], values[half:]))
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    with np.errstate(invalid="ignore"):
        rho: Array = (x * y).sum(axis=0) / np.sqrt((x**2).sum(axis=0) * (y**2).sum(axis=0))
    return rho


def ranked_alike(x: Array, y: Array) -> tuple[float, float]:
    """Spearman's rho of a few numbers, and the share of orders of x that give one as large: all, or 9,999 at random."""
    test = permutation_test(
        (x,),
        lambda order: float(rank_correlation(*order[:, None], *y[:, None])[0]),
        permutation_type="pairings",
        alternative="greater",
        vectorized=False,
        rng=0,
    )
    return float(test.statistic), float(test.pvalue)


@lru_cache(maxsize=32)
def _drawn(what: str, n: int, draws: int, seed: int) -> Array:
    """(R + 1, n): how often each of n is drawn; once each in the first row. The same for the same `what` everywhere."""
    random = np.random.default_rng([seed, crc32(what.encode()), n])
    return np.vstack([np.ones(n), random.multinomial(n, np.full(n, 1 / n), size=draws)])


def replicates(arms: Sequence[Arm], statistic: Statistic, *, draws: int = REPLICATES, seed: int = 0) -> Array:
    """(R + 1,): the statistic on the sample itself, then on each replicate; a mean over seeds."""
    seeds = max(len(arm.top) for arm in arms)
    chosen = _drawn("seeds", seeds, draws, seed)
    weights = {arm.sample: _drawn(arm.sample, arm.top.shape[1], draws, seed) for arm in arms}
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
