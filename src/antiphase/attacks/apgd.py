"""Auto-PGD (Croce & Hein 2020, algorithm 1). S examples at work (attacks/scheduler.py), T targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from antiphase.attacks.config import APGD
from antiphase.attacks.losses import LOSSES, dlr_targeted
from antiphase.attacks.scheduler import StepResult
from antiphase.attacks.threat_model import Key

if TYPE_CHECKING:
    from antiphase.attacks.engine import Examples

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
class APGDState:
    """Where each example is, on the model's device. When a step is halved, the example returns to its best point so far."""

    step: Tensor  # (S,) steps taken
    x: Tensor  # (S, C, H, W) the originals
    adv: Tensor
    before: Tensor  # the point before the last step, for momentum
    loss_label: Tensor  # (S,) the class to leave
    target: Tensor  # (S,) of the loss dlr-targeted
    rate: Tensor  # (S,) step size
    value: Tensor  # (S,) loss at adv
    last: Tensor  # (S,) loss one step before
    best: Tensor  # (S, C, H, W)
    best_grad: Tensor
    best_value: Tensor  # (S,)
    raised: Tensor  # (S,) steps that raised the loss since the last checkpoint
    best_at_check: Tensor  # (S,) best value at the last checkpoint
    halved: Tensor  # (S,) bool: at the last checkpoint


class APGDAlgorithm:
    """Momentum, and a step size of its own for each example, halved at checkpoints where the loss has stopped rising."""

    uses_gradients, random_start = True, True
    masks: Tensor | None = None

    def __init__(self, attack: APGD, examples: Examples) -> None:
        self.attack, self.examples, self.eot_samples = attack, examples, attack.eot
        self.loss_label = examples.loss_label(attack.label)
        self.targets = examples.clean.likeliest_others(self.loss_label, attack.lanes)  # (n, T)
        self.lanes = self.targets.shape[1]
        self.since = torch.tensor(checkpoints(attack.steps), device=examples.device)
        self._loss(
            examples.clean.logits[:1], self.loss_label[:1], self.targets[:1, 0]
        )  # refuses a model of too few classes

    def begin(self, row: Tensor, restart: Tensor, lane: Tensor) -> APGDState:
        examples, n = self.examples, len(row)
        x = examples.x[row].to(examples.device)
        adv = self._start(row, restart, lane).to(examples.device)
        loss_label, target = self.loss_label[row].to(examples.device), self.targets[row, lane].to(examples.device)
        zero, low = x.new_zeros(n), x.new_full((n,), -torch.inf)
        rate = x.new_full((n,), 2 * float(self.attack.within.eps))
        count = torch.zeros(n, dtype=torch.int64, device=examples.device)
        # as if halved at a checkpoint before: at the first one, only steps that raised the loss too rarely count
        since = {"raised": count, "best_at_check": low, "halved": count == 0}
        best = {"best": adv, "best_grad": torch.zeros_like(x), "best_value": low}
        return APGDState(count, x, adv, adv, loss_label, target, rate, zero, low, **best, **since)

    def _start(self, row: Tensor, restart: Tensor, lane: Tensor) -> Tensor:
        """A random point on the edge of the ball, from each example's own stream."""
        examples, within = self.examples, self.attack.within
        delta = torch.empty_like(examples.x[row])
        for r, t in sorted(set(zip(restart.tolist(), lane.tolist()))):
            here = (restart == r) & (lane == t)
            key: Key = (examples.seed, "apgd", self.attack.loss, r, t)
            start = within.start(key, examples.ids[row[here].numpy()], tuple(examples.x.shape[1:]))
            delta[here] = torch.from_numpy(start).to(delta)
        size = within.size(delta).clamp_min(1e-30)[:, None, None, None]
        return within.project(examples.x[row] + delta / size * float(within.eps), examples.x[row]).clamp(0, 1)

    def pixels(self, state: APGDState) -> Tensor:
        return state.adv

    def values(self, state: APGDState, logits: Tensor) -> Tensor:
        return self._loss(logits, state.loss_label, state.target)[None]

    def _loss(self, logits: Tensor, loss_label: Tensor, target: Tensor) -> Tensor:
        loss = self.attack.loss
        return dlr_targeted(logits, loss_label, target) if loss == "dlr-targeted" else LOSSES[loss](logits, loss_label)

    def after_forward(self, state: APGDState, values: Tensor, fooled: Tensor) -> StepResult[APGDState]:
        state, finished = replace(state, value=values[0]), (state.step == self.attack.steps).cpu()
        return StepResult(
            state, fooled, finished, state.adv, objective=torch.maximum(values[0], state.best_value).double().cpu()
        )

    def step(self, state: APGDState, grads: Tensor) -> APGDState:
        state, grad = self._after_checkpoint(state, grads[0].nan_to_num())
        within, x, adv = self.attack.within, state.x, state.adv
        weight = torch.where(state.step == 0, 1.0, MOMENTUM)[:, None, None, None].to(x)
        plain = within.project(adv + state.rate[:, None, None, None] * within.ascent(grad), x).clamp(0, 1)
        mixed = adv + weight * (plain - adv) + (1 - weight) * (adv - state.before)
        return replace(
            state, step=state.step + 1, adv=within.project(mixed, x).clamp(0, 1), before=adv, last=state.value
        )

    def _after_checkpoint(self, state: APGDState, grad: Tensor) -> tuple[APGDState, Tensor]:
        """Remember the best point; at a checkpoint, halve the step and go back to it where that seems due."""
        better = state.value > state.best_value
        best, best_grad = _where(better, state.adv, state.best), _where(better, grad, state.best_grad)
        best_value = torch.where(better, state.value, state.best_value)
        raised = state.raised + ((state.step > 0) & (state.value > state.last))
        since = self.since[state.step]
        at_check = since > 0
        stuck = (raised <= self.attack.rho * since) | (~state.halved & (state.best_at_check >= best_value))
        halve = at_check & stuck
        state = replace(
            state,
            adv=_where(halve, best, state.adv),
            rate=torch.where(halve, state.rate / 2, state.rate),
            best=best,
            best_grad=best_grad,
            best_value=best_value,
            raised=torch.where(at_check, 0, raised),
            best_at_check=torch.where(at_check, best_value, state.best_at_check),
            halved=torch.where(at_check, stuck, state.halved),
        )
        return state, _where(halve, best_grad, grad)


def _where(which: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(which[:, None, None, None], yes, no)
