"""Numbers with what they rest on: means with intervals, paired tests, contrasts and verdicts. Free of torch.

An estimate is a dict with value, interval (95 %) and n, as JSON writes it; what does not exist is None, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any, Literal

import numpy as np
import scipy  # scipy.stats is loaded when it is first used: it takes seconds
from numpy.typing import NDArray

from antiphase.rates import wilson

Array = np.ndarray[Any, np.dtype[np.float64]]
ALL_ORDERS = 7  # a rank correlation of up to so many values is tested on every permutation: 5,040
DRAWN_ORDERS = 10_000  # of more values, on so many of them


# ------------------------------------------------------------------------------------------------- paired rates


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> dict[str, Any]:
    """Paired comparison on the same images: exact two-sided McNemar test on the images where the two differ."""
    only_first, only_second = int((first & ~second).sum()), int((~first & second).sum())
    differing = only_first + only_second
    p = float(scipy.stats.binomtest(only_first, differing, 0.5).pvalue) if differing else 1.0
    hits = {"first": int(first.sum()), "second": int(second.sum())}
    return hits | {"only_first": only_first, "only_second": only_second, "n": len(first), "p": p}


def paired_rates(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> dict[str, Any]:
    """Difference first - second of two rates on the same images, with a 95 % interval (`paired_counts`)."""
    only_first, only_second = int((first & ~second).sum()), int((~first & second).sum())
    return paired_counts(int((first & second).sum()), only_first, only_second, len(first))


def paired_counts(both: int, only_first: int, only_second: int, n: int) -> dict[str, Any]:
    """The same from counts of n images: those where both flags hold, and those where only one of them does.

    Newcombe's interval (1998, method 10): the two Wilson intervals, joined by the correlation of the pairs, which is shrunk
    where it is positive. It is not degenerate where the two never differ.
    """
    if not n:
        return {"value": None, "interval": None, "n": 0}
    neither = n - both - only_first - only_second
    p, q = (both + only_first) / n, (both + only_second) / n
    excess = both * neither - only_first * only_second
    shrunk = max(excess - n / 2, 0.0) if excess > 0 else float(excess)
    spread = math.sqrt(p * (1 - p) * q * (1 - q)) * n * n
    phi = shrunk / spread if spread else 0.0
    (p_low, p_high), (q_low, q_high) = wilson(p, n), wilson(q, n)
    below, above = (
        math.sqrt(max(a * a - 2 * phi * a * b + b * b, 0.0))
        for a, b in ((p - p_low, q_high - q), (p_high - p, q - q_low))
    )
    return {"value": p - q, "interval": [p - q - below, p - q + above], "n": n}


def holm(ps: list[float]) -> list[float]:
    """p-values adjusted for the number of tests (Holm)."""
    adjusted, worst = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        worst = max(worst, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = worst
    return adjusted


# ------------------------------------------------------------------------------------------------- numbers that may not exist
def over(top: Array, bottom: Array) -> Array:
    """top / bottom, NaN where the bottom is not positive"""
    ratio: Array = np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
    return ratio


def log_of(values: Array) -> Array:
    """NaN where there is no finite logarithm"""
    logs: Array = np.log(values, out=np.full_like(values, np.nan), where=np.isfinite(values) & (values > 0))
    return logs


def finite(value: float) -> float | None:
    """A number as JSON knows them: None where it is not finite."""
    return float(value) if np.isfinite(value) else None


def mean_finite(values: Any) -> float | None:
    """The mean of the values that are finite; None where there are none."""
    return _of_finite(np.mean, values)


def median_finite(values: Any) -> float | None:
    """The median of the values that are finite; None where there are none."""
    return _of_finite(np.median, values)


def largest_finite(values: Any) -> float | None:
    """The largest of the values that are finite; None where there are none."""
    return _of_finite(np.max, values)


def _of_finite(statistic: Callable[[Array], Any], values: Any) -> float | None:
    values = np.asarray(values, dtype=np.float64)
    values = values[np.isfinite(values)]
    return float(statistic(values)) if values.size else None


def decided(value: Array, standard_error: Array, slack: float = 0.0) -> NDArray[np.bool_]:
    """Whether a value is more than two standard errors (and `slack`) away from zero: its sign is then taken as known."""
    known: NDArray[np.bool_] = np.isfinite(value)
    return known & (np.abs(np.nan_to_num(value)) > 2 * np.nan_to_num(standard_error) + slack)


# ------------------------------------------------------------------------------------------------- means, quantiles, pairs


def mean_interval(values: Array) -> dict[str, Any]:
    """Mean and 95 % interval (Student) over independent values, one per image; what is not finite is left out."""
    values = values[np.isfinite(values)]
    n = len(values)
    if not n:
        return {"value": None, "interval": None, "n": 0}
    mean = float(values.mean())
    if n == 1:
        return {"value": mean, "interval": None, "n": 1}
    half = float(scipy.stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / math.sqrt(n))
    return {"value": mean, "interval": [mean - half, mean + half], "n": n}


def mean_of(parts: Sequence[tuple[float, tuple[float, float]]]) -> tuple[float, tuple[float, float]]:
    """The mean of independent estimates; on each side of its interval the squared distances of theirs add up (MOVER)."""
    values, lows, highs = (np.array(column) for column in zip(*((value, *interval) for value, interval in parts)))
    mean = float(values.mean())
    below, above = (float(np.sqrt((side**2).sum()) / len(values)) for side in (values - lows, highs - values))
    return mean, (mean - below, mean + above)


def quantile_interval(values: Array, p: float) -> dict[str, Any]:
    """The least value that a share p of them does not exceed, and its 95 % interval by order statistics.

    No distribution is assumed. An end that so few values cannot tell is None.
    """
    if not len(values):
        return {"value": None, "interval": None, "n": 0}
    ends = scipy.stats.quantile_test(values, p=p).confidence_interval(0.95)
    value = float(np.quantile(values, p, method="inverted_cdf"))
    return {"value": value, "interval": [finite(end) for end in ends], "n": len(values)}


def geometric_interval(values: Array) -> dict[str, Any]:
    """Geometric mean of positive values, its interval that of their logarithms; others are left out."""
    logs = mean_interval(log_of(values))
    value, interval = logs["value"], logs["interval"]
    return logs | {
        "value": None if value is None else math.exp(value),
        "interval": None if interval is None else [math.exp(end) for end in interval],
    }


def sign_of(estimate: dict[str, Any], zero: float = 0.0) -> int | None:
    """+1 or -1 where the interval leaves `zero` out, None where it does not: undecided."""
    if estimate["interval"] is None:
        return None
    low, high = estimate["interval"]
    return 1 if low > zero else -1 if high < zero else None


def paired(first: Array, second: Array) -> dict[str, Any]:
    """The same n images measured twice: mean difference first - second with its interval, Wilcoxon's and the sign test."""
    both = np.isfinite(first) & np.isfinite(second)
    differences = first[both] - second[both]
    nonzero = differences[differences != 0]
    above = int((nonzero > 0).sum())
    return {
        "difference": mean_interval(differences),
        "above": above,
        "below": len(nonzero) - above,
        "p_wilcoxon": float(scipy.stats.wilcoxon(nonzero).pvalue) if len(nonzero) else 1.0,
        "p_sign": float(scipy.stats.binomtest(above, len(nonzero), 0.5).pvalue) if len(nonzero) else 1.0,
    }


