"""Projected gradient ascent (PGD): one start and one step, written once, for attacks and for adversarial training.

S examples at work (attacks/scheduler.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase.attacks.config import PGD
from antiphase.attacks.losses import LOSSES
from antiphase.attacks.patch_placement import patch_masks
from antiphase.attacks.scheduler import StepResult
from antiphase.attacks.threat_model import Key
from antiphase.models.fast_path import fast_path
from antiphase.runtime import frozen

if TYPE_CHECKING:
    from antiphase.attacks.engine import Examples


@dataclass(frozen=True)
class PGDState:
    """Where each example is, on the model's device except for `step`."""

    step: Tensor  # (S,) gradient steps taken; on the CPU
    x: Tensor  # (S, C, H, W) the originals
    adv: Tensor  # (S, C, H, W)
    loss_label: Tensor  # (S,) the class whose loss is driven


class PGDAlgorithm:
    """Every forward is also that of the next gradient; a restart ends with a forward after its last step."""

    lanes, eot_samples, uses_gradients = 1, 1, True

    def __init__(self, attack: PGD, examples: Examples) -> None:
        self.attack, self.examples, self.random_start = attack, examples, attack.random_start
        self.loss, self.sign = LOSSES[attack.loss], 1.0 if attack.target is None else -1.0
        self.loss_label = examples.loss_label(attack.label, attack.target)
        where = (examples.seed, examples.batch_size, examples.device)
        self.masks = patch_masks(examples.classifier, examples.x, examples.ids, attack.within, *where)

    def begin(self, row: Tensor, restart: Tensor, lane: Tensor) -> PGDState:
        examples, x = self.examples, self.examples.x[row]
        adv = torch.empty_like(x)
        for r in sorted(set(restart.tolist())):  # the key names the restart, so restarts are drawn one by one
            here = restart == r
            mask = None if self.masks is None else self.masks[row[here]]
            ids, key = examples.ids[row[here].numpy()], (examples.seed, "start", r)
            adv[here] = random_start(x[here], ids, self.attack, key, mask)
        return PGDState(torch.zeros_like(lane), *(t.to(examples.device) for t in (x, adv, self.loss_label[row])))

    def pixels(self, state: PGDState) -> Tensor:
        return state.adv

    def values(self, state: PGDState, logits: Tensor) -> Tensor:
        return self.sign * self.loss(logits, state.loss_label)[None]

    def after_forward(self, state: PGDState, values: Tensor, fooled: Tensor) -> StepResult[PGDState]:
        return StepResult(state, fooled, state.step == self.attack.steps, state.adv, objective=values[0].double().cpu())

    def step(self, state: PGDState, grads: Tensor) -> PGDState:
        return replace(state, adv=ascend(state.adv, grads[0], state.x, self.attack), step=state.step + 1)


def random_start(x: Tensor, ids: NDArray[np.int64], attack: PGD, key: Key, mask: Tensor | None = None) -> Tensor:
    """A random point of the set around each image, from the image's own stream; the image itself without a random start."""
    if not attack.random_start:
        return x
    start = torch.from_numpy(attack.within.start(key, ids, tuple(x.shape[1:]))).to(x)
    return attack.within.project(x + (start if mask is None else start * mask), x).clamp(0, 1)


def ascend(adv: Tensor, grad: Tensor, x: Tensor, attack: PGD) -> Tensor:
    """One step along the gradient, projected to the threat model and to [0,1]."""
    return attack.within.project(adv + attack.step * attack.within.ascent(grad.nan_to_num()), x).clamp(0, 1)


def perturb(classifier: nn.Module, x: Tensor, y: Tensor, ids: NDArray[np.int64], attack: PGD, key: Key) -> Tensor:
    """All steps for all images, fooled or not: the inner attack of adversarial training. (B, C, H, W)"""
    adv = random_start(x, ids, attack, key)
    with frozen(classifier), fast_path(classifier):
        for _ in range(attack.steps):
            leaf = adv.detach().requires_grad_()
            (grad,) = torch.autograd.grad(LOSSES[attack.loss](classifier(leaf), y).sum(), leaf)
            adv = ascend(leaf.detach(), grad, x, attack)
    return adv.detach()
