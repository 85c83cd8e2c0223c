"""Ratios that may not exist, means and quantiles with intervals, paired measurements, rank correlation of a few layers."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
from scipy.stats import binomtest, quantile_test, rankdata, t, wilcoxon

Array = np.ndarray[Any, np.dtype[np.float64]]
ALL_ORDERS = 7  # up to here every permutation is looked at: 5,040
DRAWN = 10_000  # beyond, this many of them


def over(top: Array, bottom: Array) -> Array:
    """top / bottom, NaN where the bottom is not positive"""
    ratio: Array = np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
    return ratio


def log_of(values: Array) -> Array:
    """NaN where there is no finite logarithm"""
    logs: Array = np.log(values, out=np.full_like(values, np.nan), where=np.isfinite(values) & (values > 0))
    return logs


def finite(value: float) -> float | None:
    """As JSON knows numbers."""
    return float(value) if np.isfinite(value) else None


def mean_interval(values: Array) -> dict[str, Any]:
    """Mean and 95 % interval (Student) over independent values, one an image; what is not finite is left out."""
    values = values[np.isfinite(values)]
    n = len(values)
    if not n:
        return {"value": None, "interval": None, "n": 0}
    mean = float(values.mean())
    if n == 1:
        return {"value": mean, "interval": None, "n": 1}
    half = float(t.ppf(0.975, n - 1) * values.std(ddof=1) / math.sqrt(n))
    return {"value": mean, "interval": [mean - half, mean + half], "n": n}


def quantile_interval(values: Array, p: float) -> dict[str, Any]:
    """The least value that a share p of them does not exceed, and its 95 % interval by order statistics.

    No distribution is assumed. An end that so few values cannot tell is None.
    """
    if not len(values):
        return {"value": None, "interval": None, "n": 0}
    ends = quantile_test(values, p=p).confidence_interval(0.95)
    value = float(np.quantile(values, p, method="inverted_cdf"))
    return {"value": value, "interval": [finite(end) for end in ends], "n": len(values)}


def geometric_interval(values: Array) -> dict[str, Any]:
    """Geometric mean of positive values, its interval that of their logarithms; others are left out."""
    found = mean_interval(log_of(values))
    value, interval = found["value"], found["interval"]
    return found | {
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
    apart = first[both] - second[both]
    moved = apart[apart != 0]
    above = int((moved > 0).sum())
    return {
        "difference": mean_interval(apart),
        "above": above,
        "below": len(moved) - above,
        "p_wilcoxon": float(wilcoxon(moved).pvalue) if len(moved) else 1.0,
        "p_sign": float(binomtest(above, len(moved), 0.5).pvalue) if len(moved) else 1.0,
    }


def spearman(x: Array, y: Array) -> dict[str, Any] | None:
    """Rank correlation with its two-sided permutation p, exact up to 7 values; None below 3 values or where one is constant.

    Of 3 layers the smallest possible p is 1/3, of 4 it is 1/12: few layers cannot show much.
    """
    there = np.isfinite(x) & np.isfinite(y)
    a, b = (rankdata(v[there]) for v in (x, y))
    if len(a) < 3 or not a.std() or not b.std():
        return None
    a, b = ((v - v.mean()) / (v.std() * math.sqrt(len(v))) for v in (a, b))
    rho = float(a @ b)
    if len(a) <= ALL_ORDERS:
        p = float(np.mean([abs(a @ b[list(order)]) >= abs(rho) - 1e-12 for order in permutations(range(len(a)))]))
    else:
        draw = np.random.default_rng([len(a), DRAWN])
        hits = sum(abs(a @ draw.permutation(b)) >= abs(rho) - 1e-12 for _ in range(DRAWN))
        p = (1 + hits) / (1 + DRAWN)
    return {"rho": rho, "p": p, "n": len(a)}
