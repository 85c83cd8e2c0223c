"""Carlini and Wagner's L2 attack: every example has its own c, its own Adam and its own end.

S examples at work (attacks/scheduler.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from antiphase.attacks.config import CW
from antiphase.attacks.minimum_norm import (
    MinimumNormAlgorithm,
    MinimumNormState,
    broadcast,
    finish,
    l2_norm,
    update_best,
    without_clipped,
)
from antiphase.attacks.scheduler import StepResult

if TYPE_CHECKING:
    from antiphase.attacks.engine import Examples

BETAS, ADAM_EPS = (0.9, 0.999), 1e-8
C_MAX = 1e10
EDGE = 0.99  # of the tanh's range: at its very end it is flat, and a black or white pixel could never leave


@dataclass(frozen=True)
class CWState(MinimumNormState):
    """A search with one c, and what the searches before it say about the next c."""

    search: Tensor  # (S,) searches that have ended; on the CPU
    w: Tensor  # (S, C, H, W) where Adam is, in tanh space
    tanh: Tensor  # (S, C, H, W) of w; at the image itself without rounding
    mean: Tensor  # (S, C, H, W) Adam's moments
    square: Tensor  # (S, C, H, W)
    c: Tensor  # (S,) like the next ones on the model's device
    low: Tensor  # (S,) the largest c that failed
    high: Tensor  # (S,) the smallest c that succeeded; inf while none has
    succeeded: Tensor  # (S,) bool: adversarial in this search
    margin_left: Tensor  # (S,) margin at the last forward
    checked: Tensor  # (S,) loss at the last check of progress


class CWAlgorithm(MinimumNormAlgorithm):
    """A search ends after all its steps, or when a tenth of them brought no progress.

    Its c was large enough if the example was adversarial after the first tenth. Before that it says nothing about
    c: Adam's first step has its full length in every pixel, whatever the slope, and often lands far beyond the boundary.
    """

    def __init__(self, attack: CW, examples: Examples) -> None:
        super().__init__(attack, examples)
        self.attack = attack
        self.window = max(1, -(-attack.steps // 10))

    def begin(self, row: Tensor, restart: Tensor, lane: Tensor) -> CWState:  # noqa: ARG002
        initial = self.initial(row)
        x, unknown = initial["x"], initial["best_norm"]
        zero, none = torch.zeros_like(x), torch.zeros_like(unknown)
        return CWState(
            **initial,
            search=torch.zeros_like(row),
            w=squeezed(x).atanh(),
            tanh=squeezed(x),
            mean=zero,
            square=zero,
            c=torch.full_like(unknown, self.attack.initial_c),
            low=none,
            high=unknown,
            succeeded=none.bool(),
            margin_left=none,
            checked=unknown,
        )

    def pixels(self, state: CWState) -> Tensor:
        return (state.x + (state.tanh - squeezed(state.x)) / 2).clamp(0, 1)

    def values(self, state: CWState, logits: Tensor) -> Tensor:
        return (self.margin_left(logits, state.loss_label) + self.attack.confidence)[None]

    def after_forward(self, state: CWState, values: Tensor, fooled: Tensor) -> StepResult[CWState]:
        pixels, margin_left = self.pixels(state), values[0]
        adversarial = fooled.to(margin_left.device) & (margin_left <= 0)
        settled = (state.step > self.window).to(margin_left.device)
        state = replace(state, margin_left=margin_left, succeeded=state.succeeded | adversarial & settled)
        state = update_best(state, pixels, adversarial)
        loss = l2_norm(pixels - state.x) ** 2 + state.c * margin_left.clamp_min(0)
        check = state.step.to(loss.device) % self.window == 0
        over = (check & ~(loss <= 0.9999 * state.checked)).cpu() | (state.step == self.attack.steps)
        state = replace(state, checked=loss.where(check, state.checked))
        again = self._next_search(state, over.to(loss.device)) if bool(over.any()) else state
        done = over & ((again.search >= self.attack.searches) | (again.c > C_MAX).cpu())
        return replace(finish(again, done, margin_left), takes_step=~over)

    def _next_search(self, state: CWState, over: Tensor) -> CWState:
        """Those `over` begin again at their image, with the next c."""
        high = state.c.where(over & state.succeeded, state.high)
        low = state.c.where(over & ~state.succeeded, state.low)
        c = torch.where(high.isfinite(), (low + high) / 2, 10 * state.c)
        here, on_cpu, home = broadcast(over), over.cpu(), squeezed(state.x)
        return replace(
            state,
            step=state.step.where(~on_cpu, 0),
            search=state.search + on_cpu,
            w=home.atanh().where(here, state.w),
            tanh=home.where(here, state.tanh),
            mean=state.mean.masked_fill(here, 0),
            square=state.square.masked_fill(here, 0),
            c=c.where(over, state.c),
            low=low,
            high=high,
            succeeded=state.succeeded & ~over,
            checked=state.checked.masked_fill(over, torch.inf),
        )

    def step(self, state: CWState, grads: Tensor) -> CWState:
        """A step of Adam down |d|^2 + c * max(margin + confidence, 0)."""
        pixels = self.pixels(state)
        slope = 2 * (pixels - state.x) + broadcast(state.c * (state.margin_left > 0)) * grads[0].nan_to_num()
        slope = -without_clipped(-slope, pixels) * (1 - state.tanh**2) / 2
        step = state.step + 1
        first, second = BETAS
        mean, square = first * state.mean + (1 - first) * slope, second * state.square + (1 - second) * slope**2
        short, long = (broadcast((1 - beta**step).to(slope)) for beta in BETAS)  # both moments begin at zero
        w = state.w - self.attack.lr * (mean / short) / ((square / long).sqrt() + ADAM_EPS)
        return replace(state, step=step, w=w, tanh=w.tanh(), mean=mean, square=square)


def squeezed(x: Tensor) -> Tensor:
    """[0,1] to where the tanh is steep enough to move along."""
    return (2 * x - 1).clamp(-EDGE, EDGE)
