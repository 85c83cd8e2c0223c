"""From series to contrasts: what a claim predicts, listed before any run, and the number that it says is above 0. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log2

import numpy as np

from antiphase.measures.seed_intervals import (
    Estimate,
    PerImage,
    PerSeed,
    Plan,
    Statistic,
    combined,
    difference,
    first,
    line_weights,
)
from antiphase.measures.stats import Array, Contrast, Unit, least_p, ranked_alike
from antiphase.paper.questions import UserClip
from antiphase.paper.series import ALIKE, ON_BOTH_SIDES, PLAN, Series
from antiphase.paper.study import Missing, Planned, Prediction
from antiphase.paper.verdict_rule import GAP, LEVEL, POINT, POWER, SATURATED

Numbers = Callable[[Series], PerImage]  # where a contrast gets the number of a series from: a ledger, or a simulation


@dataclass(frozen=True)
class Group:
    """Models that were trained alike but for their seed, a statistic of them, and how much it counts in a contrast."""

    series: tuple[Series, ...]
    statistic: Statistic = first
    weight: float = 1.0

    @property
    def seeds(self) -> int:
        return min(len(one.cells) for one in self.series)

    def per_seed(self, numbers: Numbers) -> PerSeed:
        return PerSeed.of([numbers(one) for one in self.series], self.statistic)


def along_depth(
    depths: Sequence[int],
    series_at: Callable[[int], Sequence[Series]],
    statistic: Statistic = first,
    *,
    at: int | None = None,
    sign: int = 1,
) -> list[Group]:
    """A straight line in log depth through all models, every training one point: its change from the shallowest depth to the
    deepest, or its height `at` a depth."""
    listed = {depth: Group(tuple(series_at(depth)), statistic) for depth in depths}
    weights = line_weights(
        [log2(depth) for depth in depths], [group.seeds for group in listed.values()], None if at is None else log2(at)
    )
    return [replace(group, weight=sign * weight) for group, weight in zip(listed.values(), weights)]


def over_models(
    depths: Sequence[int], series_at: Callable[[int], Sequence[Series]], statistic: Statistic = first
) -> list[Group]:
    """The mean over all models of these depths."""
    listed = [Group(tuple(series_at(depth)), statistic) for depth in depths]
    every = sum(group.seeds for group in listed)
    return [replace(group, weight=group.seeds / every) for group in listed]


def predict(
    claim: str,
    name: str,
    part: str,
    reading: str,
    series: Sequence[Series],
    statistic: Statistic = first,
    *,
    unit: Unit = "points",
    threshold: bool = False,
    against: float | None = None,
    margin: float = GAP,
    chance: float = POWER,
    optional: bool = False,
    says: str = "",
    premise: bool = False,
) -> Prediction:
    """A statistic of the series that the claim says is above 0; `threshold` where it is a distance to one, and no effect;
    `against` is that threshold where one rate is held against it; `margin` what must be seen, with this `chance`; `optional`
    where a study does not compute it by itself; `says` and `premise` as in the rule (verdict_rule.py)."""
    return predict_sum(
        claim,
        name,
        part,
        reading,
        [Group(tuple(series), statistic)],
        unit=unit,
        threshold=threshold,
        against=against,
        margin=margin,
        chance=chance,
        optional=optional,
        says=says,
        premise=premise,
    )


def predict_sum(
    claim: str,
    name: str,
    part: str,
    reading: str,
    groups: Sequence[Group],
    *,
    unit: Unit = "points",
    threshold: bool = False,
    against: float | None = None,
    margin: float = GAP,
    chance: float = POWER,
    optional: bool = False,
    direction_of: Sequence[Group] = (),
    among: int = 1,
    says: str = "",
    premise: bool = False,
) -> Prediction:
    """A weighted sum over groups of models (depths, say) that the claim says is above 0.

    `direction_of`: the claim says that it has the sign of this other sum. Where that sign is not known itself (at 2.5 % in all,
    for both directions and all `among` which it is one), the contrast decides nothing.
    """
    every = [one for group in (*groups, *direction_of) for one in group.series]
    planned = _planned(groups, PLAN if against is None else PLAN.against(against), margin, chance)

    def contrast(numbers: Numbers) -> Contrast:
        try:
            parts = [(group.weight, group.per_seed(numbers)) for group in groups]
            like = [(group.weight, group.per_seed(numbers)) for group in direction_of]
        except Missing as gap:
            return Contrast(name=name, unit=unit, missing=f"no row of {gap}", says=says, premise=premise)
        about = Contrast(
            name=name,
            unit=unit,
            seeds=planned.seeds,
            n=max(moved.shape[1] for _, part in parts for moved in part.influence.values()),
            surrogate=any(one.surrogate for one in every),
            threshold=threshold,
            says=says,
            premise=premise,
            planned_power=planned.power,
            saturated=_saturated([part for _, part in parts]),
            of_pair=planned.of_pair,
        )
        return _measured(about, combined(parts), combined(like) if like else None, among)

    return _prediction(
        claim,
        name,
        part,
        reading,
        every,
        contrast,
        planned,
        tuple(groups),
        direction_of=tuple(direction_of),
        unit=unit,
        threshold=threshold,
        optional=optional,
        premise=premise,
    )


def _measured(about: Contrast, measured: Estimate | None, like: Estimate | None, among: int) -> Contrast:
    """With the numbers; turned round where the sum whose direction it should have is below 0."""
    if measured is None:
        return about
    sign, needs = 1.0, ""
    if like is not None:
        sign = -1.0 if like.value < 0 else 1.0
        if min(like.p_above(), like.p_below()) >= LEVEL / (2 * among):
            needs = f"what it is compared with has no known direction itself ({_text(like)})"
    seen = replace(measured, value=sign * measured.value)
    low, high = seen.interval()
    return replace(
        about,
        value=seen.value,
        interval=(low, high),
        correct=int(seen.images),
        p_above=seen.p_above(),
        p_below=seen.p_below(),
        p_equivalent=max(seen.p_above(-POINT), seen.p_below(POINT)),
        power=seen.power(GAP),
        needs=needs,
    )


def _text(estimate: Estimate) -> str:
    low, high = estimate.interval()
    return f"{100 * estimate.value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _saturated(parts: Sequence[PerSeed]) -> bool:
    """Two or more rates, all of them near 1 or all near 0."""
    rates = [mean for part in parts for mean in part.means]
    if len(rates) < 2 or not all(part.shares for part in parts):
        return False
    return min(rates) > SATURATED[1] or max(rates) < SATURATED[0]


def _planned(groups: Sequence[Group], plan: Plan, margin: float, chance: float) -> Planned:
    """Seeds, images, and the power that follows; for a pair of the user's own, over images alone."""
    seeds, images = [group.seeds for group in groups], min(one.planned_images for g in groups for one in g.series)
    pair = any(isinstance(model, UserClip) for group in groups for one in group.series for model in one.models)
    weights = [group.weight for group in groups]
    return Planned(
        seeds=min(seeds),
        images=int(images),
        of_pair=pair,
        power_by_plan=lambda: plan.power_of_pair(images, GAP) if pair else plan.power(weights, seeds, images, GAP),
        seeds_by_plan=lambda: None if pair else plan.seeds_needed(images, GAP),
        surrogate=any(one.surrogate for group in groups for one in group.series),
        margin=margin,
        margin_by_plan=lambda: (
            plan.power_of_pair(images, margin) if pair else plan.power(weights, seeds, images, margin)
        ),
        images_there=int(min(one.images_there for g in groups for one in g.series)),
        images_by_plan=lambda: plan.images_needed(margin, chance) if pair else None,
    )


