"""The losses that attacks drive up, each written once: logits (B, K) and labels (B,) to one number per example (B,)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from antiphase.config import InputError

Loss = Callable[[Tensor, Tensor], Tensor]


def best_other(logits: Tensor, y: Tensor) -> Tensor:
    """The largest logit of a class other than y."""
    return logits.scatter(1, y[:, None], -torch.inf).amax(dim=1)


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """z_y - max_{i != y} z_i: positive while y is predicted."""
    return class_logit(logits, y) - best_other(logits, y)


def class_logit(logits: Tensor, y: Tensor) -> Tensor:
    """The logit of class y."""
    return logits.gather(1, y[:, None])[:, 0]


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits, y, reduction="none")


def dlr(logits: Tensor, y: Tensor) -> Tensor:
    """Difference of logits ratio (AutoAttack): the margin over the spread of the top three, blind to the logits' scale."""
    if logits.shape[1] < 3:
        raise InputError(
            f"the DLR loss needs at least 3 classes, this model has {logits.shape[1]}: use the loss ce or margin"
        )
    top = logits.topk(3, dim=1).values
    return -margin(logits, y) / (top[:, 0] - top[:, 2] + 1e-12)


def dlr_targeted(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """From y towards a target, over the spread of the top four: it has a gradient whatever the ranks of y and of the target."""
    if logits.shape[1] < 4:
        raise InputError(
            f"the targeted DLR loss needs at least 4 classes, this model has {logits.shape[1]}: use the loss ce "
            "or dlr, or AutoAttack's version paper"
        )
    top = logits.topk(4, dim=1).values
    spread = top[:, 0] - (top[:, 2] + top[:, 3]) / 2
    return (class_logit(logits, target) - class_logit(logits, y)) / (spread + 1e-12)


def cosine(logits: Tensor, y: Tensor) -> Tensor:
    """The paper's loss for CLIP: away from the text of class y. A zero-shot logit is a scaled cosine, so this is -z_y."""
    return -class_logit(logits, y)


LOSSES: dict[str, Loss] = {
    "ce": cross_entropy,
    "margin": lambda logits, y: -margin(logits, y),
    "dlr": dlr,
    "cosine": cosine,
}
