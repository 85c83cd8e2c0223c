"""What a benchmark line is, and how two things are measured in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

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
    long: bool = False  # measured by `make bench-all` only


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


def fastest(candidates: Mapping[str, Callable[[], object]]) -> str:
    """Whose second turn takes the shortest: the peer that it is fair to be measured against."""
    for warm_up in candidates.values():
        warm_up()
    took = {name: timed(action)() for name, action in candidates.items()}
    return min(took, key=lambda name: took[name])


def of_the_machine(operations: int, step: Timed, n: int) -> list[float]:
    """(operations of a step / its seconds) / (operations of a 2048^3 float32 product / its seconds): at most 1 but for noise."""
    side = 2048
    a, b = torch.rand(side, side), torch.rand(side, side)
    pairs = interleaved(step, timed(lambda: a @ b), n, warm=10)
    return [operations / (2 * side**3) * product / seconds for seconds, product in pairs]