def _prediction(
    claim: str,
    name: str,
    part: str,
    reading: str,
    series: Sequence[Series],
    contrast: Callable[[Numbers], Contrast],
    planned: Planned,
    groups: tuple[Group, ...],
    *,
    direction_of: tuple[Group, ...] = (),
    unit: Unit = "points",
    threshold: bool = False,
    optional: bool = False,
    premise: bool = False,
    clusters: tuple[str, ...] = (),
    ranks_seeds: bool = False,
) -> Prediction:
    cells = [cell for one in series for cell in one.sources]
    models = [model for one in series for model in one.models]
    return Prediction(
        claim=claim,
        name=name,
        part=part,
        reading=reading,
        contrast=contrast,
        cells=tuple(dict.fromkeys([*cells, *models])),
        optional=optional,
        unit=unit,
        threshold=threshold,
        planned=planned,
        groups=groups,
        direction_of=direction_of,
        ranks_seeds=ranks_seeds,
        premise=premise,
        clusters=clusters,
    )


def predict_ranks(
    claim: str,
    name: str,
    part: str,
    reading: str,
    by_depth: Sequence[tuple[Sequence[Series], Sequence[Series | Group]]],
    *,
    sign: int = 1,
    over: str = "layers",
    clusters: Sequence[str] = (),
) -> Prediction:
    """Two numbers rank the layers of models alike (sign 1) or in opposite order (-1): one series per layer of each depth. Or
    other things than layers, by a word for them; the second number may be a statistic of several series.

    Where some of these things are alike, `clusters` names the cluster of each. Then two tests must both decide: one that permutes
    within clusters, and Student's t of the models' own rank correlations, since a relation that changes from seed to seed is
    none of the architecture.
    """
    grouped = [(x, [one if isinstance(one, Group) else Group((one,)) for one in y]) for x, y in by_depth]
    layers = tuple(Group((one, *group.series)) for x, y in grouped for one, group in zip(x, y))

    def ranked(numbers: Numbers) -> list[tuple[Array, Array]]:
        return [
            (
                np.stack([numbers(one).value for one in x]),
                sign * np.stack([group.per_seed(numbers).values for group in y]),
            )
            for x, y in grouped
        ]

    least = least_p([len(x) for x, _ in by_depth], clusters)
    return _rank_prediction(claim, name, part, reading, ranked, layers, over, least, clusters=clusters)


