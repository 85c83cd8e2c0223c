"""A row: one number with what it is a share or a mean of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphase.measures.stats import mean_of, rate, wilson


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
    """How often a flag holds, with Wilson's interval; flags of one row of a matrix stand or fall together."""
    found = rate(flags, where)
    assert found.value is not None
    assert found.interval is not None
    return Row(name, found.value, found.n, found.interval, of, chance)


def mean(name: str, rows: Sequence[Row], of: str, *, chance: float | None = None) -> Row:
    """The mean of rows about different images, each counting the same."""
    value, interval = mean_of([(row.value, row.interval) for row in rows])
    return Row(name, value, sum(row.n for row in rows), interval, of, chance)


def per_class(name: str, right: NDArray[np.bool_], labels: NDArray[np.int64], of: str) -> Row:
    """The mean over the classes that have images of the share that is right.

    Its interval is Wilson's for as many images as, all counting the same, would say as much (Kish): n where classes are even.
    """
    sizes = np.bincount(labels)
    sizes = sizes[sizes > 0]
    value = class_mean(right, labels)
    return Row(name, value, len(labels), wilson(value, len(sizes) ** 2 / float((1 / sizes).sum())), of)


def class_mean(right: NDArray[np.bool_], labels: NDArray[np.int64]) -> float:
    return float(np.mean([right[labels == label].mean() for label in np.unique(labels)]))
