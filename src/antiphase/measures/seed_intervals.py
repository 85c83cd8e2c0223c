"""Intervals of numbers that rest on few training seeds and many images (docs/statistics.md). Free of torch.

Models are compared on the same images and seed by seed. What differs between seeds (the randomness of training, and image
noise that is independent between seeds) shows in the spread of the seeds' own numbers; few seeds mean few degrees of freedom
of Student's t. What all seeds share (the choice of the images) does not show there: it is the covariance of two seeds over
images, and is added. An interval is never narrower than one over images alone. S seeds, n images, G groups of models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from typing import Any

import numpy as np
import scipy  # scipy.stats is loaded when it is first used: it takes seconds

from antiphase.measures.stats import Array
from antiphase.rates import wilson

Statistic = Callable[..., Array]  # arrays (S,), one per model -> (S,)
SLOPE = 1e-4  # step of the difference quotient by which a statistic is followed, relative
BEYOND = 10  # images that must lie on either side of a quantile with an interval
LARGE_DF = 1e6  # above, Student's t is the normal distribution


# ------------------------------------------------------------------------------------------------- one number of one model


@dataclass(frozen=True)
class PerImage:
    """One number of one model, as a ratio of sums over images (a mean where every bottom is 1), or as a quantile."""

    top: Array  # (S, n)
    bottom: Array  # (S, n)
    sample: str = ""  # numbers with the same sample are about the same images
    quantile: float | None = None  # of the tops whose bottom is 1; None: the ratio

    @cached_property
    def value(self) -> Array:
        """(S,): infinite where a quantile was not reached, NaN where nothing counts"""
        if self.quantile is not None:
            return np.array([_quantile(self.quantile, *pair) for pair in zip(self.top, self.bottom)])
        tops, bottoms = self.top.sum(axis=1), self.bottom.sum(axis=1)
        ratio: Array = np.divide(tops, bottoms, out=np.full_like(tops, np.nan), where=bottoms > 0)
        return ratio

    @cached_property
    def influence(self) -> Array:
        """(S, n): by how much the value would change, n times, if an image were counted once more"""
        n = self.top.shape[1]
        if self.quantile is not None:
            rows = [_quantile_influence(self.quantile, *pair) for pair in zip(self.top, self.bottom)]
            scaled: Array = np.stack(rows) * n
            return scaled
        share = self.bottom.sum(axis=1, keepdims=True) / n
        with np.errstate(all="ignore"):
            moved: Array = (self.top - self.value[:, None] * self.bottom) / share
        return moved

    @property
    def counted(self) -> float:
        """Images that count in the seed that has fewest"""
        return float((self.bottom > 0).sum(axis=1).min())

    @property
    def is_share(self) -> bool:
        """Whether it is a rate, which lies between 0 and 1."""
        return bool(((self.top >= 0) & (self.top <= self.bottom)).all()) and self.quantile is None


def _quantile(q: float, values: Array, counted: Array) -> float:
    """The least value that this share of what counts does not exceed."""
    chosen = np.sort(values[counted > 0])
    return float(chosen[max(0, int(np.ceil(q * len(chosen))) - 1)]) if len(chosen) else np.nan


def _quantile_influence(q: float, values: Array, counted: Array) -> Array:
    """(n,): (q - [value <= quantile]) / density, the density from the two quantiles that lie n^(-1/3) to either side.

    NaN where fewer than ten images lie beyond the quantile: its interval would be too narrow (docs/statistics.md).
    """
    there = counted > 0
    m, at = int(there.sum()), _quantile(q, values, counted)
    if m * min(q, 1 - q) < BEYOND * (1 - 1e-9):
        return np.full(len(values), np.nan)
    low, high = max(0.0, q - m ** (-1 / 3) / 2), min(1.0, q + m ** (-1 / 3) / 2)
    with np.errstate(all="ignore"):
        inverse_density = (_quantile(high, values, counted) - _quantile(low, values, counted)) / (high - low)
        moved: Array = np.where(there, (q - (values <= at)) * inverse_density / m, 0.0)
    return moved


# ------------------------------------------------------------------------------------------------- statistics of models


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


@dataclass(frozen=True)
class PerSeed:
    """A statistic of models that were trained alike but for their seed, and what each image has to do with it."""

    values: Array  # (S,)
    influence: dict[str, Array]  # by sample: (S, n)
    counted: float  # images that count in the model that has fewest
    shares: bool  # made of rates only
    means: tuple[float, ...] = ()  # over seeds, of each model's number
    slopes: tuple[float, ...] = ()  # of the statistic in each of them

    @classmethod
    def of(cls, numbers: Sequence[PerImage], statistic: Statistic = first) -> PerSeed:
        """The statistic seed by seed; images by its slope in every model's number (the delta method)."""
        at = [number.value for number in numbers]
        influence: dict[str, Array] = {}
        slopes: list[float] = []
        for k, number in enumerate(numbers):
            step = SLOPE * np.maximum(np.abs(np.nan_to_num(at[k], posinf=1.0)), 1e-2)
            with np.errstate(all="ignore"):
                up, down = (statistic(*at[:k], at[k] + sign * step, *at[k + 1 :]) for sign in (1, -1))
                slope = (up - down) / (2 * step)
                moved = slope[:, None] * number.influence
            slopes.append(float(slope.mean()))
            influence[number.sample] = influence.get(number.sample, 0.0) + moved
        counted = min(number.counted for number in numbers)
        shares, means = all(number.is_share for number in numbers), tuple(float(values.mean()) for values in at)
        return cls(statistic(*at), influence, counted, shares, means, tuple(slopes))