def predict_seed_ranks(
    claim: str, name: str, part: str, reading: str, pairs: Sequence[tuple[Group, Group]]
) -> Prediction:
    """Two numbers of each pair rank seeds alike: the mean over pairs, each times the weights of its groups, tested by permuting
    seeds in the same way for all pairs. What all seeds have in common, a course of training, is in no rank."""

    def ranked(numbers: Numbers) -> list[tuple[Array, Array]]:
        x, y = (
            np.stack([group.weight * group.per_seed(numbers).values for group in side], axis=1) for side in zip(*pairs)
        )
        return [(x, y)]

    groups = tuple(group for pair in pairs for group in pair)
    least = least_p([min(group.seeds for group in groups)])
    return _rank_prediction(claim, name, part, reading, ranked, groups, "seeds", least, ranks_seeds=True)


def _rank_prediction(
    claim: str,
    name: str,
    part: str,
    reading: str,
    ranked: Callable[[Numbers], list[tuple[Array, Array]]],
    groups: tuple[Group, ...],
    over: str,
    least: float,
    *,
    ranks_seeds: bool = False,
    clusters: Sequence[str] = (),
) -> Prediction:
    """`ranked`: what `ranked_alike` takes; `over`: a word for what is ranked and permuted; `least`: the smallest possible p."""
    every = [one for group in groups for one in group.series]
    seeds = min(len(one.cells) for one in every)
    planned = Planned(
        seeds=seeds,
        images=int(min(one.planned_images for one in every)),
        surrogate=any(one.surrogate for one in every),
        least_p=least,
    )

    def contrast(numbers: Numbers) -> Contrast:
        try:
            arrays = ranked(numbers)
        except Missing as gap:
            return Contrast(name=name, unit="", missing=f"no row of {gap}")
        if not all(np.isfinite(array).all() for pair in arrays for array in pair):
            return Contrast(name=name, unit="")
        test = ranked_alike(arrays, clusters)
        above, below, needs = test["p_above"], test["p_below"], ""
        if least >= LEVEL:
            needs = f"so few {over} give a p of {least:.2g} at best, {LEVEL:g} is asked"
        if clusters:
            over_seeds = combined([(1.0, PerSeed(test["each"], {}, planned.images, shares=False))])
            assert over_seeds is not None  # a rank correlation of what does not vary is 0
            above, below = max(above, over_seeds.p_above()), max(below, over_seeds.p_below())
            if test["models"] < 2:
                needs = "one seed says nothing of others"
        return Contrast(
            name=name,
            value=test["rho"],
            unit="",
            seeds=seeds,
            n=planned.images,
            correct=planned.images,
            surrogate=planned.surrogate,
            p_above=above,
            p_below=below,
            needs=needs,
        )

    return _prediction(
        claim,
        name,
        part,
        reading,
        every,
        contrast,
        planned,
        groups,
        unit="",
        ranks_seeds=ranks_seeds,
        clusters=tuple(clusters),
    )


def at_least(a: Array, b: Array) -> Array:
    """How far the first lies above two points below the second."""
    return difference(a, b) + ALIKE


def about_equal(
    claim: str, what: str, part: str, reading: str, series: Sequence[Series], *, says: str = ""
) -> list[Prediction]:
    """The mean difference of two series lies within two points of zero, on either side."""

    def not_above(a: Array, b: Array) -> Array:
        return ALIKE - (a - b)

    def not_below(a: Array, b: Array) -> Array:
        return ALIKE + (a - b)

    points = f"{100 * ALIKE:.0f} points"
    return [
        predict(
            claim,
            f"{points} {sign} ({what})",
            part,
            reading,
            series,
            statistic,
            threshold=True,
            margin=ALIKE,
            chance=ON_BOTH_SIDES,
            says=says,
        )
        for sign, statistic in (("-", not_above), ("+", not_below))
    ]
