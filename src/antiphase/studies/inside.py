"""One number an image out of the rows of a measure: how `sides` see inside attention. No torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from antiphase.measures.bootstrap import Array
from antiphase.studies.sides import Values
from antiphase.studies.study import Answer

Rows = dict[str, list[Any]]


def chosen(rows: Rows, layer: int | None, **only: Any) -> Any:
    """(rows,) bool: those where the columns say so, of one layer by its place in the model or of all."""
    mask = np.ones(len(rows["image"]), dtype=bool)
    for name, wanted in only.items():
        mask &= np.array([value == wanted for value in rows[name]])
    if layer is not None:
        names = list(dict.fromkeys(name for name, kept in zip(rows["layer"], mask) if kept and name is not None))
        mask &= np.array([name == names[layer] for name in rows["layer"]])
    return mask


def sums(rows: Rows, values: Any, counted: Any) -> tuple[Array, Array]:
    """Sums of values and of counts over the rows of each image, images in the order of the rows: (n,) each"""
    images = list(dict.fromkeys(rows["image"]))
    place = {image: i for i, image in enumerate(images)}
    at = np.array([place[image] for image in rows["image"]])
    top, bottom = np.zeros(len(images)), np.zeros(len(images))
    np.add.at(top, at, np.where(counted, values, 0.0))
    np.add.at(bottom, at, np.asarray(counted, dtype=np.float64))
    return top, bottom


def column(rows: Rows, name: str) -> Array:
    """As numbers; NaN where there is none"""
    return np.array([np.nan if value is None else float(value) for value in rows[name]])


def mean_of(name: str, layer: int | None = None, **only: Any) -> Values:
    """The mean of a column over an image's rows: heads, and layers where none is named."""

    def values(answer: Answer) -> tuple[Array, Array]:
        rows = answer["rows"]
        found = column(rows, name)
        return sums(rows, found, chosen(rows, layer, **only) & np.isfinite(found))

    return values


def log_of(name: str, layer: int | None = None, *, squared: bool = False, **only: Any) -> Values:
    """The same of its logarithm, or of that squared (for a spread)."""

    def values(answer: Answer) -> tuple[Array, Array]:
        rows = answer["rows"]
        with np.errstate(all="ignore"):
            found = np.log(column(rows, name)) ** (2 if squared else 1)
        return sums(rows, found, chosen(rows, layer, **only) & np.isfinite(found))

    return values


PAIRS = ("own", "untrained", "shuffled", "pseudo")  # the two branches of a head, and the controls


def negative(pairs: str, layer: int | None = 0) -> Values:
    """Of an image's heads whose sign is decided (more than two standard errors from 0), those with cos < 0."""

    def values(answer: Answer) -> tuple[Array, Array]:
        rows = answer["rows"]
        cos, decided = _signs(rows)
        return sums(rows, (cos < 0).astype(np.float64), decided & chosen(rows, layer, pairs=pairs))

    return values


def undecided(pairs: str, layer: int | None = 0) -> Values:
    """Of an image's heads, those whose sign is not decided: they are in no share of cos < 0."""

    def values(answer: Answer) -> tuple[Array, Array]:
        rows = answer["rows"]
        _, decided = _signs(rows)
        return sums(rows, (~decided).astype(np.float64), chosen(rows, layer, pairs=pairs))

    return values


def _signs(rows: Rows) -> tuple[Array, Any]:
    """Cosines, and whether each is more than two standard errors from 0."""
    cos, error = column(rows, "cos"), np.nan_to_num(column(rows, "cos_se"))
    return cos, np.isfinite(cos) & (np.abs(np.nan_to_num(cos)) > 2 * error)


def stacked(pairs: str, layer: int | None = 0) -> Values:
    """R2, from the rows of R1: all heads of a layer together have cos < 0 where the sum of their <J1, J2> is below 0."""

    def values(answer: Answer) -> tuple[Array, Array]:
        rows = answer["rows"]
        product, count = sums(rows, column(rows, "ip"), chosen(rows, layer, pairs=pairs))
        return (product < 0).astype(np.float64), (count > 0).astype(np.float64)

    return values
