"""What `compare`, `certify`, `look` and `attack --on` ask of runs, each as one frozen config. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from antiphase.attacks import APGD, CW, DDN, FMN, PGD, AutoAttack, Linf, MinimalL2, Square
from antiphase.attacks.config import STORED_AS_RUNS, Attack
from antiphase.attacks.question import Protocol
from antiphase.config import Budget, InputError, check_fields, check_most
from antiphase.measures.questions import MOST_DRAWS, CertificateQuestion
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
class TransferQuestion(Question):
    """Images made for a run by an attack and shown to another run: does its prediction change?"""

    kind: ClassVar[str] = "transfer"
    folder: ClassVar[str] = "transfers"
    takes_base: ClassVar[bool] = True  # the other run: its weights are in the key
    attack: Attack
    protocol: Protocol = "fast"
    after: tuple[Any, ...] = ()  # under `fast`: the attacks of smaller budgets, whose images are shown too
    eight_bit: bool = False
    target_words: tuple[Any, ...] = ()  # how the other run words the classes, if it is a CLIP
    seed: int = 0

    @property
    def title(self) -> str:
        return f"transfer of {self.attack.name} {self.attack.within}"

    @property
    def work(self) -> Work:
        return Work(per_image=2)


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
        if self.accuracy_floor is not None and not 0 <= self.accuracy_floor <= 1:
            raise InputError(f"accuracy_floor={self.accuracy_floor} must lie between 0 and 1: it is a share of images")
        self.attacks()  # refuses what an attack would refuse

    def attacks(self) -> list[PGD]:
        return [PGD(within=Linf(eps), steps=self.steps, restarts=self.restarts) for eps in budgets(self.eps)]


@dataclass(frozen=True, kw_only=True)
class CertifyConfig:
    """What is certified of a model, and how its certificates are put to the test."""

    sigma: tuple[float, ...] = (0.12, 0.25, 0.5)  # of the noise, of pixels in [0,1], separated by commas
    selection: int = 100  # draws per image that select its class
    samples: int = 1_000  # draws per image that bound the probability of this class
    alpha: float = 0.001  # the chance, per image, that a certificate is wrong
    attack_images: int = 8  # of the images: the smoothed model is attacked there; 0: none
    attack_draws: int = 32  # of noise, in each step of that attack
    attack_steps: int = 50  # of that attack
    seed: int = 0  # of the subset and of the noise

    def __post_init__(self) -> None:
        check_fields(self, seed=0, attack_images=0, attack_draws=1)
        check_most(self, attack_draws=MOST_DRAWS)
        if not self.questions():  # which refuse what is no noise
            raise InputError("there is no noise to smooth with: give --sigma, as in --sigma 0.12,0.25")
        self.attack()

    def questions(self) -> list[CertificateQuestion]:
        """One for each noise, the smallest first."""
        shared = {name: getattr(self, name) for name in ("selection", "samples", "alpha", "seed")}
        return [CertificateQuestion(sigma=sigma, **shared) for sigma in sorted(set(self.sigma))]

    def attack(self) -> DDN:
        return DDN(steps=self.attack_steps)


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """What an audit asks of a model."""

    eps: tuple[Budget, ...] = tuple(map(Budget, ("0.5/255", "1/255", "2/255", "4/255", "8/255")))  # Linf budgets of PGD
    steps: int = 20  # of PGD
    restarts: int = 1  # of PGD: independent random starts
    judge_eps: tuple[Budget, ...] = ()  # budgets of AutoAttack; none: the one where PGD fools closest to half
    judge_images: int = 64  # of the images, for AutoAttack
    judge_steps: int = 100  # of each attack in AutoAttack; fewer make it cheaper and no longer the authors'
    judge_queries: int = 5000  # of Square in AutoAttack
    l2_images: int = 32  # of the images, for the smallest L2 that fools
    l2_steps: int = 100  # of each of the attacks that seek it
    measure_images: int = 32  # of the images, for what looks inside attention
    draws: int = 16  # random perturbations per image for the Lipschitz estimate
    probes: int = 8  # random directions per image for the alignment
    look_images: int = 4  # of the images, for the report's lens
    seed: int = 0  # of subset, starts, draws and probes

    def __post_init__(self) -> None:
        counts = (
            "judge_images",
            "judge_steps",
            "judge_queries",
            "l2_images",
            "l2_steps",
            "measure_images",
            "look_images",
        )
        check_fields(self, draws=1, probes=2, seed=0, **dict.fromkeys(counts, 1))
        if not self.attacks():  # which refuses what an attack would refuse
            raise InputError("--eps 0 is the clean image: give budgets above 0")
        for eps in self.judge_eps:
            self.judges(eps, classes=4)

    @classmethod
    def quick(cls) -> AuditConfig:
        """A cheaper audit: fewer budgets, images, steps and draws."""
        eps = tuple(map(Budget, ("1/255", "2/255", "4/255")))
        sizes: dict[str, Any] = {
            "judge_images": 16,
            "judge_steps": 20,
            "judge_queries": 200,
            "l2_images": 8,
            "l2_steps": 20,
        }
        return cls(eps=eps, steps=10, measure_images=8, draws=4, probes=4, look_images=2, **sizes)

    def attacks(self) -> list[PGD]:
        return [PGD(within=Linf(eps), steps=self.steps, restarts=self.restarts) for eps in budgets(self.eps) if eps > 0]

    def judges(self, eps: Budget, classes: int) -> list[Attack]:
        """AutoAttack; of a model with fewer classes than its loss needs, what there is of it."""
        within = Linf(eps)
        if classes >= 4:
            targets = min(9, classes - 1)
            return [
                AutoAttack(within=within, steps=self.judge_steps, queries=self.judge_queries, targets=targets),
            ]
        return [
            APGD(within=within, steps=self.judge_steps, restarts=5),
            Square(within=within, queries=self.judge_queries),
        ]

    def smallest(self) -> MinimalL2:
        steps = self.l2_steps
        return MinimalL2(fmn=FMN(steps=steps), ddn=DDN(steps=steps), cw=CW(searches=3, steps=max(1, steps // 2)))


def budgets(eps: tuple[Budget, ...]) -> list[Budget]:
    """Each budget once, smallest first."""
    if not eps:
        raise InputError("there is no budget to attack with: give --eps, as in --eps 4/255,8/255")
    return sorted(set(eps))
