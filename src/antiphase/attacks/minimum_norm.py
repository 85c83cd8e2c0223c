"""Minimum-norm attacks within L2: DDN, FMN, what they share with Carlini and Wagner's, and the smallest of all of them.

They have no budget: each example keeps the nearest adversarial pixels so far, and ends by a rule of its own.
S examples at work (attacks/scheduler.py), n examples in all.
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
from antiphase.attacks.config import DDN, FMN, MinimalL2, MinimumNorm
from antiphase.attacks.losses import cross_entropy, margin
from antiphase.attacks.scheduler import StepResult

if TYPE_CHECKING:
    from antiphase.attacks.engine import AttackResult, CleanPredictions, Examples


ROUNDINGS = 100  # units of rounding of float32 or float64: what two ways through a deep model may differ by
StateT = TypeVar("StateT", bound="MinimumNormState")


# ------------------------------------------------------------------------------------------------- the smallest of all


def smallest_of_all(
    attack: MinimalL2,
    run: Callable[..., AttackResult],
    *,
    label: str | None,
    journal: Path | None,
    clean_predictions: CleanPredictions | None,
) -> AttackResult:
    """For every example the smallest perturbation that any part of the attack finds; the cheapest part first, costs add up.

    `run` takes a part, a label, a journal and the clean predictions, which are computed once. Every part keeps a journal of
    its own, beside the given name.
    """
    results: list[AttackResult] = []
    for name, part in attack.parts.items():
        own = None if journal is None else journal.with_name(f"{journal.name}-{name}")
        clean = results[0].clean if results else clean_predictions
        results.append(run(part, label=f"{label or 'attack'}, {part.name}", journal=own, clean_predictions=clean))
        _report(label, part.name, reduce(smaller_of, results))
    numbered = [replace(r, broken_by=r.success.long() * (i + 1) - 1) for i, r in enumerate(results)]
    names = tuple(part.name for part in attack.parts.values())
    return replace(reduce(smaller_of, numbered), stages=names, alone=tuple(results))


def smaller_of(one: AttackResult, other: AttackResult) -> AttackResult:
    """For each example the smaller of two perturbations, the first if they tie; costs and flags add up."""
    better = other.success & (~one.success | (other.distance < one.distance))
    rows = torch.nonzero(better)[:, 0].tolist()
    chosen: dict[str, Any] = {"pixels": one.pixels.taking(other.pixels, dict(zip(rows, rows)))}
    names = ("adversarial_prediction", "success", "distance")
    for name in names if one.broken_by is None else (*names, "broken_by"):
        chosen[name] = getattr(one, name).clone()
        chosen[name][better] = getattr(other, name)[better]
    costs: dict[str, Any] = {name: getattr(one, name) + getattr(other, name) for name in ("forwards", "backwards")}
    flags = tuple(dict.fromkeys((*one.flags, *other.flags)))
    changed, compiled = chosen["success"][None], one.compiled or other.compiled
    return replace(one, **chosen, **costs, changed_in_restart=changed, flags=flags, compiled=compiled)


def _report(label: str | None, name: str, best: AttackResult) -> None:
    """The median over all images that were attacked, those included that are classified wrongly from the start."""
    distances = best.distance[best.success]
    median = f"{float(distances.median()):.4g}" if len(distances) else "undefined"
    of, wrong = f"{label}: " if label else "", int((~best.correct).sum())
    included = f", {wrong} of them classified wrongly from the start" if wrong else ""
    found = f"found for {len(distances)} of {len(best.success)} images{included}"
    console.say(f"{of}median of the smallest L2 after {name}: {median} ({found})")


# ------------------------------------------------------------------------------------------------- what the attacks share


@dataclass(frozen=True)
class MinimumNormState:
    """The nearest adversarial pixels so far; on the model's device except for `step`."""

    step: Tensor  # (S,) gradient steps taken; on the CPU
    x: Tensor  # (S, C, H, W) the originals
    loss_label: Tensor  # (S,) the class to leave, or to reach
    best: Tensor  # (S, C, H, W) the nearest adversarial pixels so far
    best_norm: Tensor  # (S,) their L2 distance; inf while there are none


