"""At which depth two architectures change places: interpolated in log depth, never extrapolated (docs/method.md 2.5).

y(D) of the one minus y(D) of the other, over models of several depths; intervals from `bootstrap.replicates`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from antiphase.measures.bootstrap import PerImage, difference, replicates

LEVEL = 0.90


def crossing(depths: Sequence[float], gaps: Sequence[float]) -> tuple[float | None, int]:
    """The depth of the first change of sign, and how many changes there are; a gap of exactly 0 is a crossing where it stands."""
    where: list[float] = []
    known = [(np.log(d), g) for d, g in zip(depths, gaps) if np.isfinite(g)]
    for (x0, y0), (x1, y1) in pairwise(known):
        if y0 * y1 < 0:
            where.append(x0 + (x1 - x0) * y0 / (y0 - y1))
        elif y1 == 0 and y0 != 0:
            where.append(x1)
    return (float(np.exp(where[0])) if where else None), len(where)


def crossover(depths: Sequence[int], pairs: Sequence[tuple[PerImage, PerImage]], *, seed: int = 0) -> dict[str, Any]:
    """From one number of each architecture at each depth: D* with a 90 % interval over seeds and images, paired.

    `interval` is over the replicates that cross at all; `none` is the share of those that do not.
    """
    gaps = np.stack([replicates(pair, difference, seed=seed) for pair in pairs], axis=1)  # (R + 1, depths)
    _, changes = crossing(depths, gaps[0].tolist())
    each = [crossing(depths, row.tolist())[0] for row in gaps[1:]]
    crossed = np.array([depth for depth in each if depth is not None])
    tail = (1 - LEVEL) / 2
    return {
        "median": float(np.median(crossed)) if len(crossed) else None,
        "interval": [float(q) for q in np.quantile(crossed, [tail, 1 - tail])] if len(crossed) else None,
        "sign_changes": changes,
        "none": 1 - len(crossed) / len(each),
    }
