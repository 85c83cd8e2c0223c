"""Rates with what they rest on: hits, n, and Wilson's 95 % interval. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Z95 = 1.959963984540054  # two-sided 95 % of the normal distribution


def wilson(p: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval for a rate p observed on n independent trials (n may be an effective number)."""
    z2 = Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * (p * (1 - p) / n + z2 / (4 * n * n)) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True)
class Rate:
    """hits of n; `effective_n` is smaller where trials are not independent. An empty denominator is undefined, not zero."""

    hits: int
    n: int
    effective_n: float

    @property
    def value(self) -> float | None:
        return self.hits / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float] | None:
        return wilson(self.hits / self.n, self.effective_n) if self.n else None

    def plain(self) -> dict[str, Any]:
        interval = None if self.interval is None else list(self.interval)
        return {"value": self.value, "interval": interval, "hits": self.hits, "n": self.n}


def rate(flags: Any, where: Any = True) -> Rate:
    """How often a flag holds. (n,) trials are independent; of (n, k) the k trials of one image stand or fall together.

    `where` selects trials. For clusters the interval uses the number of independent trials that would give the variance
    observed between images, at most the number of images.
    """
    flags = np.asarray(flags, dtype=bool)
    chosen = np.broadcast_to(np.asarray(where, dtype=bool), flags.shape)
    hits, n = int((flags & chosen).sum()), int(chosen.sum())
    if n == 0 or flags.ndim == 1:
        return Rate(hits, n, n)
    return clustered_rate((flags & chosen).sum(axis=1), chosen.sum(axis=1))


def clustered_rate(hits_of: Any, size: Any) -> Rate:
    """The same from counts, (n,) each: how often a flag holds among the trials of each image, and how many trials it has."""
    hits_of, size = (np.asarray(counts, dtype=np.float64) for counts in (hits_of, size))
    hits, n = int(hits_of.sum()), int(size.sum())
    if size.max(initial=0) <= 1:  # no trials that stand or fall together
        return Rate(hits, n, n)
    images = int((size > 0).sum())
    p = hits / n
    spread = float(((hits_of - p * size) ** 2).sum())  # of a ratio estimator, clusters of any size
    variance = spread * images / max(images - 1, 1) / n**2
    effective = p * (1 - p) / variance if variance > 0 else images
    return Rate(hits, n, float(np.clip(effective, 1, images)))  # capped: near 0 or 1 the variance itself is noisy
