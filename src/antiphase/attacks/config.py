"""Attacks as frozen values: hyper-parameters only, never the model. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from antiphase.attacks.within import Within
from antiphase.config import InputError, check_fields


@dataclass(frozen=True, kw_only=True)
class PGD:
    """Projected gradient ascent on the cross-entropy of the attacked label.

    One step without a random start and of size eps is FGSM.
    """

    within: Within
    steps: int = 20
    step_size: float | None = None  # pixel units; 2.5 * eps / steps when not given (Madry)
    runs: int = 1  # independent random starts
    random_start: bool = True

    def __post_init__(self) -> None:
        check_fields(self, steps=1, runs=1, step_size=0)
        if self.runs > 1 and not self.random_start:
            raise InputError(
                f"runs={self.runs} without a random start would repeat the same run: set random_start or runs=1"
            )

    @property
    def step(self) -> float:
        return 2.5 * self.within.eps / self.steps if self.step_size is None else self.step_size


def fgsm(within: Within) -> PGD:
    """The fast gradient sign method: one full step from the image itself."""
    return PGD(within=within, steps=1, step_size=within.eps, random_start=False)
