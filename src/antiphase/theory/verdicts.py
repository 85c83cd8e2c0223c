"""The forms that a verdict of the audit can take. Each comes from numbers; none is written by hand.

Outcomes: "holds", "violated", "identity holds", "postulated", "not evaluated". The sentence begins with the outcome and is what
a reader sees and a file keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from antiphase.measures.stats import Array, Verdict, largest_finite, mean_interval
from antiphase.rates import rate

Figures = dict[str, Any]  # a number, a text, or a rate with hits, n and interval


@dataclass(frozen=True)
class AuditRow:
    """One statement of the paper, or one that it leaves out, and what the evidence says of it."""

    name: str
    statement: str  # as printed
    verdict: Verdict
    corrected: str  # what is true
    figures: Figures

    def plain(self) -> dict[str, Any]:
        """As JSON keeps it: the verdict is its sentence."""
        return {**vars(self), "verdict": self.verdict.why}


def not_evaluated(why: str) -> Verdict:
    return Verdict(outcome="not evaluated", why=f"not evaluated: {why}")


NEEDS_BASE = not_evaluated("needs --base")


def identity(residual: Array, tolerance: float) -> Verdict:
    """Of a relative residual; NaN entries have nothing to compare."""
    worst = largest_finite(residual)
    if worst is None:
        return not_evaluated("nothing to compare")
    if worst <= tolerance:
        return Verdict(outcome="identity holds", why=f"identity holds to {worst:.1e}")
    return violated(residual > tolerance, np.isfinite(residual))


def holds(flags: Any, where: Any = True, *, empty: str = "no case to look at") -> Verdict:
    """Of a statement about every case: one exception is a violation."""
    cases = rate(flags, where)
    if cases.n == 0:
        return not_evaluated(empty)
    return happens(flags, where) if cases.hits == cases.n else violated(~np.asarray(flags, dtype=bool), where)


def violated(flags: Any, where: Any = True) -> Verdict:
    """Of a statement about every case: the share on which it fails."""
    cases = rate(flags, where)
    assert cases.value is not None
    return Verdict(outcome="violated", why=f"violated on {percent(cases.value)} % (n = {cases.n})")


def happens(flags: Any, where: Any = True) -> Verdict:
    """Of a statement that something exists: the share on which it was found."""
    cases = rate(flags, where)
    assert cases.value is not None
    return Verdict(outcome="holds", why=f"holds on {percent(cases.value)} % (n = {cases.n})")


def postulated(what: str, values: Array) -> Verdict:
    """Of a number that is assumed: its mean over images with a 95 % interval."""
    if not np.isfinite(values).any():
        return not_evaluated("the maps do not move at all")
    mean = mean_interval(values)
    interval = "" if mean["interval"] is None else " [{:.3f}, {:.3f}]".format(*mean["interval"])
    why = f"postulated; measured {what} {mean['value']:.3f}{interval} (n = {mean['n']})"
    return Verdict(outcome="postulated", why=why)


def percent(value: float) -> str:
    """Never 0 or 100 for a share that is not."""
    shown = f"{100 * value:.1f}"
    if 0 < value < 1 and shown in ("0.0", "100.0"):
        shown = f"{100 * value:.6g}"
    return shown.removesuffix(".0")


def share(flags: Any, where: Any = True) -> dict[str, Any]:
    """A rate as a figure of a row."""
    return rate(flags, where).plain()