# ------------------------------------------------------------------------------------------------- estimates

Number = Any  # a float; in simulations (benchmarks/calibrate.py) an array of them, one per simulated world


@dataclass(frozen=True)
class Estimate:
    """A number with all that its interval, its tests and its power follow from."""

    value: Number
    variance: Number  # over seeds and images; NaN where there is one seed
    df: Number  # of that variance (Satterthwaite)
    image_variance: Number  # over images alone, for these very models
    seeds: int  # fewest of any group
    images: float  # that count in the model that has fewest
    of_shares: bool = False  # a combination of rates: then a difference of 0 in n images is no proof of none
    share: bool = False  # a rate itself

    def half_width(self, level: float = 0.95) -> Number:
        """The widest of: Student's over seeds; the normal one over images alone; what is seen on none of n images."""
        tail = (1 - level) / 2
        halves = [scipy.stats.norm.isf(tail) * np.sqrt(self.image_variance)]
        if self.seeds > 1:
            halves.append(_students(tail, self.df) * np.sqrt(self.variance))
        if self.of_shares:
            halves.append(-np.log(tail) / self.images if self.images else np.inf)
        return reduce(np.maximum, halves)

    def interval(self) -> tuple[float, float]:
        """95 %"""
        half = self.half_width()
        if self.share:
            return _share_interval(float(self.value), float(half), self.images)
        return float(self.value - half), float(self.value + half)

    def p_above(self, null: float = 0.0) -> float:
        """One-sided p of "not above this": below 0.025 exactly where the 95 % interval lies above it."""
        return self._p(float(self.value) - null)

    def p_below(self, null: float = 0.0) -> float:
        return self._p(null - float(self.value))

    def _p(self, distance: float) -> float:
        tests = [_beyond(distance, self.image_variance, np.inf)]
        if self.seeds > 1:
            tests.append(_beyond(distance, self.variance, self.df))
        if self.of_shares:
            tests.append(float(np.exp(-max(distance, 0.0) * self.images)))
        return max(tests)

    def power(self, gap: float) -> float:
        """The chance that the 95 % interval would lie above 0 if this were the true value, with the spread that was measured."""
        return power(gap, self.variance, self.df, self.image_variance)


