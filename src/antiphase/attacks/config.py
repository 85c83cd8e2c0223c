"""Attacks as frozen values: hyper-parameters only, never the model. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from antiphase.attacks.within import Within
from antiphase.config import InputError, check_fields

Label = Literal["true", "predicted"]  # the class an untargeted attack drives away from


class Attack:
    """What every attack of ours is: a frozen value that says where, how often and away from what."""

    within: Within
    runs: int
    label: Label

    @property
    def forwards(self) -> int:
        """The most forwards that an example may cost: those of one that is never fooled."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class PGD(Attack):
    """Projected gradient ascent. One step of size eps without a random start is FGSM; within a `Patch` it is a patch attack."""

    within: Within
    steps: int = 20
    step_size: float | None = None  # pixel units; 2.5 * eps / steps when not given (Madry)
    runs: int = 1  # independent random starts
    random_start: bool = True
    loss: Literal["ce", "margin", "dlr", "cosine"] = "ce"
    label: Label = "true"
    target: Literal["least-likely", "random"] | int | None = None  # the class to reach; None: any other

    def __post_init__(self) -> None:
        check_fields(self, steps=1, runs=1, step_size=0)
        if self.runs > 1 and not self.random_start:
            raise InputError(
                f"runs={self.runs} without a random start would repeat the same run: set random_start or runs=1"
            )
        if self.loss == "dlr" and self.target is not None:
            raise InputError(
                "the loss dlr has no gradient towards a target in third place: use ce or margin with a target"
            )
        if isinstance(self.target, int) and self.target < 0:
            raise InputError(f"target={self.target} must be a class, counted from 0")

    @property
    def step(self) -> float:
        return 2.5 * self.within.eps / self.steps if self.step_size is None else self.step_size

    @property
    def forwards(self) -> int:
        return self.runs * (self.steps + 1)


def fgsm(within: Within, **options: Any) -> PGD:
    """The fast gradient sign method: one full step from the image itself."""
    return PGD(within=within, steps=1, step_size=within.eps, random_start=False, **options)
