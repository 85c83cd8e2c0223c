"""What a study asks, as a value. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from antiphase.attacks import PGD, Linf
from antiphase.config import Budget, InputError


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """What is asked of both models."""

    eps: tuple[Budget, ...]  # Linf budgets
    steps: int = 20
    runs: int = 3
    draws: int = 32  # of L-sample
    probes: int = 32  # of the alignment estimator
    measure_images: int | None = 128  # of the evaluated images, for the two measures; None: all
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.eps:
            raise InputError("a comparison needs at least one budget: give --eps")
        for eps in self.eps:
            PGD(within=Linf(eps), steps=self.steps, runs=self.runs)  # refuses what the attack would refuse
