"""What a benchmark line is, and how two things are measured in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Timed = Callable[[], float]  # does the thing once and returns its seconds


@dataclass(frozen=True)
class Measured:
    """One ratio a pair, and what belongs beside them: success rates, costs."""

    ratios: list[float]
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    what: str
    goal: str  # "<= 1.10" or ">= 0.60"
    measure: Callable[[int], Measured]


def interleaved(first: Timed, second: Timed, n: int, warm: int = 3) -> Iterator[tuple[float, float]]:
    """n pairs after some to warm up; who goes first alternates, so that drift and cache favour neither."""
    for i in range(n + warm):
        if i % 2:
            b, a = second(), first()
        else:
            a, b = first(), second()
        if i >= warm:
            yield a, b


def timed(action: Callable[[], object]) -> Timed:
    def once() -> float:
        began = time.perf_counter()
        action()
        return time.perf_counter() - began

    return once