def spearman(x: Array, y: Array) -> dict[str, Any] | None:
    """Rank correlation with its two-sided permutation p, exact up to 7 values; None below 3 values or where one is constant.

    Of 3 layers the smallest possible p is 1/3, of 4 it is 1/12: few layers cannot show much.
    """
    known = np.isfinite(x) & np.isfinite(y)
    a, b = (scipy.stats.rankdata(v[known]) for v in (x, y))
    if len(a) < 3 or not a.std() or not b.std():
        return None
    a, b = ((v - v.mean()) / (v.std() * math.sqrt(len(v))) for v in (a, b))
    rho = float(a @ b)
    if len(a) <= ALL_ORDERS:
        p = float(np.mean([abs(a @ b[list(order)]) >= abs(rho) - 1e-12 for order in permutations(range(len(a)))]))
    else:
        draw = np.random.default_rng([len(a), DRAWN_ORDERS])
        hits = sum(abs(a @ draw.permutation(b)) >= abs(rho) - 1e-12 for _ in range(DRAWN_ORDERS))
        p = (1 + hits) / (1 + DRAWN_ORDERS)
    return {"rho": rho, "p": p, "n": len(a)}


def ranked_alike(groups: Sequence[tuple[Array, Array]], clusters: Sequence[str] = ()) -> dict[str, Any]:
    """Do two numbers rank the layers of models alike? Mean rank correlation over models, tested by permuting layers.

    A group is the models of one depth, (L, S) and (L, S). Models that were trained alike but for their seed share what layers
    do, so all seeds of a depth are permuted together: they are one observation of its layers. Where things that are ranked
    belong to `clusters`, whose members are alike (a name for each of L), only the members of a cluster are exchangeable, and
    only those are permuted. `each` is the correlation of every model.
    """
    models = sum(x.shape[1] for x, _ in groups)
    ranks = [(_standard_ranks(x), _standard_ranks(y)) for x, y in groups]
    each = np.concatenate([(x * y).sum(axis=0) for x, y in ranks])  # (S of all depths,)
    products = [x @ y.T / models for x, y in ranks]  # (L, L): layer of x, layer of y
    blocks = [_blocks(clusters or [""] * len(m)) for m in products]
    rho = float(sum(np.trace(m) for m in products))
    if _orders(blocks) <= math.factorial(ALL_ORDERS):
        sums = [_permuted(m, _all_orders(of_group)) for m, of_group in zip(products, blocks)]
        permuted = np.sum(np.meshgrid(*sums), axis=0).ravel()  # every order of one depth with every order of the others
        counted, more = len(permuted), 0
    else:
        draw = np.random.default_rng([models, DRAWN_ORDERS])
        counted, more = DRAWN_ORDERS, 1  # the order as it is, and all others drawn
        drawn = [_drawn_orders(draw, of_group, DRAWN_ORDERS - 1) for of_group in blocks]
        permuted = sum(_permuted(m, order) for m, order in zip(products, drawn))
    above, below = ((more + int((sign * (permuted - rho) >= -1e-12).sum())) / counted for sign in (1, -1))
    return {"rho": rho, "p_above": above, "p_below": below, "models": models, "each": each}


