"""What an attack returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class Looked(NamedTuple):
    """What the model says of clean images, and what that says of the model."""

    logits: Tensor  # (n, K)
    prediction: Tensor  # (n,)
    flags: tuple[str, ...]

    def of(self, rows: Tensor) -> Looked:
        return Looked(self.logits[rows], self.prediction[rows], self.flags)


@dataclass(frozen=True)
class AttackResult:
    """One entry an example, n in all."""

    adversarial: Tensor  # (n, C, H, W): of the first run that succeeded, else the clean pixels
    labels: Tensor  # (n,) the true labels
    clean_prediction: Tensor  # (n,)
    adversarial_prediction: Tensor  # (n,) on `adversarial`
    success: Tensor  # (n,) bool, judged on `adversarial`
    changed_in_run: Tensor  # (R, n) bool: that run succeeded; under the fast protocol one row, their union
    distance: Tensor  # (n,) float64: size of the perturbation in the norm of the attack; 0 where it failed
    forwards: Tensor  # (n,) model evaluations spent
    backwards: Tensor  # (n,)
    flags: tuple[str, ...] = ()  # reasons to distrust this result
    compiled: bool = False  # full batches ran through torch.compile; success is judged without it in any case
    broken_by: Tensor | None = None  # (n,) of an attack in stages, or the best of several: which one, -1 where none did
    stages: tuple[str, ...] = ()  # their names
    alone: tuple[AttackResult, ...] = ()  # of the best of several: what each of them found
    looked: Looked | None = None  # spares a later attack on the same images its own look

    @property
    def correct(self) -> Tensor:
        """Classified correctly before the attack. (n,) bool"""
        return self.clean_prediction == self.labels
