"""What is particular to an iterative attack: a state of tensors, an entry an example at work, and pure functions of it.

All the rest (who is at work, what counts as fooled, costs, journal, red flags) belongs to the pool. S examples at work,
G gradients that a method wants of each (most want one), K classes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

State = TypeVar("State")  # a dataclass of tensors with leading axis S


def keep(state: State, stay: Tensor) -> State:
    """The entries of those who stay: (S,) bool."""
    if bool(stay.all()):
        return state
    return _each(state, lambda t: t[stay.to(t.device)])


def join(state: State, other: State) -> State:
    return _each(state, lambda t, u: torch.cat([t, u]), other)


def put(state: State, where: Tensor, part: State) -> State:
    """The state with the entries at `where`, (S,) bool, taken from `part`, which has just these."""

    def written(t: Tensor, u: Tensor) -> Tensor:
        t = t.clone()
        t[where.to(t.device)] = u
        return t

    return _each(state, written, part)


def _each(state: State, act: Any, *others: State) -> State:
    names = [f.name for f in fields(state)]  # type: ignore[arg-type]
    return type(state)(*(act(*(getattr(s, name) for s in (state, *others))) for name in names))


@dataclass(frozen=True)
class Seen(Generic[State]):
    """What a method makes of one forward. Book-keeping (S,) on the CPU."""

    state: State
    won: Tensor  # has what it came for: leaves, and with it the other lanes of its run
    spent: Tensor  # goes no further
    pixels: Tensor  # (S, C, H, W) what counts as adversarial where it won
    steered: Tensor | None = None  # of those who go on, who moves along gradients taken here; None: all
    height: Tensor | None = None  # float64: what it has driven up, for the flag that this did not rise


class Method(Protocol[State]):
    """One attack on the examples of one job.

    An attack of a budget reports `won` as soon as pixels inside the set fool. One of minimal size keeps its best pixels in
    its state and reports `won` and `spent` at once, at the end of its own rule.
    """

    lanes: int  # tries of one run, such as its targets, that enter together and leave together when one has won
    steered: bool  # it wants gradients; else it sets its next pixels in `see`
    looks: int  # times that a randomised model is asked about the same pixels, each time for a gradient
    random_start: bool  # success at the first look is luck, not merit
    masks: Tensor | None  # (n, 1, H, W) of all examples, where pixels may change; None: everywhere

    def begin(self, row: Tensor, run: Tensor, lane: Tensor) -> State:
        """Where examples `row` begin in their `run` and `lane`: (S,) each, on the CPU."""

    def pixels(self, state: State) -> Tensor:
        """What the model is to see next. (S, C, H, W)"""

    def values(self, state: State, logits: Tensor) -> Tensor:
        """What it reads from the answer, and what gradients are taken of if it wants them. (G, S)"""

    def see(self, state: State, values: Tensor, fooled: Tensor) -> Seen[State]:
        """After a forward on `pixels`; the values are detached, `fooled` is (S,) bool on the CPU."""

    def move(self, state: State, grads: Tensor) -> State:
        """A step for those steered, along their gradients: (G, S, C, H, W)."""
