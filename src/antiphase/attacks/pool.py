"""A pool of examples at work: who is fooled leaves the batch at once and who waits enters, each at its own step.

Every forward is spent on an example still standing, and success is read from the forward that the next gradient needs
anyway. What is done between two forwards is the method's (attacks/method.py). n examples, S slots at work, R runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from antiphase.attacks.compiled import compiled
from antiphase.attacks.config import Attack
from antiphase.attacks.eightbit import to_eight_bits
from antiphase.attacks.job import SLACK, Job, vote
from antiphase.attacks.journal import Entry, Journal, pack, unpack
from antiphase.attacks.method import Method, Seen, join, keep, put
from antiphase.attacks.tally import Tally
from antiphase.models.lean import lean


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
        job.changed = torch.zeros(attack.runs if every_run else 1, n, dtype=torch.bool)
        self.tally = Tally(n)
        self.left = torch.full((n,), attack.runs)
        self.lanes: dict[tuple[int, int], int] = {}  # of every (example, run) at work: lanes that still are
        self.winner = torch.full((n,), attack.runs)  # the earliest run that succeeded: its pixels are kept
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
        key = slots.row * self.attack.runs + slots.run
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
