"""Fast minimum norm (Pintor et al. 2021) for L2 as a method of the pool. S examples at work."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from antiphase.attacks.job import Job
from antiphase.attacks.method import Seen
from antiphase.attacks.minimal import FMN
from antiphase.attacks.nearest import Nearest, Seeker, annealed, ended, nearer, sizes, staying, wide


@dataclass(frozen=True)
class Ball(Nearest):
    adv: Tensor  # (S, C, H, W)
    eps: Tensor  # (S,) radius
    to_go: Tensor  # (S,) margin at the last look
    fooled: Tensor  # (S,) bool: at the last look


class ByFMN(Seeker):
    """Steps down the margin inside a ball: its radius is estimated until the boundary is crossed, then closes in on it."""

    def __init__(self, attack: FMN, job: Job) -> None:
        super().__init__(attack, job)
        self.attack = attack

    def begin(self, row: Tensor, run: Tensor, lane: Tensor) -> Ball:  # noqa: ARG002
        near = self.nearest(row)
        none = torch.zeros_like(near["best_size"])
        return Ball(**near, adv=near["x"], eps=near["best_size"], to_go=none, fooled=none.bool())

    def pixels(self, state: Ball) -> Tensor:
        return state.adv

    def values(self, state: Ball, logits: Tensor) -> Tensor:
        return -self.to_go(logits, state.aim)[None]

    def see(self, state: Ball, values: Tensor, fooled: Tensor) -> Seen[Ball]:
        state = replace(state, to_go=-values[0], fooled=fooled.to(values.device) & (values[0] >= 0))
        state = nearer(state, state.adv, state.fooled)
        return ended(state, state.step == self.attack.steps, state.to_go)

    def move(self, state: Ball, grads: Tensor) -> Ball:
        grad = staying(grads[0].nan_to_num(), state.adv)
        slope = sizes(grad).clamp_min(1e-30)
        steps = self.attack.steps
        gamma = annealed(state.step, steps, self.attack.gamma, self.attack.gamma / 50).to(grad)
        estimate = (
            sizes(state.adv - state.x) + state.to_go.abs() / slope
        )  # taken at its word it would end short of success
        closer = torch.minimum(state.eps * (1 - gamma), state.best_size)
        farther = (1 + gamma) * state.eps.where(state.best_size.isfinite(), estimate)
        eps = closer.where(state.fooled, farther)
        delta = state.adv - state.x + wide(annealed(state.step, steps, 1.0, 0.01).to(grad) / slope) * grad
        delta = delta * wide((eps / sizes(delta).clamp_min(1e-30)).clamp(max=1))
        return replace(state, adv=(state.x + delta).clamp(0, 1), eps=eps, step=state.step + 1)