class MinimumNormAlgorithm:
    """The part of a minimum-norm attack that does not depend on which one it is."""

    lanes, eot_samples, uses_gradients, random_start = 1, 1, True, False
    masks: Tensor | None = None

    def __init__(self, attack: MinimumNorm, examples: Examples) -> None:
        self.examples, self.sign = examples, 1.0 if attack.target is None else -1.0
        self.loss_label = examples.loss_label(attack.label, attack.target)

    def initial(self, row: Tensor) -> dict[str, Tensor]:
        """The fields of a `MinimumNormState` without adversarial pixels yet."""
        x = self.examples.x[row].to(self.examples.device)
        none = x.new_full((len(x),), math.inf)
        loss_label = self.loss_label[row].to(x.device)
        return {"step": torch.zeros_like(row), "x": x, "loss_label": loss_label, "best": x, "best_norm": none}

    def margin_left(self, logits: Tensor, loss_label: Tensor) -> Tensor:
        """How far the logits are from success: positive before it, negative beyond. (S,)

        Success by less than what another batch may round differently does not count: the final judgement might not share it.
        """
        rounding = ROUNDINGS * torch.finfo(logits.dtype).eps * logits.detach().abs().amax(dim=1)
        return self.sign * margin(logits, loss_label) + rounding


def update_best(state: StateT, pixels: Tensor, adversarial: Tensor) -> StateT:
    """Keep these pixels where they are adversarial, (S,) bool on their device, and nearer than the best so far."""
    norm = l2_norm(pixels - state.x)
    better = adversarial & (norm < state.best_norm)
    best = torch.where(broadcast(better), pixels, state.best)
    return replace(state, best=best, best_norm=norm.where(better, state.best_norm))


def finish(state: StateT, over: Tensor, margin_left: Tensor) -> StepResult[StateT]:
    """Those that are `over`, (S,) bool on the CPU, leave with their best pixels, fooled if there are any."""
    fooled = over & state.best_norm.isfinite().cpu()
    return StepResult(state, fooled, over, state.best, objective=-margin_left.double().cpu())


def without_clipped(direction: Tensor, pixels: Tensor) -> Tensor:
    """The direction without what would take a black or white pixel out of [0,1]: clipped away, it would shorten the step."""
    return direction.masked_fill(((pixels <= 0) & (direction < 0)) | ((pixels >= 1) & (direction > 0)), 0)


def cosine_annealed(step: Tensor, steps: int, first: float, last: float) -> Tensor:
    """From first to last along half a cosine. (S,)"""
    return last + (first - last) * (1 + torch.cos(torch.pi * step / steps)) / 2


def l2_norm(delta: Tensor) -> Tensor:
    """The L2 norm of each perturbation. (S,)"""
    norm: Tensor = delta.flatten(1).norm(dim=1)
    return norm


def broadcast(per_example: Tensor) -> Tensor:
    """(S,) -> (S, 1, 1, 1)"""
    return per_example[:, None, None, None]


# ------------------------------------------------------------------------------------------------- DDN


@dataclass(frozen=True)
class DDNState(MinimumNormState):
    """On a sphere around each image."""

    adv: Tensor  # (S, C, H, W)
    eps: Tensor  # (S,) the norm that the next step ends at


