"""What a study asks, as a value. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from antiphase.attacks import PGD, Linf
from antiphase.config import Budget, InputError


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """What is asked of both models."""

    eps: tuple[Budget, ...] = (
        Budget("1/255"),
        Budget("2/255"),
        Budget("4/255"),
    )  # Linf budgets, separated by commas: 4/255,8/255
    steps: int = 20  # of PGD
    runs: int = 3  # independent random starts
    draws: int = 32  # random perturbations per image for the Lipschitz estimate
    probes: int = 32  # random directions per image for the alignment
    measure_images: int | None = 128  # of the images, for these two measures; None: all
    seed: int = 0  # of subset, starts, draws and probes

    def __post_init__(self) -> None:
        if not self.eps:
            raise InputError("a comparison needs at least one budget: give --eps")
        for eps in self.eps:
            PGD(within=Linf(eps), steps=self.steps, runs=self.runs)  # refuses what the attack would refuse
        for name, least in (("draws", 1), ("probes", 2), ("measure_images", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name}={value} must be at least {least}")