def _students(tail: float, df: Number) -> Number:
    """The quantile of Student's t, of the normal distribution where there are very many degrees of freedom."""
    return scipy.stats.t.isf(tail, np.minimum(df, LARGE_DF))


def _beyond(distance: float, variance: float, df: float) -> float:
    """The chance of a value so far above; 1 where the variance is not known."""
    if np.isnan(variance):
        return 1.0
    if not variance > 0:
        return 0.0 if distance > 0 else 1.0
    return float(scipy.stats.t.sf(distance / variance**0.5, min(df, LARGE_DF)))


def _share_interval(p: float, half: float, images: float) -> tuple[float, float]:
    """Wilson's interval with the number of trials that the width stands for; of 0 and 1 with the images themselves."""
    spread, z = p * (1 - p), float(scipy.stats.norm.isf(0.025))
    trials = min(spread * (z / half) ** 2, 1e12) if half > 0 and spread > 0 else images
    return wilson(p, max(trials, 1.0)) if images else (0.0, 1.0)


@lru_cache(maxsize=10_000)  # contrasts of a scale have the same few sizes
def power(gap: float, variance: float, df: float, image_variance: float) -> float:
    """Of the test at 2.5 % one-sided that an interval makes."""
    chances = (
        [float(scipy.stats.norm.sf(scipy.stats.norm.isf(0.025) - gap / image_variance**0.5))]
        if image_variance > 0
        else [1.0]
    )
    if np.isfinite(variance) and variance > 0:
        ratio, few = gap / variance**0.5, df < 1_000
        critical = float(_students(0.025, df))
        chances.append(float(scipy.stats.nct.sf(critical, df, ratio) if few else scipy.stats.norm.sf(critical - ratio)))
    return min(chances)


