"""Attacks that seek the smallest perturbation in L2, as frozen values. They have no budget. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from antiphase.attacks.config import Attack, Label
from antiphase.attacks.within import Anywhere
from antiphase.config import InputError, check_fields


@dataclass(frozen=True, kw_only=True)
class Minimal(Attack):
    """What they share: one run, no random start, and by default the class to leave is the predicted one, so that an image
    that is wrong already has a distance as well. Driven from the true label it would be left alone or pushed deeper."""

    within = Anywhere()
    runs = 1
    label: Label = "predicted"
    target: Literal["least-likely", "random"] | int | None = None  # the class to reach; None: any other

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.target, int) and self.target < 0:
            raise InputError(f"target={self.target} must be a class, counted from 0")


@dataclass(frozen=True, kw_only=True)
class CW(Minimal):
    """Carlini and Wagner 2017: Adam on |d|^2 + c * max(margin + confidence, 0) in tanh space, and a search for the c.

    c grows tenfold until a search ends beyond the boundary, then the interval is halved.
    """

    searches: int = 9
    steps: int = 200  # of Adam, at most, a search
    lr: float = 1e-2  # in tanh space
    initial_c: float = 1e-3
    confidence: float = 0.0  # the margin, in logits, by which the new class must lead the old one

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, searches=1, steps=1, confidence=0)
        for name in ("lr", "initial_c"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name}={getattr(self, name):g} must be more than 0")

    @property
    def forwards(self) -> int:
        return self.searches * (self.steps + 1)


@dataclass(frozen=True, kw_only=True)
class DDN(Minimal):
    """Rony et al. 2019, decoupled direction and norm: the norm shrinks where the image is adversarial, else it grows."""

    steps: int = 100
    gamma: float = 0.05  # relative change of the norm in a step
    initial_eps: float = 1.0  # the norm to begin with

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, steps=1)
        _check_rate(self.gamma)
        if self.initial_eps <= 0:
            raise InputError(f"initial_eps={self.initial_eps:g} must be more than 0")

    @property
    def forwards(self) -> int:
        return self.steps + 1


@dataclass(frozen=True, kw_only=True)
class FMN(Minimal):
    """Pintor et al. 2021, fast minimum norm: like DDN, but the first norm is an estimate of the distance to the boundary."""

    steps: int = 100
    gamma: float = 0.05  # relative change of the norm in the first step; it falls to a fiftieth

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, steps=1)
        _check_rate(self.gamma)

    @property
    def forwards(self) -> int:
        return self.steps + 1


@dataclass(frozen=True, kw_only=True)
class MinimalL2(Minimal):
    """For every example the smallest that FMN, DDN and CW find. All three are run, the cheapest first."""

    fmn: FMN = field(default_factory=FMN)
    ddn: DDN = field(default_factory=DDN)
    cw: CW = field(default_factory=CW)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fmn", "ddn", "cw"):
            part: Minimal = getattr(self, name)
            if part.label != "predicted" or part.target is not None:
                raise InputError(f"label and target are given to MinimalL2 itself, not to its part {name}")

    @property
    def parts(self) -> dict[str, Minimal]:
        aims = {"label": self.label, "target": self.target}
        return {name: replace(getattr(self, name), **aims) for name in ("fmn", "ddn", "cw")}

    @property
    def forwards(self) -> int:
        return sum(part.forwards for part in self.parts.values())


def _check_rate(gamma: float) -> None:
    if not 0 < gamma < 1:
        raise InputError(f"gamma={gamma:g} must be between 0 and 1: it is the relative change of the norm in a step")
