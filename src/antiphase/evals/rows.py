"""Rows of an evaluation: one number with its interval and what it is a share or a mean of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphase.measures.stats import mean_of
from antiphase.rates import rate, wilson


@dataclass(frozen=True)
class Row:
    """`value` and `interval` (95 %) are shares of 1; `of` says in words what they are shares of, n how many there are."""

    name: str
    value: float
    n: int
    interval: tuple[float, float]
    of: str
    chance: float | None = None


def share(name: str, flags: Any, of: str, *, where: Any = True, chance: float | None = None) -> Row:
    """How often a flag holds, with Wilson's interval; flags in one row of a matrix count as one trial in it."""
    estimate = rate(flags, where)
    assert estimate.value is not None
    assert estimate.interval is not None
    return Row(name, estimate.value, estimate.n, estimate.interval, of, chance)


def mean(name: str, rows: Sequence[Row], of: str, *, chance: float | None = None) -> Row:
    """The mean of rows about different images, each counting the same."""
    value, interval = mean_of([(row.value, row.interval) for row in rows])
    return Row(name, value, sum(row.n for row in rows), interval, of, chance)


def per_class(name: str, correct: NDArray[np.bool_], labels: NDArray[np.int64], of: str) -> Row:
    """Accuracy averaged over the classes that have images.

    Its interval is Wilson's for Kish's effective number of images, which is n where classes are of equal size.
    """
    sizes = np.bincount(labels)
    sizes = sizes[sizes > 0]
    value = mean_over_classes(correct, labels)
    return Row(name, value, len(labels), wilson(value, len(sizes) ** 2 / float((1 / sizes).sum())), of)


def mean_over_classes(correct: NDArray[np.bool_], labels: NDArray[np.int64]) -> float:
    return float(np.mean([correct[labels == label].mean() for label in np.unique(labels)]))
