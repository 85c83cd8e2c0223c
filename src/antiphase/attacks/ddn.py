"""Decoupled direction and norm (Rony et al. 2019) as a method of the pool. S examples at work."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from antiphase.attacks.job import Job
from antiphase.attacks.losses import cross_entropy
from antiphase.attacks.method import Seen
from antiphase.attacks.minimal import DDN
from antiphase.attacks.nearest import Nearest, Seeker, annealed, ended, nearer, sizes, staying, wide


@dataclass(frozen=True)
class Sphere(Nearest):
    adv: Tensor  # (S, C, H, W)
    eps: Tensor  # (S,) the norm that the next step ends at


class ByDDN(Seeker):
    """Steps up the cross-entropy, each followed by a return to a sphere whose radius closes in on the boundary."""

    def __init__(self, attack: DDN, job: Job) -> None:
        super().__init__(attack, job)
        self.attack = attack

    def begin(self, row: Tensor, run: Tensor, lane: Tensor) -> Sphere:  # noqa: ARG002
        near = self.nearest(row)
        eps = torch.full_like(near["best_size"], self.attack.initial_eps)
        return Sphere(**near, adv=near["x"], eps=eps)

    def pixels(self, state: Sphere) -> Tensor:
        return state.adv

    def values(self, state: Sphere, logits: Tensor) -> Tensor:
        """Reads how far it is to success, but the slope is that of the cross-entropy."""
        loss = self.sign * cross_entropy(logits, state.aim)
        return (loss - loss.detach() - self.to_go(logits, state.aim).detach())[None]

    def see(self, state: Sphere, values: Tensor, fooled: Tensor) -> Seen[Sphere]:
        adversarial, gamma = fooled.to(values.device) & (values[0] >= 0), self.attack.gamma
        state = nearer(state, state.adv, adversarial)
        state = replace(state, eps=state.eps * torch.where(adversarial, 1 - gamma, 1 + gamma))
        return ended(state, state.step == self.attack.steps, -values[0])

    def move(self, state: Sphere, grads: Tensor) -> Sphere:
        grad = staying(grads[0].nan_to_num(), state.adv)
        length = annealed(state.step, self.attack.steps, 1.0, 0.01).to(grad) / sizes(grad).clamp_min(1e-30)
        delta = state.adv - state.x + wide(length) * grad
        delta = delta * wide(state.eps / sizes(delta).clamp_min(1e-30))
        return replace(state, adv=(state.x + delta).clamp(0, 1), step=state.step + 1)
