"""One start and one step of projected gradient ascent, written once: for attacks and for adversarial training."""

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
from antiphase.attacks.scheduler import Seen
from antiphase.attacks.threat_model import Key
from antiphase.models.fast_path import lean
from antiphase.runtime import frozen

if TYPE_CHECKING:
    from antiphase.attacks.engine import Job


def begin(x: Tensor, ids: NDArray[np.int64], attack: PGD, key: Key, mask: Tensor | None = None) -> Tensor:
    """A random point of the set around each image, from the image's own stream; the image itself without a random start."""
    if not attack.random_start:
        return x
    start = torch.from_numpy(attack.within.start(key, ids, tuple(x.shape[1:]))).to(x)
    return attack.within.project(x + (start if mask is None else start * mask), x).clamp(0, 1)


def ascend(adv: Tensor, grad: Tensor, x: Tensor, attack: PGD) -> Tensor:
    return attack.within.project(adv + attack.step * attack.within.ascent(grad.nan_to_num()), x).clamp(0, 1)


def perturb(classifier: nn.Module, x: Tensor, y: Tensor, ids: NDArray[np.int64], attack: PGD, key: Key) -> Tensor:
    """All steps for all images, nobody leaves early: the inner attack of adversarial training."""
    adv = begin(x, ids, attack, key)
    with frozen(classifier), lean(classifier):
        for _ in range(attack.steps):
            leaf = adv.detach().requires_grad_()
            (grad,) = torch.autograd.grad(LOSSES[attack.loss](classifier(leaf), y).sum(), leaf)
            adv = ascend(leaf.detach(), grad, x, attack)
    return adv.detach()


# ------------------------------------------------------------------------------------------------- attacks.pgd
# Projected gradient ascent as a method of the pool. S examples at work.


@dataclass(frozen=True)
class Climb:
    step: Tensor  # (S,) gradient steps taken; on the CPU
    x: Tensor  # (S, C, H, W) the originals
    adv: Tensor  # (S, C, H, W)
    aim: Tensor  # (S,) the class whose loss is driven


class ByPGD:
    """Every look is also the forward of the next gradient; a run ends with a look after its last step."""

    lanes, looks, steered = 1, 1, True

    def __init__(self, attack: PGD, job: Job) -> None:
        self.attack, self.job, self.random_start = attack, job, attack.random_start
        self.loss, self.sign = LOSSES[attack.loss], 1.0 if attack.target is None else -1.0
        self.aim = job.aim(attack.label, attack.target)
        self.masks = patch_masks(job.classifier, job.x, job.ids, attack.within, job.seed, job.batch_size, job.device)

    def begin(self, row: Tensor, run: Tensor, lane: Tensor) -> Climb:
        job, x = self.job, self.job.x[row]
        adv = torch.empty_like(x)
        for r in sorted(set(run.tolist())):  # the key names the run, so runs are drawn one by one
            here = run == r
            mask = None if self.masks is None else self.masks[row[here]]
            adv[here] = begin(x[here], job.ids[row[here].numpy()], self.attack, (job.seed, "start", r), mask)
        return Climb(torch.zeros_like(lane), *(t.to(job.device) for t in (x, adv, self.aim[row])))

    def pixels(self, state: Climb) -> Tensor:
        return state.adv

    def values(self, state: Climb, logits: Tensor) -> Tensor:
        return self.sign * self.loss(logits, state.aim)[None]

    def see(self, state: Climb, values: Tensor, fooled: Tensor) -> Seen[Climb]:
        return Seen(state, fooled, state.step == self.attack.steps, state.adv, height=values[0].double().cpu())

    def move(self, state: Climb, grads: Tensor) -> Climb:
        return replace(state, adv=ascend(state.adv, grads[0], state.x, self.attack), step=state.step + 1)
