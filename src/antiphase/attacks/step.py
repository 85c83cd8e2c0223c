"""One start and one step of projected gradient ascent, written once: for attacks and for adversarial training."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase.attacks.config import PGD
from antiphase.attacks.losses import LOSSES
from antiphase.attacks.within import Key
from antiphase.models.lean import lean
from antiphase.runtime import frozen


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
