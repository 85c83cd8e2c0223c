"""The forms that a verdict of the audit can take. Each comes from numbers; none is written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphase.measures.stats import mean_interval, rate

Array = np.ndarray[Any, np.dtype[np.float64]]
Flags = NDArray[np.bool_]
Figures = dict[str, Any]  # a number, a text, or a rate with hits, n and interval
NEEDS_BASE = "not evaluated: needs --base"


@dataclass(frozen=True)
class Row:
    """One statement of the paper, or one that it leaves out."""

    name: str
    statement: str  # as printed
    verdict: str
    corrected: str  # what is true
    figures: Figures


def identity(residual: Array, tolerance: float) -> str:
    """Of a relative residual; NaN entries have nothing to compare."""
    there = residual[np.isfinite(residual)]
    if not len(there):
        return "not evaluated: nothing to compare"
    worst = float(there.max())
    return f"identity holds to {worst:.1e}" if worst <= tolerance else violated(there > tolerance)


def holds(flags: Any, where: Any = True, *, empty: str = "no case to look at") -> str:
    """Of a statement about every case: one exception is a violation."""
    found = rate(flags, where)
    if found.n == 0:
        return f"not evaluated: {empty}"
    if found.hits == found.n:
        return f"holds on 100 % (n = {found.n})"
    return violated(~np.asarray(flags, dtype=bool), where)


def violated(flags: Any, where: Any = True) -> str:
    found = rate(flags, where)
    assert found.value is not None
    return f"violated on {percent(found.value)} % (n = {found.n})"


def happens(flags: Any, where: Any = True) -> str:
    """Of a statement that something exists: the share on which it was found."""
    found = rate(flags, where)
    assert found.value is not None
    return f"holds on {percent(found.value)} % (n = {found.n})"


def postulated(what: str, values: Array) -> str:
    """Of a number that is assumed: its mean over images with a 95 % interval."""
    if not np.isfinite(values).any():
        return "not evaluated: the maps do not move at all"
    found = mean_interval(values)
    interval = "" if found["interval"] is None else " [{:.3f}, {:.3f}]".format(*found["interval"])
    return f"postulated; measured {what} {found['value']:.3f}{interval} (n = {found['n']})"


def percent(value: float) -> str:
    """Never 0 or 100 for a share that is not."""
    shown = f"{100 * value:.1f}"
    if 0 < value < 1 and shown in ("0.0", "100.0"):
        shown = f"{100 * value:.6g}"
    return shown.removesuffix(".0")


def median(values: Any) -> float | None:
    values = np.asarray(values, dtype=np.float64)
    values = values[np.isfinite(values)]
    return float(np.median(values)) if values.size else None


def mean(values: Any) -> float | None:
    values = np.asarray(values, dtype=np.float64)
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else None


def worst(values: Any) -> float | None:
    values = np.asarray(values, dtype=np.float64)
    values = values[np.isfinite(values)]
    return float(values.max()) if values.size else None


def share(flags: Any, where: Any = True) -> dict[str, Any]:
    return rate(flags, where).plain()
