"""What is particular to an iterative attack: a state of tensors, an entry an example at work, and pure functions of it.

All the rest (who is at work, what counts as fooled, costs, journal, red flags) belongs to the pool. S examples at work,
G gradients that a method wants of each (most want one), K classes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from antiphase.attacks.compiled import compiled
from antiphase.attacks.config import Attack
from antiphase.attacks.journal import Entry, Journal, pack, unpack
from antiphase.attacks.quantize import to_eight_bits
from antiphase.attacks.red_flags import run_flags
from antiphase.attacks.threat_model import SLACK
from antiphase.models.fast_path import lean

if TYPE_CHECKING:
    from antiphase.attacks.engine import Job

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


# ------------------------------------------------------------------------------------------------- attacks.tally
# What is counted on the way of an attack, an entry an example, for the red flags. n examples, S of them at work.


class Tally:
    """Counts over all runs of an example: kept apart, so that an example taken over from a journal brings its own."""

    NAMES = ("zero", "bad", "noise", "stood", "fell")

    def __init__(self, n: int) -> None:
        self.zero, self.bad = torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.int64)
        self.noise = torch.zeros(n, dtype=torch.int64)  # runs won at their random start
        self.stood = torch.zeros(n, dtype=torch.int64)  # runs that failed
        self.fell = torch.zeros(n, dtype=torch.int64)  # of these, with a loss that did not rise

    def look(self, rows: Tensor, *, at_start: Tensor, risen: Tensor, won: Tensor, spent: Tensor) -> None:
        """Each of (S,): a forward of these examples, and how it found them."""
        failed = spent & ~won
        for count, here in ((self.noise, won & at_start), (self.stood, failed), (self.fell, failed & ~risen)):
            count.index_add_(0, rows, here.long())  # an example may be at work in two of its runs

    def gradient(self, rows: Tensor, grads: Tensor) -> None:
        """Steps at which the gradients of an example, (G, S, C, H, W), were not all numbers, or all exactly zero."""
        largest = grads.flatten(2).norm(torch.inf, dim=2).amax(dim=0).cpu()  # (S,); what is not a number shows in it
        self.bad.index_add_(0, rows, (~largest.isfinite()).long())
        self.zero.index_add_(0, rows, (largest == 0).long())

    def of(self, row: int) -> list[int]:
        return [int(getattr(self, name)[row]) for name in self.NAMES]

    def take(self, row: int, counts: list[int]) -> None:
        for name, count in zip(self.NAMES, counts):
            getattr(self, name)[row] = count

    def flags(self, random_start: bool, won: int) -> list[str]:
        images = {name: int((getattr(self, name) > 0).sum()) for name in ("zero", "bad")}
        runs = {name: int(getattr(self, name).sum()) for name in ("stood", "fell")}
        noise = int(self.noise.sum()) if random_start else 0
        return run_flags(**images, **runs, noise=noise, won=won, n=len(self.zero))


# ------------------------------------------------------------------------------------------------- attacks.pool
# A pool of examples at work: who is fooled leaves the batch at once and who waits enters, each at its own step.
#
# Every forward is spent on an example still standing, and success is read from the forward that the next gradient needs
# anyway. What is done between two forwards is the method's (attacks/method.py). n examples, S slots at work, R runs.


@dataclass(frozen=True)
class Slots:
    """Who is at work, S of them, on the CPU; the state is the method's own."""

    row: Tensor  # (S,) which example
    run: Tensor  # (S,) which of its runs
    lane: Tensor  # (S,) which try of this run
    fresh: Tensor  # (S,) bool: not looked at yet
    first: Tensor  # (S,) height at the first look


