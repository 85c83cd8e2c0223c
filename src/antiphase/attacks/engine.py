"""The attack loop: examples in, adversarial examples and the verdict on each out.

The classifier maps pixels in [0,1] to logits. It is left exactly as it was; so is the global random state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console, runtime
from antiphase.attacks.config import PGD
from antiphase.config import InputError
from antiphase.data.imageset import ImageSet


@dataclass(frozen=True)
class AttackResult:
    """One entry an example, n in all; a run is one random start, R in all."""

    adversarial: Tensor  # (n, C, H, W) float32: of the first run that succeeded, else the clean pixels
    labels: Tensor  # (n,) the true labels
    clean_prediction: Tensor  # (n,)
    adversarial_prediction: Tensor  # (n,) on `adversarial`
    changed_in_run: Tensor  # (R, n) bool: that run changed the prediction
    forwards: Tensor  # (n,) model evaluations spent
    backwards: Tensor  # (n,)

    @property
    def success(self) -> Tensor:
        """The prediction on the returned pixels differs from the clean one. (n,) bool"""
        return self.adversarial_prediction != self.clean_prediction

    @property
    def correct(self) -> Tensor:
        """Classified correctly before the attack. (n,) bool"""
        return self.clean_prediction == self.labels


def run(
    classifier: nn.Module,
    images: ImageSet,
    attack: PGD,
    *,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    label: str = "attack",
) -> AttackResult:
    """Attack every image. The random start of an example depends on (seed, its id, the run), never on its neighbours."""
    if batch_size < 1:
        raise InputError(f"batch_size={batch_size} must be at least 1")
    parts = []
    with runtime.frozen(classifier), console.progress(label, total=len(images)) as advance:
        for batch in images.batches(batch_size):
            parts.append(
                _attack_batch(classifier, batch.pixels.to(device), batch.labels.to(device), batch.ids, attack, seed)
            )
            advance(len(batch.labels), "")
    return AttackResult(*(torch.cat(field, dim=1 if i == 4 else 0) for i, field in enumerate(zip(*parts))))


def _attack_batch(
    classifier: nn.Module, x: Tensor, y: Tensor, ids: NDArray[np.int64], attack: PGD, seed: int
) -> tuple[Tensor, ...]:
    with torch.no_grad():
        clean = classifier(x).argmax(dim=1)
    adversarial = x.clone()
    changed = torch.zeros(attack.runs, len(x), dtype=torch.bool, device=x.device)
    forwards = torch.full_like(y, 2)  # the clean prediction and the one on the returned pixels
    backwards = torch.zeros_like(y)
    for r in range(attack.runs):
        fresh = ~changed[:r].any(dim=0)
        found, steps = _pgd(classifier, x, y, clean, ids, attack, (seed, "start", r))
        changed[r] = steps >= 0
        spent = torch.where(
            changed[r], steps, attack.steps
        )  # a forward reads success before each gradient, and once at the end
        forwards += spent + 1
        backwards += spent
        adversarial = torch.where((fresh & changed[r])[:, None, None, None], found, adversarial)
    with torch.no_grad():
        final = classifier(adversarial).argmax(dim=1)
    return tuple(t.cpu() for t in (adversarial, y, clean, final, changed, forwards, backwards))


def _pgd(
    classifier: nn.Module,
    x: Tensor,
    y: Tensor,
    clean: Tensor,
    ids: NDArray[np.int64],
    attack: PGD,
    key: tuple[int | str, ...],
) -> tuple[Tensor, Tensor]:
    """One run: the pixels reached and, for each example, the step at which its prediction first changed (-1: never).

    A fooled example leaves the batch at once; its success is read from the forward that the next gradient needs anyway.
    """
    found, at = x.clone(), torch.full_like(y, -1)
    adv = x
    if attack.random_start:
        start = attack.within.spread(runtime.uniform(key, ids, tuple(x.shape[1:])))
        adv = attack.within.project(x + torch.from_numpy(start).to(x), x).clamp(0, 1)
    standing = torch.arange(len(x), device=x.device)
    for step in range(attack.steps + 1):
        adv = adv.detach().requires_grad_(step < attack.steps)
        logits = classifier(adv)
        fooled = logits.argmax(dim=1) != clean[standing]
        found[standing[fooled]], at[standing[fooled]] = adv.detach()[fooled], step
        if step == attack.steps or bool(fooled.all()):
            break
        # summed, never averaged: the gradient of an example must not depend on how many stand beside it
        (grad,) = torch.autograd.grad(F.cross_entropy(logits, y[standing], reduction="sum"), adv)
        standing, adv, grad = standing[~fooled], adv.detach()[~fooled], grad[~fooled]
        origin = x[standing]
        adv = attack.within.project(adv + attack.step * attack.within.ascent(grad), origin).clamp(0, 1)
    return found, at