def combined(groups: Sequence[tuple[float, PerSeed]]) -> Estimate | None:
    """A weighted sum of means over seeds, of groups of models that were trained apart from each other (depths, say).

    None where it does not exist: a seed without a number is never left out.
    """
    if not all(np.isfinite(group.values).all() for _, group in groups):
        return None
    value = sum(weight * group.values.mean(axis=-1) for weight, group in groups)
    whole, shared = _over_images(groups)
    between = divisor = 0.0
    for weight, group in groups:
        size = group.values.shape[-1]
        own = weight**2 * group.values.var(axis=-1, ddof=1) / size if size > 1 else np.nan
        between, divisor = between + own, divisor + own**2 / max(size - 1, 1)
    variance, at_zero = between + np.maximum(shared, 0.0), _wider_at_zero(value, groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(divisor > 0, variance**2 / divisor, np.inf)[()]
    variance, whole = variance * at_zero, whole * at_zero  # a factor is no knowledge of the spread: df stays
    return Estimate(
        value,
        variance,
        df,
        whole,
        seeds=min(group.values.shape[-1] for _, group in groups),
        images=min(group.counted for _, group in groups),
        of_shares=all(group.shares for _, group in groups),
    )


def _wider_at_zero(value: Number, groups: Sequence[tuple[float, PerSeed]]) -> float:
    """Of one rate held against a threshold: a rate near 0 or 1 varies less than the threshold would, so that is what counts."""
    _, group = groups[0]
    if len(groups) > 1 or not group.shares or len(group.means) != 1 or not group.slopes[0]:
        return 1.0
    rate = group.means[0]
    threshold = rate - float(value) / group.slopes[0]
    if not (0 < rate < 1 and 0 < threshold < 1):
        return 1.0
    return max(1.0, threshold * (1 - threshold) / (rate * (1 - rate)))


def _over_images(groups: Sequence[tuple[float, PerSeed]]) -> tuple[Number, Number]:
    """The variance over images of these very models, and the part of it that seeds share."""
    whole = shared = 0.0
    for sample in dict.fromkeys(name for _, group in groups for name in group.influence):
        here = [(weight, group.influence[sample]) for weight, group in groups if sample in group.influence]
        n = here[0][1].shape[-1]
        if n < 2:
            continue  # a number of the models themselves, the same whatever images are drawn
        together: Any = sum(weight * moved.mean(axis=-2) for weight, moved in here)
        all_of_it = together.var(axis=-1, ddof=1) / n
        whole, shared = whole + all_of_it, shared + all_of_it
        for weight, moved in here:
            shared = shared - weight**2 * own_noise(moved)
    return whole, shared


def own_noise(moved: Array) -> Number:
    """Of the variance of a mean over seeds, what images add to each seed by itself: it shows in the spread of the seeds."""
    seeds, n = moved.shape[-2:]
    each = moved.var(axis=-1, ddof=1).mean(axis=-1) / n
    if seeds == 1:
        return each
    covariance = (seeds * moved.mean(axis=-2).var(axis=-1, ddof=1) / n - each) / (seeds - 1)  # of two seeds
    return (each - covariance) / seeds


def estimated(numbers: Sequence[PerImage], statistic: Statistic = first) -> Estimate | None:
    """The mean over seeds of a statistic of models; None where it does not exist."""
    whole = combined([(1.0, PerSeed.of(numbers, statistic))])
    if whole is None or statistic is not first or not numbers[0].is_share:
        return whole
    return replace(whole, of_shares=False, share=True)


# ------------------------------------------------------------------------------------------------- lines through depths


def line_weights(x: Sequence[float], seeds: Sequence[int], at: float | None = None) -> list[float]:
    """What each group's mean counts in a straight line through all models (least squares, every training one point):
    its change from the first x to the last, or its height `at` an x."""
    places, sizes = np.asarray(x, dtype=np.float64), np.asarray(seeds, dtype=np.float64)
    centre = float((sizes * places).sum() / sizes.sum())
    slope = sizes * (places - centre) / float((sizes * (places - centre) ** 2).sum())
    weights = (places[-1] - places[0]) * slope if at is None else sizes / sizes.sum() + (at - centre) * slope
    return [float(w) for w in weights]


# ------------------------------------------------------------------------------------------------- before a run


@dataclass(frozen=True)
class Plan:
    """What is assumed of a contrast of rates before it is measured."""

    seed_sd: float = 0.02  # of the paired difference of two trainings, apart from the noise of images
    disagreement: float = 0.25  # share of the images on which two models differ
    accuracy: float = 0.45  # share of the images that a model classifies correctly

    def against(self, rate: float) -> Plan:
        """For one rate that is held against another number: over images it varies as it would if it were that number."""
        return replace(self, disagreement=rate * (1 - rate))

    def power(self, weights: Sequence[float], seeds: Sequence[int], images: float, gap: float) -> float:
        """The chance to see this gap by so many seeds of each group and so many images that count."""
        if min(seeds) < 2 or images < 1:
            return 0.0
        of_images = self.disagreement / images
        own = [w**2 * (self.seed_sd**2 + of_images) / s for w, s in zip(weights, seeds)]
        variance = sum(own)
        df = variance**2 / sum(v**2 / (s - 1) for v, s in zip(own, seeds))
        return power(gap, variance, df, sum(w**2 * of_images / s for w, s in zip(weights, seeds)))

    def power_of_pair(self, images: float, gap: float) -> float:
        """The same of two given models: over images alone."""
        return power(gap, np.nan, np.inf, self.disagreement / max(images, 1.0))

    def images_needed(self, gap: float, chance: float = 0.8) -> int:
        """Fewest images by which two given models show this gap with this probability."""
        errors = scipy.stats.norm.isf(0.025) + scipy.stats.norm.isf(1 - chance)
        return int(np.ceil(self.disagreement * (errors / gap) ** 2))

    def seeds_needed(self, images: float, gap: float, chance: float = 0.8, most: int = 50) -> int | None:
        """Fewest seeds of one group that show this gap with this probability; None: more than `most`."""
        return next((s for s in range(2, most + 1) if self.power([1.0], [s], images, gap) >= chance), None)
