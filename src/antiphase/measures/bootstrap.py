"""Intervals over training seeds and images at once: a bootstrap that draws seeds, then images, the same for every model.

Models are compared on the same images and seed by seed, so both draws are shared by all models of a comparison (paired). All
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

from antiphase.measures.stats import Array

REPLICATES = 2_000
Statistic = Callable[..., Array]  # arrays (R, S), one per model -> (R, S)


@dataclass(frozen=True)
class PerImage:
    """One number of one model, as a ratio of sums over images (a mean where every bottom is 1), or as a quantile."""

    top: Array  # (S, n)
    bottom: Array  # (S, n)
    sample: str = ""  # numbers with the same sample are about the same images
    quantile: float | None = None  # of the tops whose bottom is 1; None: the ratio

    @property
    def value(self) -> Array:
        """(S,): on the sample itself"""
        value: Array = self.resampled(np.ones((1, self.top.shape[1])))[0]
        return value

    def resampled(self, weights: Array) -> Array:
        """(R, n) counts of images -> (R, S)"""
        if self.quantile is not None:
            return np.stack([_quantile(self.quantile, *pair, weights) for pair in zip(self.top, self.bottom)], axis=1)
        tops, bottoms = weights @ self.top.T, weights @ self.bottom.T
        ratio: Array = np.divide(tops, bottoms, out=np.full_like(tops, np.nan), where=bottoms > 0)
        return ratio


def _quantile(q: float, values: Array, counted: Array, weights: Array) -> Array:
    """(n,), (n,), (R, n) -> (R,): the value at which this share of the weight is reached"""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[:, order] * counted[order], axis=1)
    place = (total >= total[:, -1:] * q).argmax(axis=1)
    return np.where(total[:, -1] > 0, values[order][place], np.nan)


def first(a: Array) -> Array:
    """The number of one model, as it is."""
    return a


def difference(a: Array, b: Array) -> Array:
    """That of the first model minus that of the second."""
    with np.errstate(invalid="ignore"):  # two quantiles that were not reached
        return a - b


def difference_of_gaps(a: Array, b: Array, c: Array, d: Array) -> Array:
    """How much larger the gap of the first two is than that of the last two."""
    return np.subtract(a - b, c - d)


def log_ratio(a: Array, b: Array) -> Array:
    """log a - log b"""
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


def replicates(numbers: Sequence[PerImage], statistic: Statistic, *, draws: int = REPLICATES, seed: int = 0) -> Array:
    """(R + 1,): the statistic on the sample itself, then on each replicate; a mean over seeds."""
    seeds = max(len(number.top) for number in numbers)
    chosen = _drawn("seeds", seeds, draws, seed)
    weights = {number.sample: _drawn(number.sample, number.top.shape[1], draws, seed) for number in numbers}
    values = statistic(*(number.resampled(weights[number.sample]) for number in numbers))  # (R + 1, S)
    counted = np.isfinite(values) & (chosen > 0)
    total = np.where(counted, chosen, 0.0)
    with np.errstate(all="ignore"):
        mean: Array = np.where(counted, values * chosen, 0.0).sum(axis=1) / total.sum(axis=1)
    return mean


def interval(
    numbers: Sequence[PerImage],
    statistic: Statistic = first,
    *,
    level: float = 0.95,
    draws: int = REPLICATES,
    seed: int = 0,
) -> dict[str, Any]:
    """Value and percentile interval; both None where the statistic does not exist."""
    values = replicates(numbers, statistic, draws=draws, seed=seed)
    value, rest = float(values[0]), values[1:][np.isfinite(values[1:])]
    if not np.isfinite(value) or not len(rest):
        return {"value": None, "interval": None}
    low, high = np.quantile(rest, [(1 - level) / 2, (1 + level) / 2])
    return {"value": value, "interval": [float(low), float(high)]}
