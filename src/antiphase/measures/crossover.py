"""At which depth two architectures change places: interpolated in log depth, never extrapolated (docs/method.md 2.5).

y(D) of the one minus y(D) of the other, over models of several depths. A crossing is reported only where the measured gaps
themselves change sign, with its direction; how sure that is comes from draws of the gaps about what was measured. G depths.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from antiphase.measures.seed_intervals import PerSeed, own_noise
from antiphase.measures.stats import Array

LEVEL = 0.90
DRAWS = 4_000
Direction = Literal["falls below", "rises above"]  # the gap: from above 0 to below, or the other way


def crossing(depths: Sequence[float], gaps: Sequence[float]) -> tuple[float | None, Direction | None, int]:
    """The depth and direction of the first change of sign, and how many changes there are.

    A gap of exactly 0 is passed over: it belongs to no side.
    """
    known = [(float(np.log(d)), g) for d, g in zip(depths, gaps) if np.isfinite(g) and g != 0]
    changes = [((x0, y0), (x1, y1)) for (x0, y0), (x1, y1) in pairwise(known) if y0 * y1 < 0]
    if not changes:
        return None, None, 0
    (x0, y0), (x1, y1) = changes[0]
    where = float(np.exp(x0 + (x1 - x0) * y0 / (y0 - y1)))
    return where, "falls below" if y0 > 0 else "rises above", len(changes)


def crossover(depths: Sequence[int], gaps: Sequence[PerSeed], *, seed: int = 0) -> dict[str, Any]:
    """D* of the sample with its direction, or None; a 90 % interval over draws that cross in the same direction; and the
    probabilities that the gap falls below 0 (the paper's direction), rises above it, or does neither."""
    means = np.array([gap.values.mean() for gap in gaps])
    where, direction, changes = crossing(depths, means.tolist())
    drawn = [crossing(depths, row)[:2] for row in (means + _draws(gaps, seed)).tolist()]
    alike = np.array([depth for depth, way in drawn if way is not None and way == direction])
    tail = (1 - LEVEL) / 2
    return {
        "depth": where,
        "direction": direction,
        "interval": [float(q) for q in np.quantile(alike, [tail, 1 - tail])] if len(alike) else None,
        "sign_changes": changes,
        "falls below": float(np.mean([way == "falls below" for _, way in drawn])),
        "rises above": float(np.mean([way == "rises above" for _, way in drawn])),
    }


def _draws(gaps: Sequence[PerSeed], seed: int) -> Array:
    """(R, G): errors of the gaps: of seeds by Student's t at each depth, of images for all depths at once"""
    random = np.random.default_rng([seed, len(gaps)])
    off = random.multivariate_normal(
        np.zeros(len(gaps)), _shared(gaps), size=DRAWS, method="eigh", check_valid="ignore"
    )
    for g, gap in enumerate(gaps):
        size = len(gap.values)
        if size > 1:
            off[:, g] += random.standard_t(size - 1, DRAWS) * float(gap.values.std(ddof=1)) / size**0.5
    return off


def _shared(gaps: Sequence[PerSeed]) -> Array:
    """(G, G): the covariance of the gaps that comes from the choice of images, which all models share"""
    covariance = np.zeros((len(gaps), len(gaps)))
    for sample in dict.fromkeys(name for gap in gaps for name in gap.influence):
        moved = [np.nan_to_num(gap.influence[sample]) for gap in gaps]
        n = moved[0].shape[1]
        covariance += np.atleast_2d(np.cov(np.stack([m.mean(axis=0) for m in moved]))) / n
        for g, m in enumerate(moved):
            if len(m) > 1:  # what seeds do not share is in their spread already
                covariance[g, g] -= own_noise(m)
    return covariance
