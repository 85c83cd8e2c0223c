"""What attacks of minimal size share: the nearest adversarial pixels so far, and the loss that says how far it is.

S examples at work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from antiphase import console
from antiphase.attacks.config import DDN, FMN, Minimal, MinimalL2
from antiphase.attacks.losses import cross_entropy, margin
from antiphase.attacks.scheduler import Seen

if TYPE_CHECKING:
    from antiphase.attacks.engine import AttackResult, Job, Looked


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


# ------------------------------------------------------------------------------------------------- attacks.ddn
# Decoupled direction and norm (Rony et al. 2019) as a method of the pool. S examples at work.


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


# ------------------------------------------------------------------------------------------------- attacks.fmn
# Fast minimum norm (Pintor et al. 2021) for L2 as a method of the pool. S examples at work.


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


# ------------------------------------------------------------------------------------------------- attacks.smallest
# The smallest of what several attacks found, example by example: a composition of their results.


def smallest(
    attack: MinimalL2, run: Callable[..., AttackResult], *, label: str, journal: Path | None, looked: Looked | None
) -> AttackResult:
    """Run all parts, the cheapest first; a later one has to beat what is there. Costs and flags add up.

    `run` takes a part, a label, a journal and what is known of the clean images: they are looked at once. Every part keeps
    a journal of its own, beside the given name.
    """
    results: list[AttackResult] = []
    for name, part in attack.parts.items():
        own = None if journal is None else journal.with_name(f"{journal.name}-{name}")
        seen = results[0].looked if results else looked
        results.append(run(part, label=f"{label}, {part.name}", journal=own, looked=seen))
        _say(part.name, reduce(nearer_of, results))
    told_apart = [replace(r, broken_by=r.success.long() * (i + 1) - 1) for i, r in enumerate(results)]
    names = tuple(part.name for part in attack.parts.values())
    return replace(reduce(nearer_of, told_apart), stages=names, alone=tuple(results))


def nearer_of(one: AttackResult, other: AttackResult) -> AttackResult:
    """Of each example what is nearer, the first if they tie; of the same images."""
    better = other.success & (~one.success | (other.distance < one.distance))
    chosen: dict[str, Any] = {}
    names = ("adversarial", "adversarial_prediction", "success", "distance")
    for name in names if one.broken_by is None else (*names, "broken_by"):
        chosen[name] = getattr(one, name).clone()
        chosen[name][better] = getattr(other, name)[better]
    costs: dict[str, Any] = {name: getattr(one, name) + getattr(other, name) for name in ("forwards", "backwards")}
    flags = tuple(dict.fromkeys((*one.flags, *other.flags)))
    changed, compiled = chosen["success"][None], one.compiled or other.compiled
    return replace(one, **chosen, **costs, changed_in_restart=changed, flags=flags, compiled=compiled)


def _say(name: str, best: AttackResult) -> None:
    found = best.distance[best.success]
    median = f"{float(found.median()):.4g}" if len(found) else "undefined"
    console.say(f"median of the smallest L2 after {name}: {median} ({len(found)} of {len(best.success)} found)")
