"""PGD over a pool: fooled examples leave the batch at once and waiting ones enter, each at its own step.

Every forward is spent on an example still standing, and success is read from the forward that the next gradient needs
anyway. n examples, S of them at work, R runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from antiphase.attacks.compiled import compiled
from antiphase.attacks.config import PGD
from antiphase.attacks.eightbit import to_eight_bits
from antiphase.attacks.job import SLACK, Job
from antiphase.attacks.journal import Entry, Journal, pack, unpack
from antiphase.attacks.losses import LOSSES
from antiphase.attacks.place import patch_masks
from antiphase.attacks.step import ascend, begin
from antiphase.attacks.tally import Tally
from antiphase.models.lean import lean


@dataclass(frozen=True)
class Slots:
    """The examples at work, S of them. Pixels live on the device, book-keeping on the CPU."""

    row: Tensor  # (S,) which example
    run: Tensor  # (S,) which of its runs
    step: Tensor  # (S,) gradient steps taken
    first: Tensor  # (S,) loss at the start
    x: Tensor  # (S, C, H, W) the originals
    adv: Tensor  # (S, C, H, W)
    mask: Tensor  # (S, 1, H, W) where pixels may change; (S, 0, 0, 0) where they may everywhere

    def keep(self, stay: Tensor) -> Slots:
        here = stay.to(self.adv.device)
        return Slots(
            *(t[stay] for t in (self.row, self.run, self.step, self.first)),
            *(t[here] for t in (self.x, self.adv, self.mask)),
        )

    def join(self, other: Slots) -> Slots:
        return Slots(*(torch.cat([a, b]) for a, b in zip(vars(self).values(), vars(other).values())))


class Pool:
    """All examples of a job; all their runs if `every_run`, else each until its first success.

    An example waits, is at work or has ended: `left` runs are still to end. With a journal, those it knows have ended
    from the start, and every other is written there as it ends.
    """

    def __init__(
        self, job: Job, attack: PGD, *, every_run: bool, compiling: bool = False, journal: Journal | None = None
    ) -> None:
        n = len(job.x)
        self.job, self.attack, self.every_run, self.compiling, self.journal = job, attack, every_run, compiling, journal
        self.fast: Callable[[Tensor], Tensor] | None = None  # for full batches
        self.loss, self.aim, self.sign = LOSSES[attack.loss], job.aim(attack), 1.0 if attack.target is None else -1.0
        self.masks = patch_masks(job.classifier, job.x, job.ids, attack.within, job.seed, job.batch_size, job.device)
        job.changed = torch.zeros(attack.runs if every_run else 1, n, dtype=torch.bool)
        self.tally = Tally(n)
        self.left = torch.full((n,), attack.runs)
        self.winner = torch.full((n,), attack.runs)  # the earliest run that succeeded: its pixels are kept
        self._take_over()
        standing = torch.nonzero(self.left)[:, 0].tolist()
        # (example, run); all runs of an example together, so that it has ended early and not with the last run of all
        self.waiting = deque((i, r) for i in standing for r in range(len(job.changed)))

    def empty(self) -> None:
        """Attack until nobody waits or is at work."""
        with lean(self.job.classifier):
            slots = self._enter(self.job.batch_size) if self.waiting else None
            if slots is not None and self.compiling and len(slots.row) == self.job.batch_size:
                self.fast = compiled(self.job.classifier, slots.adv)
                self.job.compiled = self.fast is not None
            while slots is not None and len(slots.row):
                slots = self._step(slots)
        self.job.flags += self.tally.flags(self.attack, int(self.job.changed.any(dim=0).sum()))

    def _step(self, slots: Slots) -> Slots:
        """One forward for everybody at work, one step for those who go on; who waits takes the free slots."""
        job = self.job
        adv = slots.adv.requires_grad_()
        model = self.fast if self.fast is not None and len(adv) == job.batch_size else job.classifier
        logits = model(adv)
        values = self.sign * self.loss(logits, self.aim[slots.row].to(job.device))
        job.spend(job.forwards, slots.row)
        now = values.detach().double().cpu()
        at_start, spent = slots.step == 0, slots.step == self.attack.steps
        won = job.won(logits.detach().argmax(dim=1).cpu(), slots.row)
        risen = now - slots.first > 1e-5 * (1 + slots.first.abs())  # less is the rounding of other neighbours
        self.tally.look(slots.row, at_start=at_start, risen=risen, won=won, spent=spent)
        slots = replace(slots, adv=adv.detach(), first=torch.where(at_start, now, slots.first))
        won = self._note(slots, won, spent)
        stay = ~(won | spent)
        slots = slots.keep(stay)
        if len(slots.row):
            # summed, never averaged: the gradient of an example must not depend on how many stand beside it
            here = stay.to(job.device)
            grad = torch.autograd.grad(values[here].sum(), adv)[0][here]
            grad = grad * slots.mask if slots.mask.numel() else grad
            job.spend(job.backwards, slots.row)
            self.tally.gradient(slots.row, grad)
            slots = replace(slots, adv=ascend(slots.adv, grad, slots.x, self.attack), step=slots.step + 1)
        free = job.batch_size - len(slots.row)
        return slots.join(self._enter(free)) if self.waiting and free else slots

    def _enter(self, free: int) -> Slots:
        """Waiting examples take the free slots, each at a random start of its own."""
        job, attack = self.job, self.attack
        entering = [self.waiting.popleft() for _ in range(min(free, len(self.waiting)))]
        row, run = (torch.tensor(t) for t in zip(*entering))
        x = job.x[row]
        mask = x.new_zeros(len(row), 0, 0, 0) if self.masks is None else self.masks[row]
        adv = torch.empty_like(x)
        for r in sorted(set(run.tolist())):  # the key names the run, so runs are drawn one by one
            here = run == r
            some = None if self.masks is None else mask[here]
            adv[here] = begin(x[here], job.ids[row[here].numpy()], attack, (job.seed, "start", r), some)
        zeros = torch.zeros(len(row), dtype=torch.int64)
        pixels = (t.to(job.device) for t in (x, adv, mask))
        return Slots(row, run, zeros, zeros.double(), *pixels)

    def _on_the_grid(self, slots: Slots, won: Tensor) -> tuple[Tensor, Tensor]:
        """Who is still fooled by pixels on the grid of 255ths, and those pixels."""
        job, within = self.job, self.attack.within
        here = won.to(job.device)
        rounded = to_eight_bits(slots.adv[here], slots.x[here], within)
        inside = within.size(rounded.double() - slots.x[here].double()) <= float(within.eps) + SLACK
        again = job.won(job.logits(rounded, slots.row[won]).argmax(dim=1), slots.row[won]) & inside.cpu()
        kept, still = slots.adv.clone(), won.clone()
        kept[here], still[won] = rounded, again
        return still, kept

    def _note(self, slots: Slots, won: Tensor, spent: Tensor) -> Tensor:
        """Write down who was fooled and who has come to the end; a survivor of one run waits for the next.

        Returns who was fooled: with eight bits, only those whom pixels on the grid fool too.
        """
        job, kept = self.job, slots.adv
        if job.eight_bit and bool(won.any()):
            won, kept = self._on_the_grid(slots, won)
        for row, run, pixels in zip(slots.row[won].tolist(), slots.run[won].tolist(), kept[won.to(job.device)].cpu()):
            job.changed[run if self.every_run else 0, row] = True
            if run < self.winner[row]:
                job.adversarial[row], self.winner[row] = pixels, run
            self.left[row] = self.left[row] - 1 if self.every_run else 0
        lost = spent & ~won
        for row, run in zip(slots.row[lost].tolist(), slots.run[lost].tolist()):
            self.left[row] -= 1
            if self.left[row] and not self.every_run:
                self.waiting.append((row, run + 1))
        ended = sorted({row for row in slots.row[won | lost].tolist() if not self.left[row]})
        if ended and self.journal is not None:
            self.journal.write([self._entry(row) for row in ended])
        job.advance(len(ended), f"{int(job.changed.any(dim=0).sum())} fooled")
        return won

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