class DDNAlgorithm(MinimumNormAlgorithm):
    """Decoupled direction and norm (Rony et al. 2019): steps up the cross-entropy along a sphere.

    Each step ends on a sphere around the image whose radius closes in on the boundary.
    """

    def __init__(self, attack: DDN, examples: Examples) -> None:
        super().__init__(attack, examples)
        self.attack = attack

    def begin(self, row: Tensor, restart: Tensor, lane: Tensor) -> DDNState:  # noqa: ARG002
        initial = self.initial(row)
        eps = torch.full_like(initial["best_norm"], self.attack.initial_eps)
        return DDNState(**initial, adv=initial["x"], eps=eps)

    def pixels(self, state: DDNState) -> Tensor:
        return state.adv

    def values(self, state: DDNState, logits: Tensor) -> Tensor:
        """Reads how far it is to success, but the slope is that of the cross-entropy."""
        loss = self.sign * cross_entropy(logits, state.loss_label)
        return (loss - loss.detach() - self.margin_left(logits, state.loss_label).detach())[None]

    def after_forward(self, state: DDNState, values: Tensor, fooled: Tensor) -> StepResult[DDNState]:
        adversarial, gamma = fooled.to(values.device) & (values[0] >= 0), self.attack.gamma
        state = update_best(state, state.adv, adversarial)
        state = replace(state, eps=state.eps * torch.where(adversarial, 1 - gamma, 1 + gamma))
        return finish(state, state.step == self.attack.steps, -values[0])

    def step(self, state: DDNState, grads: Tensor) -> DDNState:
        grad = without_clipped(grads[0].nan_to_num(), state.adv)
        length = cosine_annealed(state.step, self.attack.steps, 1.0, 0.01).to(grad) / l2_norm(grad).clamp_min(1e-30)
        delta = state.adv - state.x + broadcast(length) * grad
        delta = delta * broadcast(state.eps / l2_norm(delta).clamp_min(1e-30))
        return replace(state, adv=(state.x + delta).clamp(0, 1), step=state.step + 1)


# ------------------------------------------------------------------------------------------------- FMN


@dataclass(frozen=True)
class FMNState(MinimumNormState):
    """In a ball around each image."""

    adv: Tensor  # (S, C, H, W)
    eps: Tensor  # (S,) radius
    margin_left: Tensor  # (S,) margin at the last forward
    fooled: Tensor  # (S,) bool: at the last forward


class FMNAlgorithm(MinimumNormAlgorithm):
    """Fast minimum norm (Pintor et al. 2021): steps down the margin inside a ball.

    Its radius is estimated until the boundary is crossed, then closes in on it.
    """

    def __init__(self, attack: FMN, examples: Examples) -> None:
        super().__init__(attack, examples)
        self.attack = attack

    def begin(self, row: Tensor, restart: Tensor, lane: Tensor) -> FMNState:  # noqa: ARG002
        initial = self.initial(row)
        none = torch.zeros_like(initial["best_norm"])
        return FMNState(**initial, adv=initial["x"], eps=initial["best_norm"], margin_left=none, fooled=none.bool())

    def pixels(self, state: FMNState) -> Tensor:
        return state.adv

    def values(self, state: FMNState, logits: Tensor) -> Tensor:
        return -self.margin_left(logits, state.loss_label)[None]

    def after_forward(self, state: FMNState, values: Tensor, fooled: Tensor) -> StepResult[FMNState]:
        state = replace(state, margin_left=-values[0], fooled=fooled.to(values.device) & (values[0] >= 0))
        state = update_best(state, state.adv, state.fooled)
        return finish(state, state.step == self.attack.steps, state.margin_left)

    def step(self, state: FMNState, grads: Tensor) -> FMNState:
        grad = without_clipped(grads[0].nan_to_num(), state.adv)
        slope = l2_norm(grad).clamp_min(1e-30)
        steps = self.attack.steps
        gamma = cosine_annealed(state.step, steps, self.attack.gamma, self.attack.gamma / 50).to(grad)
        # first order; taken at its word it would end short of success
        estimate = l2_norm(state.adv - state.x) + state.margin_left.abs() / slope
        closer = torch.minimum(state.eps * (1 - gamma), state.best_norm)
        farther = (1 + gamma) * state.eps.where(state.best_norm.isfinite(), estimate)
        eps = closer.where(state.fooled, farther)
        delta = state.adv - state.x + broadcast(cosine_annealed(state.step, steps, 1.0, 0.01).to(grad) / slope) * grad
        delta = delta * broadcast((eps / l2_norm(delta).clamp_min(1e-30)).clamp(max=1))
        return replace(state, adv=(state.x + delta).clamp(0, 1), eps=eps, step=state.step + 1)
