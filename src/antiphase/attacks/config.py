"""Attacks as frozen values: hyper-parameters only, never the model. No torch.

Each is carried out by an algorithm of its own (attacks/registry.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from antiphase.attacks.threat_model import Patch, ThreatModel, Unbounded
from antiphase.config import InputError, check_fields, check_value, named_arguments

Label = Literal["true", "predicted"]  # the class an untargeted attack drives away from
Target = Literal["least-likely", "random"] | int  # the class a targeted attack drives towards
STORED_AS_RUNS = {"stored": "runs"}  # the name of `restarts` in files and keys, from before it was renamed


def target_text(target: Target) -> str:
    """A target in words."""
    if isinstance(target, int):
        return f"class {target}"
    return {"least-likely": "the least likely class", "random": "a random other class"}[target]


class Attack:
    """What every attack says: its threat model, its restarts, the class that it drives away from, and the one to reach."""

    within: ThreatModel
    restarts: int
    label: Label
    target: Target | None = None  # None: any other class will do

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def forwards(self) -> int:
        """The most forwards that an example may cost: those of one that is never fooled."""
        raise NotImplementedError

    @property
    def eot_samples(self) -> int:
        """Evaluations of the same pixels, averaged (EOT): more than one only for a randomised model."""
        return 1

    @property
    def stages(self) -> tuple[Attack, ...]:
        """The attacks that it is made of, each on the examples that the ones before did not fool."""
        return (self,)


@named_arguments
@dataclass(frozen=True, kw_only=True)
class PGD(Attack):
    """Projected gradient ascent. One step of size eps without a random start is FGSM; within a `Patch` it is a patch attack."""

    within: ThreatModel
    steps: int = 20
    step_size: float | None = None  # pixel units; 2.5 * eps / steps when not given (Madry)
    restarts: int = field(default=1, metadata=STORED_AS_RUNS)  # independent random starts
    random_start: bool = True
    loss: Literal["ce", "margin", "dlr", "cosine"] = "ce"
    label: Label = "true"
    target: Literal["least-likely", "random"] | int | None = None  # the class to reach; None: any other

    def __post_init__(self) -> None:
        _check_loss(self, self.loss, ("ce", "margin", "dlr", "cosine"))
        check_fields(self, steps=1, restarts=1, step_size=0)
        if self.restarts > 1 and not self.random_start:
            raise InputError(
                f"restarts={self.restarts} without a random start would repeat the same attack: set random_start or restarts=1"
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
        return self.restarts * (self.steps + 1)


def fgsm(within: ThreatModel, **options: Any) -> PGD:
    """The fast gradient sign method: one full step from the image itself."""
    check_value("within", within, ThreatModel)
    return PGD(within=within, steps=1, step_size=within.eps, random_start=False, **options)


@named_arguments
@dataclass(frozen=True, kw_only=True)
class APGD(Attack):
    """Auto-PGD (Croce & Hein 2020): momentum, and a step of its own for each example, halved when its loss stops rising."""

    within: ThreatModel
    steps: int = 100
    restarts: int = field(default=1, metadata=STORED_AS_RUNS)  # independent random starts
    loss: Literal["ce", "dlr", "dlr-targeted"] = "ce"
    targets: int = 9  # of dlr-targeted: so many of the likeliest other classes, side by side
    rho: float = 0.75  # share of steps between two checkpoints that must raise the loss
    eot: int = 1  # evaluations of every point, gradients averaged: for randomised models
    label: Label = "true"

    def __post_init__(self) -> None:
        _check_loss(self, self.loss, ("ce", "dlr", "dlr-targeted"))
        check_fields(self, steps=1, restarts=1, targets=1, rho=0, eot=1)
        _check_ball(self)

    @property
    def name(self) -> str:
        return {"ce": "APGD-CE", "dlr": "APGD-DLR", "dlr-targeted": "APGD-T"}[self.loss]

    @property
    def lanes(self) -> int:
        return self.targets if self.loss == "dlr-targeted" else 1

    @property
    def forwards(self) -> int:
        return self.restarts * self.lanes * (self.steps + 1) * self.eot

    @property
    def eot_samples(self) -> int:
        return self.eot


@named_arguments
@dataclass(frozen=True, kw_only=True)
class FAB(Attack):
    """Fast adaptive boundary attack (Croce & Hein 2020): to the nearest point of a linearised decision boundary, again and again.

    It seeks a small perturbation and knows no budget; success is a point found within the set.
    """

    within: ThreatModel
    steps: int = 100
    restarts: int = field(
        default=1, metadata=STORED_AS_RUNS
    )  # the first from the image itself, others from random points
    targets: int | None = None  # so many of the likeliest other classes, side by side; None: all boundaries at once
    alpha_max: float = 0.1  # the largest pull back towards the image
    eta: float = 1.05  # overshoot past the boundary
    beta: float = 0.9  # share of the perturbation kept when it fools but is too large
    label: Label = "true"

    def __post_init__(self) -> None:
        check_fields(self, steps=1, restarts=1, targets=1, alpha_max=0, eta=1, beta=0)
        _check_ball(self)

    @property
    def name(self) -> str:
        return "FAB" if self.targets is None else "FAB-T"

    @property
    def forwards(self) -> int:
        return self.restarts * (self.targets or 1) * (2 * self.steps + 1)


@named_arguments
@dataclass(frozen=True, kw_only=True)
class Square(Attack):
    """Square attack (Andriushchenko et al. 2020): random search with squares, without gradients."""

    within: ThreatModel
    queries: int = 5000  # proposals after the first
    restarts: int = field(default=1, metadata=STORED_AS_RUNS)
    p_init: float = 0.8  # share of the pixels that the first squares cover
    rescale: bool = False  # the schedule of shrinking squares, made for 10000 queries, is fitted to `queries`
    label: Label = "true"

    def __post_init__(self) -> None:
        check_fields(self, queries=1, restarts=1, p_init=0)
        _check_ball(self)
        if not 0 < self.p_init <= 1:
            raise InputError(f"p_init={self.p_init} must be a share of the pixels, above 0 and at most 1")

    @property
    def forwards(self) -> int:
        return self.restarts * (self.queries + 1)


Version = Literal["standard", "plus", "rand", "paper"]


@named_arguments
@dataclass(frozen=True, kw_only=True)
class AutoAttack(Attack):
    """AutoAttack (Croce & Hein 2020): a list of attacks, each on the examples that the ones before did not fool.

    `standard`, `plus` and `rand` are the lists of the authors' code; `paper` is the one that the paper's text names. Images
    that are wrong from the start are left out, as there, unless the attacked label is the predicted one.
    """

    within: ThreatModel
    version: Version = "standard"
    steps: int = 100  # of each APGD and FAB; fewer make a cheaper attack that is no longer the authors'
    targets: int = 9  # of the targeted ones
    queries: int = 5000  # of Square
    label: Label = "true"
    restarts = 1  # as a whole; its stages may have more

    def __post_init__(self) -> None:
        check_fields(self, steps=1, targets=1, queries=1)
        _check_ball(self)
        self.stages  # noqa: B018  refuses what a stage would refuse

    @property
    def stages(self) -> tuple[Attack, ...]:
        square = Square(within=self.within, label=self.label, queries=self.queries)
        shared: dict[str, Any] = {"within": self.within, "label": self.label, "steps": self.steps}
        ce = APGD(**shared)
        by_target = (
            APGD(loss="dlr-targeted", targets=self.targets, **shared),
            FAB(targets=self.targets, **shared),
        )
        many = APGD(restarts=5, **shared), APGD(restarts=5, loss="dlr", **shared), FAB(restarts=5, **shared), square
        noisy = APGD(eot=20, **shared), APGD(eot=20, loss="dlr", **shared)
        return {
            "standard": (ce, *by_target, square),
            "plus": (*many, *by_target),
            "rand": noisy,
            "paper": many,
        }[self.version]

    @property
    def forwards(self) -> int:
        return sum(stage.forwards for stage in self.stages)

    @property
    def eot_samples(self) -> int:
        return max(stage.eot_samples for stage in self.stages)


# ------------------------------------------------------------------------------------------------- minimum-norm attacks
# They seek the smallest perturbation in L2 and have no budget.


@named_arguments
@dataclass(frozen=True, kw_only=True)
class MinimumNorm(Attack):
    """What minimum-norm attacks share: one restart, no random start, and by default they leave the predicted class.

    So an image that is wrong already has a distance as well; driven from its true label it would be pushed deeper.
    """

    within = Unbounded()
    restarts = 1
    label: Label = "predicted"
    target: Literal["least-likely", "random"] | int | None = None  # the class to reach; None: any other

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.target, int) and self.target < 0:
            raise InputError(f"target={self.target} must be a class, counted from 0")


@named_arguments
@dataclass(frozen=True, kw_only=True)
class CW(MinimumNorm):
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


@named_arguments
@dataclass(frozen=True, kw_only=True)
class DDN(MinimumNorm):
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


@named_arguments
@dataclass(frozen=True, kw_only=True)
class FMN(MinimumNorm):
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


@named_arguments
@dataclass(frozen=True, kw_only=True)
class MinimalL2(MinimumNorm):
    """For every example the smallest that FMN, DDN and CW find. All three are run, the cheapest first."""

    fmn: FMN = field(default_factory=FMN)
    ddn: DDN = field(default_factory=DDN)
    cw: CW = field(default_factory=CW)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fmn", "ddn", "cw"):
            part: MinimumNorm = getattr(self, name)
            if part.label != "predicted" or part.target is not None:
                raise InputError(f"label and target are given to MinimalL2 itself, not to its part {name}")

    @property
    def parts(self) -> dict[str, MinimumNorm]:
        aims = {"label": self.label, "target": self.target}
        return {name: replace(getattr(self, name), **aims) for name in ("fmn", "ddn", "cw")}

    @property
    def forwards(self) -> int:
        return sum(part.forwards for part in self.parts.values())


def _check_rate(gamma: float) -> None:
    if not 0 < gamma < 1:
        raise InputError(f"gamma={gamma:g} must be between 0 and 1: it is the relative change of the norm in a step")


def _check_loss(attack: Attack, loss: str, known: tuple[str, ...]) -> None:
    if loss not in known:
        raise InputError(f"the loss {loss} is not for {type(attack).__name__}: it takes {', '.join(known)}")


def _check_ball(attack: Attack) -> None:
    if isinstance(attack.within, Patch):
        raise InputError(
            f"{type(attack).__name__} works within Linf or L2 and does not know patches: use PGD within a patch"
        )
