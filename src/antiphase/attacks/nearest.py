"""What attacks of minimal size share: the nearest adversarial pixels so far, and the loss that says how far it is.

S examples at work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from antiphase.attacks.job import Job
from antiphase.attacks.losses import margin
from antiphase.attacks.method import Seen
from antiphase.attacks.minimal import Minimal


@dataclass(frozen=True)
class Nearest:
    step: Tensor  # (S,) gradient steps taken; on the CPU
    x: Tensor  # (S, C, H, W) the originals
    aim: Tensor  # (S,) the class to leave, or to reach
    best: Tensor  # (S, C, H, W) the nearest adversarial pixels so far
    best_size: Tensor  # (S,) their distance; inf while there are none


ROUNDINGS = 100  # of float32 or float64: what two ways through a deep model may differ by
N = TypeVar("N", bound=Nearest)


class Seeker:
    """The part of such a method that does not depend on which one it is."""

    lanes, looks, steered, random_start = 1, 1, True, False
    masks: Tensor | None = None

    def __init__(self, attack: Minimal, job: Job) -> None:
        self.job, self.sign = job, 1.0 if attack.target is None else -1.0
        self.aim = job.aim(attack.label, attack.target)

    def nearest(self, row: Tensor) -> dict[str, Tensor]:
        """The fields of a `Nearest` that has found nothing yet."""
        x = self.job.x[row].to(self.job.device)
        none = x.new_full((len(x),), math.inf)
        return {"step": torch.zeros_like(row), "x": x, "aim": self.aim[row].to(x.device), "best": x, "best_size": none}

    def to_go(self, logits: Tensor, aim: Tensor) -> Tensor:
        """How far the logits are from success: positive before it, negative beyond. (S,)

        Success by less than what another batch rounds differently counts as none: the last judgement might not share it.
        """
        rounding = ROUNDINGS * torch.finfo(logits.dtype).eps * logits.detach().abs().amax(dim=1)
        return self.sign * margin(logits, aim) + rounding


def nearer(state: N, pixels: Tensor, adversarial: Tensor) -> N:
    """The state that knows these pixels too; `adversarial` is (S,) bool on the pixels' device."""
    size = sizes(pixels - state.x)
    better = adversarial & (size < state.best_size)
    best = torch.where(wide(better), pixels, state.best)
    return replace(state, best=best, best_size=size.where(better, state.best_size))


def ended(state: N, over: Tensor, to_go: Tensor) -> Seen[N]:
    """Who is `over`, (S,) bool on the CPU, leaves with the best pixels if there are any."""
    found = state.best_size.isfinite().cpu()
    return Seen(state, over & found, over, state.best, height=-to_go.double().cpu())


def staying(direction: Tensor, pixels: Tensor) -> Tensor:
    """The direction without what would take a black or white pixel out of [0,1]: clipped away, it would shorten the step."""
    return direction.masked_fill(((pixels <= 0) & (direction < 0)) | ((pixels >= 1) & (direction > 0)), 0)


def annealed(step: Tensor, steps: int, first: float, last: float) -> Tensor:
    """From first to last along half a cosine. (S,)"""
    return last + (first - last) * (1 + torch.cos(torch.pi * step / steps)) / 2


def sizes(delta: Tensor) -> Tensor:
    """(S,)"""
    norm: Tensor = delta.flatten(1).norm(dim=1)
    return norm


def wide(each: Tensor) -> Tensor:
    """(S,) -> (S, 1, 1, 1)"""
    return each[:, None, None, None]
