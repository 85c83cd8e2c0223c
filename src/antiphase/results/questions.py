"""What `compare` and `look` ask of runs, each as one frozen config. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from antiphase.attacks import PGD, Linf
from antiphase.attacks.config import STORED_AS_RUNS
from antiphase.config import Budget, InputError, check_fields
from antiphase.store import BACKWARD, Question, Work


@dataclass(frozen=True, kw_only=True)
class LookQuestion(Question):
    """A few images as the model sees them, clean and under PGD of each budget: what the lens of a report shows."""

    kind: ClassVar[str] = "look"
    folder: ClassVar[str] = "looks"
    eps: tuple[Budget, ...] = ()  # Linf budgets, separated by commas
    probes: int = 32  # random directions per image for the alignment
    seed: int = 0  # of the subset, the random starts and the probes

    def __post_init__(self) -> None:
        check_fields(self, seed=0, probes=2)
        if any(budget <= 0 for budget in self.eps):
            raise InputError("--eps 0 is the clean image, which the lens shows anyway: give budgets above 0")

    def fields(self) -> dict[str, Any]:
        return super().fields() | {"eps": [float(budget) for budget in self.eps]}


@dataclass(frozen=True, kw_only=True)
class BranchPictureQuestion(Question):
    """One image, clean and attacked: its maps and the directions in which each branch's gradient points (figure 1)."""

    kind: ClassVar[str] = "branch picture"
    folder: ClassVar[str] = "pictures"
    attack: PGD
    probes: int = 64
    seed: int = 0

    @property
    def title(self) -> str:
        return f"look under PGD {self.attack.within}"

    @property
    def work(self) -> Work:
        return Work(per_image=BACKWARD * self.attack.forwards)


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """What is asked of both models."""

    eps: tuple[Budget, ...] = (Budget("1/255"), Budget("2/255"), Budget("4/255"))  # Linf budgets, separated by commas
    steps: int = 20  # of PGD
    restarts: int = field(default=3, metadata=STORED_AS_RUNS)  # independent random starts
    draws: int = 32  # random perturbations per image for the Lipschitz estimate
    probes: int = 32  # random directions per image for the alignment
    max_probes: int | None = None  # doubled up to so many for images whose sign is undecided; None: never
    measure_images: int | None = 128  # of the images, for these two measures; None: all
    look_images: int = 8  # of the images, for the report's lens
    accuracy_floor: float | None = None  # test accuracy below which no verdict is given; None: no verdict at all
    seed: int = 0  # of subset, starts, draws and probes

    def __post_init__(self) -> None:
        check_fields(self, draws=1, probes=2, measure_images=1, look_images=1, seed=0)
        if self.max_probes is not None and self.max_probes < self.probes:
            raise InputError(f"--max-probes {self.max_probes} is below --probes {self.probes}: raise it")
        self.attacks()  # refuses what an attack would refuse

    def attacks(self) -> list[PGD]:
        return [PGD(within=Linf(eps), steps=self.steps, restarts=self.restarts) for eps in budgets(self.eps)]


def budgets(eps: tuple[Budget, ...]) -> list[Budget]:
    """Each budget once, smallest first."""
    if not eps:
        raise InputError("there is no budget to attack with: give --eps, as in --eps 4/255,8/255")
    return sorted(set(eps))
