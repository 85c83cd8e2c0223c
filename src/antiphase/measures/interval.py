"""Rates with their denominators and intervals, and the paired test of two models on the same images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest


@dataclass(frozen=True)
class Rate:
    """hits of n, with the Wilson interval at 95 %. An empty denominator is undefined, not zero."""

    hits: int
    n: int

    @property
    def value(self) -> float | None:
        return self.hits / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float] | None:
        if not self.n:
            return None
        ci = binomtest(self.hits, self.n).proportion_ci(confidence_level=0.95, method="wilson")
        return float(ci.low), float(ci.high)

    def plain(self) -> dict[str, Any]:
        return {"value": self.value, "interval": None if self.interval is None else list(self.interval), "hits": self.hits, "n": self.n}


def rate(flags: NDArray[np.bool_], over: NDArray[np.bool_] | None = None) -> Rate:
    """How often `flags` holds, over all examples or over those selected."""
    chosen = flags if over is None else flags[over]
    return Rate(int(chosen.sum()), len(chosen))


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> dict[str, Any]:
    """Paired comparison on the same images: exact two-sided McNemar test on the images where the two differ."""
    only_first, only_second = int((first & ~second).sum()), int((~first & second).sum())
    differing = only_first + only_second
    p = float(binomtest(only_first, differing, 0.5).pvalue) if differing else 1.0
    return {"only_first": only_first, "only_second": only_second, "n": len(first), "p": p}
