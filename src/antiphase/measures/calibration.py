"""Does confidence match accuracy? The expected calibration error (Guo et al. 2017) with an interval over images. Free of torch.

n images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphase.measures.stats import Array

BINS = 15  # of equal width; a confidence on an edge belongs to the bin below it
RESAMPLES = 1_000
AT_ONCE = 100  # resamples that are held in memory


def ece(confidence: Array, correct: NDArray[np.bool_]) -> float:
    """Sum over bins of (share of the images) x |accuracy - mean confidence|; `confidence` is the largest probability."""
    return float(np.abs(_gaps(confidence, correct).sum(axis=0)).sum() / len(correct))


def mean_ece(conditions: list[tuple[Array, NDArray[np.bool_]]], seed: int = 0) -> dict[str, Any]:
    """The mean ECE of the same images under several conditions, with a 95 % interval: the basic bootstrap over images.

    All conditions of an image are drawn together. The ECE of few images is too large on average, and that of a resample more so:
    the basic bootstrap (twice the value minus the quantiles) turns this round, where percentiles would add it once more.
    """
    n = len(conditions[0][1])
    value = float(np.mean([ece(*condition) for condition in conditions]))
    gaps = [_gaps(*condition) for condition in conditions]
    draw, drawn = np.random.default_rng([seed, n, RESAMPLES]), []
    for _ in range(RESAMPLES // AT_ONCE):
        counts = np.stack([np.bincount(row, minlength=n) for row in draw.integers(0, n, (AT_ONCE, n))]).astype(
            np.float64
        )
        drawn.append(np.mean([np.abs(counts @ gap).sum(axis=1) / n for gap in gaps], axis=0))
    low, high = np.quantile(np.concatenate(drawn), (0.025, 0.975))
    ends = np.clip([2 * value - high, 2 * value - low], 0, 1)
    return {"value": value, "interval": [float(end) for end in ends], "n": n}


def _gaps(confidence: Array, correct: NDArray[np.bool_]) -> Array:
    """(n, BINS): correct - confidence of each image, in the column of its bin"""
    edges = np.linspace(0, 1, BINS + 1)[1:-1]
    gaps = np.zeros((len(correct), BINS))
    gaps[np.arange(len(correct)), np.searchsorted(edges, confidence)] = correct - confidence
    return gaps
