"""An attack asked of a run, as one frozen config, and its answer: what became of every image. No torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from antiphase.attacks.config import PGD, Attack, target_text
from antiphase.attacks.threat_model import Linf
from antiphase.config import Budget
from antiphase.store import BACKWARD, Content, Entry, Question, Work

Protocol = Literal["fast", "paper"]  # stop at the first success; take every restart to its own end
SweepProtocol = Literal[
    "fast", "paper", "bisect"
]  # of several budgets; bisect searches for the smallest that fools an image
Array = np.ndarray[Any, np.dtype[np.float64]]
SPENT = {"AutoAttack": 0.16}  # of the worst case: measured at 1/255 on a depth-1 DiffViT
CHECK = (20.0 * BACKWARD, 32)  # the check at a huge budget: 20 steps, on so many images


def sweep_order(budgets: int, protocol: SweepProtocol) -> list[tuple[int, tuple[int, ...]]]:
    """In which order a sweep takes its budgets, numbered from the smallest, each with the earlier ones that decide whom it
    attacks: those that no smaller one of them fooled and every larger one did. Under `paper` everybody."""
    if protocol == "paper":
        return [(budget, ()) for budget in range(budgets)]
    if protocol == "fast":
        return [(budget, tuple(range(budget))) for budget in range(budgets)]
    return _halves(0, budgets, ())


def _halves(low: int, high: int, before: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """The middle first, then the half below it and the half above."""
    if low == high:
        return []
    middle = (low + high) // 2
    after = (*before, middle)
    return [(middle, before), *_halves(low, middle, after), *_halves(middle + 1, high, after)]


def neighbours(budget: int, after: tuple[int, ...]) -> tuple[int | None, int | None]:
    """Of earlier budgets the next smaller and the next larger one: whom the first fooled and the second did not is settled."""
    return max((b for b in after if b < budget), default=None), min((b for b in after if b > budget), default=None)


@dataclass(frozen=True, kw_only=True)
class AttackQuestion(Question):
    """One attack on every image."""

    kind: ClassVar[str] = "attack"
    folder: ClassVar[str] = "attacks"
    shared: ClassVar[bool] = True
    has_predictions: ClassVar[bool] = True
    attack: Attack
    protocol: SweepProtocol = "paper"
    after: tuple[
        Any, ...
    ] = ()  # of a sweep: the attacks of other budgets that decide whom this one attacks (`sweep_order`)
    seed: int = 0
    save: bool = False  # keep the adversarial images
    eight_bit: bool = False  # pixels on the grid of 255ths

    @property
    def title(self) -> str:
        a = self.attack
        name = "FGSM" if isinstance(a, PGD) and a.steps == 1 and not a.random_start else a.name
        own_step = isinstance(a, PGD) and type(a.within) is Linf and a.step_size not in (None, a.within.eps)
        pace = f" by {a.steps} steps of {Budget(a.step)}" if isinstance(a, PGD) and own_step else ""
        aim = f" away from the {a.label} label" if a.label != "true" else ""
        return f"{name} {a.within}{pace}" + (aim if a.target is None else f" towards {target_text(a.target)}")

    @property
    def price_group(self) -> str:
        patch = isinstance(self.attack, PGD) and self.attack.within.eps >= 1
        return self.attack.name + (" patch" if patch else "")

    def fields(self) -> dict[str, Any]:
        names = ("attack", "protocol", "after", "seed", "save", "eight_bit")
        return {name: getattr(self, name) for name in names}

    @property
    def work(self) -> Work:
        tried = SPENT.get(self.attack.name, 1.0) * self.attack.forwards
        return Work(per_image=BACKWARD * tried, first=CHECK)


@dataclass(frozen=True)
class AttackAnswer:
    """What became of every image under an attack. R restarts, n images."""

    content: Content  # as it is stored
    entry: Entry | None = None  # where it is stored; None before

    def with_flags(self, more: list[str]) -> AttackAnswer:
        return replace(self, content=self.content | {"flags": [*self.content["flags"], *more]})

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(n,): classified correctly before the attack"""
        flags: NDArray[np.bool_] = np.equal(self.content["images"]["clean"], self.content["images"]["label"])
        return flags

    @property
    def has_target(self) -> bool:
        """Success is to reach a class, not only to leave one."""
        return self.content["attack"].get("target") is not None

    @property
    def attackable(self) -> NDArray[np.bool_]:
        """(n,): not predicted as the target before the attack; only a target that is one class for all can be."""
        target, clean = self.content["attack"].get("target"), self.content["images"]["clean"]
        flags: NDArray[np.bool_] = np.not_equal(clean, target) if isinstance(target, int) else np.ones(len(clean), bool)
        return flags

    @property
    def changed(self) -> NDArray[np.bool_]:
        """(R, n): that restart changed the prediction; with a target, to that class"""
        return np.array(self.content["images"]["changed_in_run"], dtype=bool)

    @property
    def fooled(self) -> NDArray[np.bool_]:
        """(n,): at least one restart changed the prediction; with a target, to that class"""
        flags: NDArray[np.bool_] = np.logical_or.reduce(self.changed)
        return flags

    @property
    def distance(self) -> Array:
        """(n,): size of the smallest perturbation that fooled the model; infinite where none did"""
        return np.where(self.fooled, np.array(self.content["images"]["distance"], dtype=np.float64), np.inf)
