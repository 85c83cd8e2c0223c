"""Simulated worlds in which the truth of a claim is known, seen through the same contrasts and rule as real rows.

A world gives the number of a series (one value per seed and image) without any model: rates as coins whose logit has an effect of
the training (shared by everything that is asked of that model), of the image (shared by all models) and of both; other numbers
with the same effects and uniform noise. S seeds, n images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from math import log
from typing import Any
from zlib import crc32

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from antiphase.measures.seed_intervals import PerImage
from antiphase.measures.stats import Array, Contrast
from antiphase.paper.claims import CLAIMS
from antiphase.paper.contrasts import Group
from antiphase.paper.grid import Grid
from antiphase.paper.questions import Model, Train, UserClip
from antiphase.paper.selection import MARGIN, MOST_COST
from antiphase.paper.series import ALIKE, Series
from antiphase.paper.study import Prediction, Study
from antiphase.paper.verdict_rule import GAP, decide

Truth = Callable[[Prediction], tuple[float, float]]  # the true value of a contrast, and of what gives its direction
IMAGE_SD, OWN_SD = 1.5, 0.7  # of an image's effect on the logit: for all models, and for one architecture
FAMILY_SD, MEMBER_SD = 1.0, 0.5  # of things in clusters: what all members share, and what each has of its own
SEED_SD, SLOPE_SD = 0.5, 0.5  # of one training: what it adds to either, and its own relation of the two numbers
PREMISE = 0.08  # how true a premise is where nothing else of a claim is
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(41)


def rate_at(logit: float, seed_sd: float = 0.0) -> float:
    """The share of images that fall, over all images and trainings, if this is the logit of an average one of both."""
    spread = (IMAGE_SD**2 + OWN_SD**2 + seed_sd**2) ** 0.5
    return float((WEIGHTS / WEIGHTS.sum() / (1 + np.exp(-(logit + spread * NODES)))).sum())


@cache
def logit_of(rate: float, seed_sd: float = 0.0) -> float:
    return float(brentq(lambda logit: rate_at(logit, seed_sd) - rate, -30, 30))


def logit_sd(rate: float, points: float) -> float:
    """The spread on the logit scale that moves a rate by so much."""
    at = logit_of(rate)
    return points / ((rate_at(at + 1e-3) - rate_at(at - 1e-3)) / 2e-3)


@dataclass
class World:
    """A draw of trainings and images; a number that is asked for twice is drawn once."""

    seed: int
    base: float = 0.5  # of a rate that no effect has moved
    seed_sd: float = 0.02  # of the paired difference of two trainings
    known: dict[Any, PerImage] = field(default_factory=dict)
    asked: dict[Any, dict[Any, int]] = field(default_factory=dict)  # by cells: what was read of them first, second, ...

    def _random(self, *what: Any) -> np.random.Generator:
        return np.random.default_rng([self.seed, crc32(repr(what).encode())])

    def number(self, series: Series, true: float, of_rates: bool) -> PerImage:
        cells, what = tuple(cell.key for cell in series.cells), (repr(series.values), series.quantile)
        key = (cells, *what, round(true, 6))
        if key not in self.known:
            asked = self.asked.setdefault(cells, {})
            self.known[key] = self._drawn(series, true, of_rates, asked.setdefault(what, len(asked)))
        return self.known[key]

    def _luck(self, model: Model) -> float:
        """Of a training; a given model is what it is, and the truth is that of this very model."""
        return 0.0 if isinstance(model, UserClip) else float(self._random("training", model.key).normal())

    def _noise(self, cells: list[str], place: int, images: int) -> Array:
        """Uniform, one for each image and training. Numbers that are read from the same answers (the layers of a model, the
        union of restarts and their mean) share half of its variance."""
        shared, own = (self._random("noise", cells, *of).normal(size=(len(cells), images)) for of in ((), (place,)))
        return np.asarray(ndtr((shared + own) / 2**0.5))

    def _drawn(self, series: Series, true: float, of_rates: bool, place: int) -> PerImage:
        images = max(2, round(series.planned_images))
        cells = [cell.key for cell in series.cells]
        sample = f"{series.cells[0].images} {images}"
        where = self._random("images", sample).normal(0, 1, images)
        own = self._random("own", sample, series.models[0].tower.is_differential).normal(0, 1, images)
        luck = np.array([self._luck(cell.of) for cell in series.cells])
        noise = self._noise(cells, place, images)
        if of_rates:
            rate = min(max(true, 0.002), 0.998)
            spread = logit_sd(rate, self.seed_sd / 2**0.5)
            logit = logit_of(rate, spread) + spread * luck[:, None] + IMAGE_SD * where + OWN_SD * own
            tops = (noise < 1 / (1 + np.exp(-logit))).astype(np.float64)
        else:
            tops = true + self.seed_sd / 2**0.5 * luck[:, None] + 0.15 * where + 0.1 * own + (noise - 0.5)
        return PerImage(tops, np.ones_like(tops), sample)


def aim(groups: Sequence[Group], base: float, target: float) -> list[list[float]]:
    """True numbers of all series: all at the base, but the first of each group so that the weighted sum is the target."""
    weights = np.array([group.weight for group in groups])
    part = weights / (weights**2).sum()

    def numbers(shift: float) -> list[list[float]]:
        return [[base + shift * w * (k == 0) for k in range(len(g.series))] for g, w in zip(groups, part)]

    def off(shift: float) -> float:
        values = [float(g.statistic(*map(np.atleast_1d, at))[0]) for g, at in zip(groups, numbers(shift))]
        return float(np.dot(weights, values)) - target

    sides = [side for far in (0.02, 0.1, 0.3, 0.9) for side in ((0.0, far), (-far, 0.0))]
    low, high = next(side for side in sides if off(side[0]) * off(side[1]) <= 0)
    return numbers(brentq(off, low, high, xtol=1e-7))


def contrast_in(world: World, prediction: Prediction, target: float, like: float | None = None) -> Contrast:
    """A contrast in a world in which its true value is the target, and so is (or `like` is) that of what gives its direction."""
    if prediction.ranks_seeds:
        return _courses_in(world, prediction, target)
    if prediction.planned.power is None:
        ranks = _clusters_in if prediction.clusters else _ranks_in
        return ranks(world, prediction, target)
    known: dict[int, tuple[float, bool]] = {}
    for groups, value in ((prediction.groups, target), (prediction.direction_of, target if like is None else like)):
        if not groups:
            continue
        of_rates = prediction.unit == "points"
        single = len(groups) == 1 and len(groups[0].series) == 1
        base = world.base if of_rates else (0.0 if single else 1.0)
        for group, numbers in zip(groups, aim(groups, base, value)):
            known |= {id(one): (number, of_rates) for one, number in zip(group.series, numbers)}
    return prediction.contrast(lambda series: world.number(series, *known[id(series)]))


def _ranks_in(world: World, prediction: Prediction, target: float) -> Contrast:
    """Two numbers per layer (or corruption), each a profile that all seeds share and some noise: unrelated, or alike where
    there is an effect."""
    random = np.random.default_rng([world.seed, 7])
    sign = -1 if prediction.name.startswith("-") else 1
    known: dict[int, PerImage] = {}
    for group in prediction.groups:
        x, y = random.normal(size=2)
        own = (x, sign * x + 0.3 * y if target else y)
        for one, profile in zip_longest(
            group.series, own, fillvalue=0.0
        ):  # what a second number is held against: the same
            values = profile + 0.3 * random.normal(size=(len(one.cells), 1))
            known[id(one)] = PerImage(values, np.ones_like(values), "models")
    return prediction.contrast(lambda series: known[id(series)])


def _courses_in(world: World, prediction: Prediction, target: float) -> Contrast:
    """Rank correlations of how lambda and a gap moved from epoch to epoch. Each has a trend that all seeds share, steps of each
    seed that stay, and noise that is gone an epoch later, the same in both (as after an unlucky last batch). Where there is an
    effect, the gap of a seed takes up each step of lambda an epoch later."""
    random = np.random.default_rng([world.seed, 8])
    series = [one for group in prediction.groups for one in group.series]
    epochs, seeds = sorted(set(map(_epoch, series))), prediction.planned.seeds
    own, steps, noise = random.normal(size=(3, len(epochs), seeds))
    led = np.concatenate([np.zeros((1, seeds)), own[:-1]]) if target else 0.0
    trend = np.log1p(np.arange(len(epochs)))[:, None]
    lam, gap = (trend + np.cumsum(moved, axis=0) + noise for moved in (own, steps + led))
    known: dict[int, PerImage] = {}
    for one in series:
        course = lam if one.of_model else gap if one.models[0].tower.is_differential else 0 * noise
        values = course[epochs.index(_epoch(one)), :, None]
        known[id(one)] = PerImage(values, np.ones_like(values), "models")
    return prediction.contrast(lambda series: known[id(series)])


def _epoch(series: Series) -> int:
    """After which its models are looked at."""
    model = series.cells[0].of
    assert isinstance(model, Train)
    return model.after or model.training.epochs


def _clusters_in(world: World, prediction: Prediction, target: float) -> Contrast:
    """Two numbers of things in clusters. Members of a cluster share an effect on either; trainings differ, and each has a
    relation of the two numbers of its own, which is 0 on average. Unrelated otherwise, or alike where there is an effect."""
    random, names = np.random.default_rng([world.seed, 8]), dict.fromkeys(prediction.clusters)
    trainings = len(prediction.groups[0].series[0].cells)

    def drawn(of_cluster: float, of_member: float, *shape: int) -> Array:
        shared = {name: random.normal(0, of_cluster, shape) for name in names}
        return np.stack([shared[name] + random.normal(0, of_member, shape) for name in prediction.clusters])

    x, y = (drawn(FAMILY_SD, MEMBER_SD, 1) for _ in range(2))
    first, second = (
        profile + drawn(SEED_SD, SEED_SD, trainings) for profile in (x, x + 0.3 * y if target else y)
    )  # (things, S)
    second = second + random.normal(0, SLOPE_SD, trainings) * first
    known: dict[int, PerImage] = {}
    for group, *of_thing in zip(prediction.groups, first, second):
        for one, values in zip_longest(group.series, of_thing, fillvalue=np.zeros(trainings)):
            known[id(one)] = PerImage(values[:, None], np.ones((trainings, 1)), "models")
    return prediction.contrast(lambda series: known[id(series)])


def deciding(studies: Iterable[Study], grid: Grid) -> dict[str, list[Prediction]]:
    """The predictions of each claim under the reading that decides it."""
    listed: dict[str, list[Prediction]] = {claim: [] for claim in CLAIMS}
    for study in studies:
        for prediction in study.predictions(grid):
            listed[prediction.claim].append(prediction)
    return {claim: [p for p in of if p.reading == of[0].reading] for claim, of in listed.items() if of}


def everywhere(effect: float) -> Truth:
    """Every contrast has this true value; one that is a distance to a threshold that of two points where there is an effect, and
    0 where there is none."""

    def truth(prediction: Prediction) -> tuple[float, float]:
        value = (ALIKE if effect else 0.0) if prediction.threshold else effect
        return value, value

    return truth


def _only_its_premise(prediction: Prediction) -> tuple[float, float]:
    return (PREMISE if prediction.premise else 0.0), 0.0


def _nothing_that_agrees(_: Prediction) -> tuple[float, float]:
    return 0.0, GAP


def _only_cheap_and_accurate(prediction: Prediction) -> tuple[float, float]:
    """As accurate and as dear as the plain DiffViT, and as easy to fool as is just too easy."""
    return {"accuracy": MARGIN, "cost": log(MOST_COST)}.get(prediction.part, 0.0), 0.0


HARDER: dict[str, tuple[str, Truth]] = {  # worlds without the effect that have more in them than zeros, by claim
    "K3": (f"only its premise is true ({100 * PREMISE:.0f} points)", _only_its_premise),
    "K11": (f"single runs have a direction ({100 * GAP:.0f} points), the union has none", _nothing_that_agrees),
    "E7": ("accuracy and cost are those of the plain DiffViT", _only_cheap_and_accurate),
    "K23": (f"PGD has a direction ({100 * GAP:.0f} points), AutoAttack has none", _nothing_that_agrees),
}


def verdict_in(world: World, predictions: Sequence[Prediction], truth: Truth) -> str:
    """The verdict on a claim in a world. Not supported because nothing is there is "no effect"."""
    contrasts = [contrast_in(world, p, *truth(p)) for p in predictions]
    verdict = decide(contrasts, floor=0.0)
    return (
        "no effect" if verdict.outcome == "not supported" and verdict.why.startswith("no effect") else verdict.outcome
    )