class Pool:
    """All examples of a job; all their runs if `every_run`, else each until its first success.

    An example waits, is at work or has ended: `left` runs are still to end. With a journal, those it knows have ended
    from the start, and every other is written there as it ends.
    """

    def __init__(
        self,
        job: Job,
        attack: Attack,
        method: Method[Any],
        *,
        every_run: bool,
        compiling: bool = False,
        journal: Journal | None = None,
    ) -> None:
        n = len(job.x)
        self.job, self.attack, self.method = job, attack, method
        self.every_run, self.compiling, self.journal = every_run, compiling, journal
        self.width = max(1, job.batch_size // method.lanes) * method.lanes  # slots; whole runs enter, never some lanes
        self.fast: Callable[[Tensor], Tensor] | None = None  # for full batches
        job.changed = torch.zeros(attack.restarts if every_run else 1, n, dtype=torch.bool)
        self.tally = Tally(n)
        self.left = torch.full((n,), attack.restarts)
        self.lanes: dict[tuple[int, int], int] = {}  # of every (example, run) at work: lanes that still are
        self.winner = torch.full((n,), attack.restarts)  # the earliest run that succeeded: its pixels are kept
        self._take_over()
        standing = torch.nonzero(self.left)[:, 0].tolist()
        # (example, run); all runs of an example together, so that it has ended early and not with the last run of all
        self.waiting = deque((i, r) for i in standing for r in range(len(job.changed)))

    def empty(self) -> None:
        """Attack until nobody waits or is at work."""
        if self.waiting:
            with lean(self.job.classifier):
                slots, state = self._enter(self.width)
                if self.compiling and len(slots.row) == self.width:
                    pixels = self.method.pixels(state)
                    self.fast = compiled(self.job.classifier, pixels, backward=self.method.steered)
                    self.job.compiled = self.fast is not None
                while len(slots.row):
                    slots, state = self._step(slots, state)
        won = int(self.job.changed.any(dim=0).sum())
        self.job.flags += self.tally.flags(self.method.random_start, won)

    def _step(self, slots: Slots, state: Any) -> tuple[Slots, Any]:
        """One forward for everybody at work, one step for those who go on; who waits takes the free slots."""
        shown = self.method.pixels(state).detach().requires_grad_(self.method.steered)
        values, fooled = self._look(shown, state, slots.row)
        seen = self.method.see(state, values.detach(), fooled)
        slots = self._tallied(slots, seen)
        won = self._note(slots, seen)
        stay = ~(self._of_the_same_run(slots, won) | seen.spent)
        moving = stay if seen.steered is None else stay & seen.steered
        slots, state = keep(slots, stay), keep(seen.state, stay)
        if self.method.steered and bool(moving.any()):
            grads = self._gradients(values, shown, moving)
            state = self._moved(state, grads, slots.row, moving[stay])
        free = self.width - len(slots.row)
        if not self.waiting or free < self.method.lanes:
            return slots, state
        who, began = self._enter(free)
        return join(slots, who), join(state, began)

    def _look(self, shown: Tensor, state: Any, row: Tensor) -> tuple[Tensor, Tensor]:
        """The values that the method reads, means over all looks: (G, S); and who is fooled: (S,)."""
        job, method = self.job, self.method
        model = self.fast if self.fast is not None and len(shown) == self.width else job.classifier
        with torch.set_grad_enabled(method.steered):
            answers = [model(shown) for _ in range(method.looks)]
            read = [method.values(state, answer) for answer in answers]
            values = read[0] if len(read) == 1 else torch.stack(read).mean(dim=0)
        for _ in answers:
            job.spend(job.forwards, row)
        return values, job.won(vote([answer.detach() for answer in answers]).cpu(), row)

    def _gradients(self, values: Tensor, shown: Tensor, moving: Tensor) -> Tensor:
        """(G, S, C, H, W) of those who move. Summed, never averaged: an example must not depend on how many stand beside it."""
        here = None if bool(moving.all()) else moving.to(shown.device)
        some = []
        for g, value in enumerate(values, 1):
            driven = value if here is None else value[here]
            (grad,) = torch.autograd.grad(driven.sum(), shown, retain_graph=g < len(values))
            some.append(grad if here is None else grad[here])
        return some[0][None] if len(some) == 1 else torch.stack(some)

    def _moved(self, state: Any, grads: Tensor, row: Tensor, where: Tensor) -> Any:
        """The state, a step further for those `where` (of all who go on)."""
        job, row = self.job, row[where]
        grads = grads if self.method.masks is None else grads * self.method.masks[row].to(grads)
        for _ in grads:
            job.spend(job.backwards, row)
        self.tally.gradient(row, grads)
        if bool(where.all()):
            return self.method.move(state, grads)
        return put(state, where, self.method.move(keep(state, where), grads))

    def _enter(self, free: int) -> tuple[Slots, Any]:
        """Waiting runs take the free slots, with all their lanes."""
        lanes = self.method.lanes
        entering = [self.waiting.popleft() for _ in range(min(free // lanes, len(self.waiting)))]
        self.lanes.update(dict.fromkeys(entering, lanes))
        row, run = (torch.tensor(t).repeat_interleave(lanes) for t in zip(*entering))
        lane = torch.arange(lanes).repeat(len(entering))
        first = torch.zeros(len(row), dtype=torch.float64)
        return Slots(row, run, lane, torch.ones_like(row, dtype=torch.bool), first), self.method.begin(row, run, lane)

    def _tallied(self, slots: Slots, seen: Seen[Any]) -> Slots:
        """Count what this forward found."""
        height = slots.first + 1 if seen.height is None else seen.height
        risen = height - slots.first > 1e-5 * (1 + slots.first.abs())  # less is the rounding of other neighbours
        at_start = slots.fresh & (slots.lane == 0)  # luck is counted once a run, however many lanes have a start
        self.tally.look(slots.row, at_start=at_start, risen=risen, won=seen.won, spent=seen.spent)
        first = torch.where(slots.fresh, height, slots.first)
        return replace(slots, fresh=torch.zeros_like(slots.fresh), first=first)

    def _of_the_same_run(self, slots: Slots, won: Tensor) -> Tensor:
        """Who has won, and the other lanes of the same runs."""
        if self.method.lanes == 1:
            return won
        key = slots.row * self.attack.restarts + slots.run
        return torch.isin(key, key[won])

    def _on_the_grid(self, row: Tensor, won: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Who is still fooled by pixels on the grid of 255ths, and those pixels."""
        job, within = self.job, self.attack.within
        here = won.to(job.device)
        x = job.x[row[won]].to(job.device)
        rounded = to_eight_bits(pixels[here], x, within)
        inside = within.size(rounded.double() - x.double()) <= float(within.eps) + SLACK
        again = job.won(job.ask(rounded, row[won])[1], row[won]) & inside.cpu()
        kept, still = pixels.clone(), won.clone()
        kept[here], still[won] = rounded, again
        return still, kept

    def _note(self, slots: Slots, seen: Seen[Any]) -> Tensor:
        """Write down who was fooled and who has come to the end; a survivor of one run waits for the next.

        Returns who was fooled: with eight bits, only those whom pixels on the grid fool too.
        """
        job, won, kept = self.job, seen.won, seen.pixels
        if job.eight_bit and bool(won.any()):
            won, kept = self._on_the_grid(slots.row, won, kept)
        for row, run, pixels in zip(slots.row[won].tolist(), slots.run[won].tolist(), kept[won.to(job.device)].cpu()):
            if not self.lanes.pop((row, run), 0):
                continue  # an earlier lane of this run has won in the same forward
            job.changed[run if self.every_run else 0, row] = True
            if run < self.winner[row]:
                job.adversarial[row], self.winner[row] = pixels, run
            self.left[row] = self.left[row] - 1 if self.every_run else 0
        lost = seen.spent & ~won
        for row, run in zip(slots.row[lost].tolist(), slots.run[lost].tolist()):
            self._lose(row, run)
        ended = sorted({row for row in slots.row[won | lost].tolist() if not self.left[row]})
        if ended and self.journal is not None:
            self.journal.write([self._entry(row) for row in ended])
        job.advance(len(ended), f"{int(job.changed.any(dim=0).sum())} fooled")
        return won

    def _lose(self, row: int, run: int) -> None:
        """A lane has come to its end; with the last one its run has."""
        if (row, run) not in self.lanes:
            return  # another lane has won
        self.lanes[row, run] -= 1
        if self.lanes[row, run]:
            return
        del self.lanes[row, run]
        self.left[row] -= 1
        if self.left[row] and not self.every_run:
            self.waiting.append((row, run + 1))

    def _entry(self, row: int) -> Entry:
        job = self.job
        changed = job.changed[:, row].int().tolist()
        spent = int(job.forwards[row]), int(job.backwards[row])
        pixels = pack(job.adversarial[row]) if any(changed) else None
        return Entry(int(job.ids[row]), changed, *spent, self.tally.of(row), pixels)

    def _take_over(self) -> None:
        """Who is in the journal has ended, with all that was known about it."""
        job, rows = self.job, {int(number): row for row, number in enumerate(self.job.ids)}
        entries = [] if self.journal is None else [e for e in self.journal.read() if e.id in rows]
        for entry in entries:
            row = rows[entry.id]
            job.changed[:, row] = torch.tensor(entry.changed, dtype=torch.bool)
            job.forwards[row], job.backwards[row], self.left[row] = entry.forwards, entry.backwards, 0
            self.tally.take(row, entry.tally)
            if entry.pixels is not None:
                job.adversarial[row] = unpack(entry.pixels, job.x[row])
        job.advance(len(entries), "")


# ------------------------------------------------------------------------------------------------- attacks.targets
# Which classes a targeted attack tries. n examples, K classes.


def likeliest_others(job: Job, aim: Tensor, count: int) -> Tensor:
    """(n, T): the classes that the clean image comes nearest to, T = min(count, K - 1).

    Never the class `aim` that is driven away from; the predicted one, if that is another, comes last: reaching it is no success.
    """
    order = job.seen.logits.clone()
    order.scatter_(1, job.clean[:, None], order.amin(dim=1, keepdim=True) - 1)
    order.scatter_(1, aim[:, None], order.amin(dim=1, keepdim=True) - 1)
    return order.argsort(dim=1, descending=True, stable=True)[:, : min(count, order.shape[1] - 1)]


# ------------------------------------------------------------------------------------------------- attacks.job


def vote(answers: Sequence[Tensor]) -> Tensor:
    """The class that most of these logits, (B, K) each, name; the first of those that tie. (B,)"""
    named = [answer.argmax(dim=1) for answer in answers]
    return named[0] if len(named) == 1 else torch.stack(named).mode(dim=0).values
