"""PGD over a pool: fooled examples leave the batch at once and waiting ones enter, each at its own step.

Every forward is spent on an example still standing, and success is read from the forward that the next gradient needs
anyway. n examples, S of them at work, R runs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from antiphase.attacks.checks import run_flags
from antiphase.attacks.config import PGD
from antiphase.attacks.eightbit import to_eight_bits
from antiphase.attacks.job import SLACK, Job
from antiphase.attacks.losses import LOSSES
from antiphase.attacks.place import patch_masks
from antiphase.attacks.step import ascend, begin
from antiphase.models.lean import lean

Waiting = deque[tuple[int, int]]  # (example, run)


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


@dataclass
class Tally:
    """What is counted on the way, for the red flags."""

    zero: Tensor  # (n,) bool: the gradient was once exactly zero
    bad: Tensor  # (n,) bool: the gradient was once not a number
    noise: int = 0  # runs won at their random start
    stood: int = 0  # runs that failed
    fell: int = 0  # of these, with a loss that did not rise

    def look(self, slots: Slots, losses: Tensor, won: Tensor, spent: Tensor) -> None:
        failed = spent & ~won
        self.noise += int((won & (slots.step == 0)).sum())
        self.stood += int(failed.sum())
        self.fell += int((failed & (losses <= slots.first)).sum())

    def gradient(self, rows: Tensor, grad: Tensor) -> None:
        self.bad[rows] |= ~grad.flatten(1).isfinite().all(dim=1).cpu()
        self.zero[rows] |= (grad == 0).flatten(1).all(dim=1).cpu()

    def flags(self, attack: PGD, won: int) -> list[str]:
        noise = self.noise if attack.random_start else 0
        counts = {"zero": int(self.zero.sum()), "bad": int(self.bad.sum()), "stood": self.stood, "fell": self.fell}
        return run_flags(**counts, noise=noise, won=won, n=len(self.zero))


def run_pgd(job: Job, attack: PGD, *, every_run: bool) -> None:
    """All examples; all their runs if `every_run`, else each until its first success."""
    n, rounds = len(job.x), attack.runs if every_run else 1
    loss, aim, sign = LOSSES[attack.loss], job.aim(attack), 1.0 if attack.target is None else -1.0
    masks = patch_masks(job.classifier, job.x, job.ids, attack.within, job.seed, job.batch_size, job.device)
    job.changed = torch.zeros(rounds, n, dtype=torch.bool)
    waiting: Waiting = deque((i, r) for r in range(rounds) for i in range(n))
    tally = Tally(torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool))
    slots = _enter(job, attack, waiting, job.batch_size, masks)
    with lean(job.classifier):
        while len(slots.row):
            adv = slots.adv.requires_grad_()
            logits = job.classifier(adv)
            values = sign * loss(logits, aim[slots.row].to(job.device))
            job.forwards[slots.row] += 1
            now = values.detach().double().cpu()
            won, spent = job.won(logits.detach().argmax(dim=1).cpu(), slots.row), slots.step == attack.steps
            tally.look(slots, now, won, spent)
            slots = replace(slots, adv=adv.detach(), first=torch.where(slots.step == 0, now, slots.first))
            won = _note(job, slots, attack, won, spent, every_run, waiting)
            stay = ~(won | spent)
            slots = slots.keep(stay)
            if len(slots.row):
                # summed, never averaged: the gradient of an example must not depend on how many stand beside it
                here = stay.to(job.device)
                grad = torch.autograd.grad(values[here].sum(), adv)[0][here]
                grad = grad * slots.mask if slots.mask.numel() else grad
                job.backwards[slots.row] += 1
                tally.gradient(slots.row, grad)
                slots = replace(slots, adv=ascend(slots.adv, grad, slots.x, attack), step=slots.step + 1)
            if waiting and len(slots.row) < job.batch_size:
                slots = slots.join(_enter(job, attack, waiting, job.batch_size - len(slots.row), masks))
    job.flags += tally.flags(attack, int(job.changed.any(dim=0).sum()))


def _enter(job: Job, attack: PGD, waiting: Waiting, free: int, masks: Tensor | None) -> Slots:
    """Waiting examples take the free slots, each at a random start of its own."""
    row, run = (torch.tensor(t) for t in zip(*(waiting.popleft() for _ in range(min(free, len(waiting))))))
    x = job.x[row]
    mask = x.new_zeros(len(row), 0, 0, 0) if masks is None else masks[row]
    adv = torch.empty_like(x)
    for r in sorted(set(run.tolist())):  # the key names the run, so runs are drawn one by one
        here = run == r
        some = None if masks is None else mask[here]
        adv[here] = begin(x[here], job.ids[row[here].numpy()], attack, (job.seed, "start", r), some)
    zeros = torch.zeros(len(row), dtype=torch.int64)
    pixels = (t.to(job.device) for t in (x, adv, mask))
    return Slots(row, run, zeros, zeros.double(), *pixels)


def _on_the_grid(job: Job, attack: PGD, slots: Slots, won: Tensor) -> tuple[Tensor, Tensor]:
    """Who is still fooled by pixels on the grid of 255ths, and those pixels."""
    here = won.to(job.device)
    rounded = to_eight_bits(slots.adv[here], slots.x[here], attack.within)
    inside = attack.within.size(rounded.double() - slots.x[here].double()) <= float(attack.within.eps) + SLACK
    again = job.won(job.logits(rounded, slots.row[won]).argmax(dim=1), slots.row[won]) & inside.cpu()
    kept, still = slots.adv.clone(), won.clone()
    kept[here], still[won] = rounded, again
    return still, kept


def _note(job: Job, slots: Slots, attack: PGD, won: Tensor, spent: Tensor, every_run: bool, waiting: Waiting) -> Tensor:
    """Write down who was fooled and who has come to the end of a run; a survivor of one run waits for the next.

    Returns who was fooled: with eight bits, only those whom pixels on the grid fool too.
    """
    kept = slots.adv
    if job.eight_bit and bool(won.any()):
        won, kept = _on_the_grid(job, attack, slots, won)
    fresh = won & ~job.changed[:, slots.row].any(dim=0)
    job.adversarial[slots.row[fresh]] = kept[fresh.to(job.device)].cpu()
    job.changed[slots.run[won] if every_run else torch.zeros_like(slots.run[won]), slots.row[won]] = True
    lost, more = spent & ~won, slots.run + 1 < attack.runs
    if not every_run:
        waiting.extend((int(i), int(r) + 1) for i, r in zip(slots.row[lost & more], slots.run[lost & more]))
    ended = (won | lost) & ~more if every_run else won | (lost & ~more)
    job.advance(int(ended.sum()), f"{int(job.changed.any(dim=0).sum())} fooled")
    return won