def least_p(sizes: Sequence[int], clusters: Sequence[str] = ()) -> float:
    """The smallest p that `ranked_alike` can give groups of so many layers (or other things), known before they are looked at."""
    return max(1 / _orders([_blocks(clusters or [""] * size) for size in sizes]), 1 / DRAWN_ORDERS)


def _orders(blocks: Sequence[Sequence[Any]]) -> int:
    """In how many orders the members of clusters can stand, in all groups together."""
    return math.prod(math.factorial(len(block)) for of_group in blocks for block in of_group)


def _blocks(clusters: Sequence[str]) -> list[Any]:
    """The places of each cluster's members."""
    return [np.flatnonzero(np.array(clusters) == name) for name in dict.fromkeys(clusters)]


def _all_orders(blocks: Sequence[Any]) -> Any:
    """(R, L): every order in which members of a cluster change places among each other"""
    orders = [np.concatenate(order) for order in product(*(permutations(block) for block in blocks))]
    return np.array(orders)[:, np.argsort(np.concatenate(blocks))]


def _drawn_orders(draw: np.random.Generator, blocks: Sequence[Any], number: int) -> Any:
    """(number, L): some of them"""
    orders = np.empty((number, sum(map(len, blocks))), dtype=np.int64)
    for block in blocks:
        orders[:, block] = draw.permuted(np.tile(block, (number, 1)), axis=1)
    return orders


def _standard_ranks(values: Array) -> Array:
    """(L, S): ranks over the layers of each model, of mean 0 and length 1; 0 where all are equal"""
    ranks = scipy.stats.rankdata(values, axis=0)
    ranks = ranks - ranks.mean(axis=0)
    size = np.sqrt((ranks**2).sum(axis=0))
    scaled: Array = np.divide(ranks, size, out=np.zeros_like(ranks), where=size > 0)
    return scaled


def _permuted(products: Array, orders: Any) -> Array:
    """(R, L) orders -> (R,): the sum of the products of layers that an order puts together"""
    sums: Array = products[orders, np.arange(len(products))].sum(axis=1)
    return sums


# ------------------------------------------------------------------------------------------------- contrasts, verdicts

Unit = Literal["%", "points", ""]  # a share, a difference of shares, any other number


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """One difference that a verdict rests on, signed so that the statement says "above 0", with all it rests on."""

    name: str
    value: float | None = None  # as measured: a share of 0.05 is 0.05, whatever its unit
    interval: tuple[float, float] | None = None  # 95 %
    unit: Unit = "points"
    n: int = 0  # images of each seed
    seeds: int = 0  # fewest of any model in it
    correct: int = 0  # images that count in the model that has fewest: of attacks mostly the correctly classified
    accuracy: float | None = None  # lowest test accuracy of the depth-1 models by which its own are judged
    missing: str | None = None  # what it lacks; then it has no value
    surrogate: bool = False  # of small models that stand in for published ones
    threshold: bool = False  # how far something lies above a threshold, and no effect
    p_above: float | None = None  # one-sided: were it not above 0, so large a value would be this rare
    p_below: float | None = None  # the same of a value so far below
    p_equivalent: float | None = None  # two one-sided tests: were it a point or more away from 0
    power: float | None = None  # chance to have seen a gap of five points, with the spread that was measured
    planned_power: float | None = None  # the same by the plan, before any run
    saturated: bool = False  # all its rates lie above 97 %, or all below 3 %: no gap could show
    of_pair: bool = False  # one training of each model: about these two, not about others like them
    needs: str = ""  # what else keeps it from deciding anything
    says: str = ""  # which of the things that the claim says it is about, where the claim says several
    premise: bool = False  # what the claim takes for granted: it can refute the claim and never supports it


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the numbers say of a statement: the outcome in a fixed word or two, and why in a sentence."""

    outcome: str
    why: str
    claim: str = ""  # short name of the statement: K1, Theorem 3
    statement: str = ""  # in words
    contrasts: tuple[Contrast, ...] = ()
    power: str = ""  # a sentence: what would have been seen
