"""Auto-PGD (Croce & Hein 2020, algorithm 1) as a method of the pool. S examples at work, T targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from antiphase.attacks.config import APGD
from antiphase.attacks.losses import LOSSES, dlr_targeted
from antiphase.attacks.scheduler import Seen, likeliest_others
from antiphase.attacks.threat_model import Key

if TYPE_CHECKING:
    from antiphase.attacks.engine import Job

MOMENTUM = 0.75  # weight of the new step, alpha of the paper


def checkpoints(steps: int) -> list[int]:
    """For every number of steps taken, the steps since the checkpoint before if there is one now, else 0.

    The first comes after 22 % of the steps; each interval is 3 % shorter than the one before, but at least 6 %.
    """
    interval, least, less = (max(int(share * steps), 1) for share in (0.22, 0.06, 0.03))
    since, done = [0] * (steps + 1), interval
    while done <= steps:
        since[done] = interval
        interval = max(interval - less, least)
        done += interval
    return since


@dataclass(frozen=True)
class Rise:
    """All on the device. The best point so far is where a step size that did not pay is taken back to."""

    step: Tensor  # (S,) steps taken
    x: Tensor  # (S, C, H, W) the originals
    adv: Tensor
    before: Tensor  # the point before the last step, for momentum
    aim: Tensor  # (S,)
    target: Tensor  # (S,)
    rate: Tensor  # (S,) step size
    value: Tensor  # (S,) loss at adv
    last: Tensor  # (S,) loss one step before
    best: Tensor  # (S, C, H, W)
    best_grad: Tensor
    best_value: Tensor  # (S,)
    rises: Tensor  # (S,) steps that raised the loss since the last checkpoint
    checked: Tensor  # (S,) best value at the last checkpoint
    halved: Tensor  # (S,) bool: at the last checkpoint


class ByAPGD:
    steered, random_start = True, True
    masks: Tensor | None = None

    def __init__(self, attack: APGD, job: Job) -> None:
        self.attack, self.job, self.looks = attack, job, attack.eot
        self.aim = job.aim(attack.label)
        self.targets = likeliest_others(job, self.aim, attack.lanes)  # (n, T)
        self.lanes = self.targets.shape[1]
        self.since = torch.tensor(checkpoints(attack.steps), device=job.device)
        self._loss(job.seen.logits[:1], self.aim[:1], self.targets[:1, 0])  # refuses a model of too few classes

    def begin(self, row: Tensor, run: Tensor, lane: Tensor) -> Rise:
        job, n = self.job, len(row)
        x = job.x[row].to(job.device)
        adv = self._start(row, run, lane).to(job.device)
        aim, target = self.aim[row].to(job.device), self.targets[row, lane].to(job.device)
        zero, low = x.new_zeros(n), x.new_full((n,), -torch.inf)
        rate = x.new_full((n,), 2 * float(self.attack.within.eps))
        count = torch.zeros(n, dtype=torch.int64, device=job.device)
        # as if halved at a checkpoint before: at the first one, only steps that raised the loss too rarely count
        since = {"rises": count, "checked": low, "halved": count == 0}
        best = {"best": adv, "best_grad": torch.zeros_like(x), "best_value": low}
        return Rise(count, x, adv, adv, aim, target, rate, zero, low, **best, **since)

    def _start(self, row: Tensor, run: Tensor, lane: Tensor) -> Tensor:
        """A random point on the edge of the ball, from each example's own stream."""
        job, within = self.job, self.attack.within
        delta = torch.empty_like(job.x[row])
        for r, t in sorted(set(zip(run.tolist(), lane.tolist()))):
            here = (run == r) & (lane == t)
            key: Key = (job.seed, "apgd", self.attack.loss, r, t)
            start = within.start(key, job.ids[row[here].numpy()], tuple(job.x.shape[1:]))
            delta[here] = torch.from_numpy(start).to(delta)
        size = within.size(delta).clamp_min(1e-30)[:, None, None, None]
        return within.project(job.x[row] + delta / size * float(within.eps), job.x[row]).clamp(0, 1)

    def pixels(self, state: Rise) -> Tensor:
        return state.adv

    def values(self, state: Rise, logits: Tensor) -> Tensor:
        return self._loss(logits, state.aim, state.target)[None]

    def _loss(self, logits: Tensor, aim: Tensor, target: Tensor) -> Tensor:
        loss = self.attack.loss
        return dlr_targeted(logits, aim, target) if loss == "dlr-targeted" else LOSSES[loss](logits, aim)

    def see(self, state: Rise, values: Tensor, fooled: Tensor) -> Seen[Rise]:
        state, spent = replace(state, value=values[0]), (state.step == self.attack.steps).cpu()
        return Seen(state, fooled, spent, state.adv, height=torch.maximum(values[0], state.best_value).double().cpu())

    def move(self, state: Rise, grads: Tensor) -> Rise:
        state, grad = self._checked(state, grads[0].nan_to_num())
        within, x, adv = self.attack.within, state.x, state.adv
        weight = torch.where(state.step == 0, 1.0, MOMENTUM)[:, None, None, None].to(x)
        plain = within.project(adv + state.rate[:, None, None, None] * within.ascent(grad), x).clamp(0, 1)
        mixed = adv + weight * (plain - adv) + (1 - weight) * (adv - state.before)
        return replace(
            state, step=state.step + 1, adv=within.project(mixed, x).clamp(0, 1), before=adv, last=state.value
        )

    def _checked(self, state: Rise, grad: Tensor) -> tuple[Rise, Tensor]:
        """Remember the best point; at a checkpoint, halve the step and go back to it where that seems due."""
        better = state.value > state.best_value
        best, best_grad = _where(better, state.adv, state.best), _where(better, grad, state.best_grad)
        best_value = torch.where(better, state.value, state.best_value)
        rises = state.rises + ((state.step > 0) & (state.value > state.last))
        since = self.since[state.step]
        at_check = since > 0
        stuck = (rises <= self.attack.rho * since) | (~state.halved & (state.checked >= best_value))
        halve = at_check & stuck
        state = replace(
            state,
            adv=_where(halve, best, state.adv),
            rate=torch.where(halve, state.rate / 2, state.rate),
            best=best,
            best_grad=best_grad,
            best_value=best_value,
            rises=torch.where(at_check, 0, rises),
            checked=torch.where(at_check, best_value, state.checked),
            halved=torch.where(at_check, stuck, state.halved),
        )
        return state, _where(halve, best_grad, grad)


def _where(which: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(which[:, None, None, None], yes, no)
