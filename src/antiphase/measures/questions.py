"""What may be measured of a model on images, each as one frozen config, and the rows that the answers hold. No torch."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from tyro.conf import Suppress  # a field that the command line asks for in another way: as a list, or once for all

from antiphase.attacks.config import DDN, PGD
from antiphase.attacks.threat_model import Linf
from antiphase.config import Budget, InputError, Names, check_fields, check_most, named_arguments
from antiphase.store import BACKWARD, Question, Work

Array = np.ndarray[Any, np.dtype[np.float64]]
Estimator = Literal["sample", "sharp"]
Level = Literal["maps", "branch", "block"]
PAPER_EPS = Budget("8/255")  # the radius within which the paper draws its perturbations
POWER_ITERATION = 50 * 6  # forward passes' worth of one largest singular value
ASCENT = 4 * 31 * BACKWARD  # of one L-ascent: four starts of 31 steps
MOST_DRAWS = 10_000_000  # per image
MOST_NOISE = 10.0  # beyond it nothing is left of an image
NEAREST = 10  # competing classes whose boundary is measured
ATTACK_STEPS = {"pgd": 20, "scrambled": 20, "fgsm": 1}  # gradients that a perturbation takes


@dataclass(frozen=True, kw_only=True)
class PredictionQuestion(Question):
    """What the model predicts for clean images."""

    kind: ClassVar[str] = "predictions"
    shared: ClassVar[bool] = True
    folder: ClassVar[str] = "predictions"
    has_predictions: ClassVar[bool] = True
    seed: Suppress[int] = 0


@dataclass(frozen=True, kw_only=True)
class MarginQuestion(Question):
    """How far is each clean image from the nearest class boundary? In logits, and in pixels by the gradients at the image."""

    kind: ClassVar[str] = "margins"
    shared: ClassVar[bool] = True
    folder: ClassVar[str] = "measures"
    seed: Suppress[int] = 0

    @property
    def work(self) -> Work:
        return Work(per_image=1 + BACKWARD * NEAREST)


@dataclass(frozen=True, kw_only=True)
class LipschitzQuestion(Question):
    """Local Lipschitz constants of every layer: by sampling, or by power iteration and ascent ("sharp")."""

    kind: ClassVar[str] = "lipschitz"
    shared: ClassVar[bool] = True
    folder: ClassVar[str] = "measures"
    draws: int = 32  # random perturbations per image for the Lipschitz estimate
    estimator: Suppress[Estimator] = "sample"
    level: Suppress[Level] = "maps"
    seed: Suppress[int] = 0

    def __post_init__(self) -> None:
        check_fields(self, seed=0, draws=1)

    @property
    def title(self) -> str:
        return f"L-{self.estimator} of {self.level}"

    @property
    def work(self) -> Work:
        return Work(per_image=self.draws, per_layer=0 if self.estimator == "sample" else POWER_ITERATION + ASCENT)


@dataclass(frozen=True, kw_only=True)
class AlignmentQuestion(Question):
    """Do the two branches oppose each other? One reading, with its controls."""

    kind: ClassVar[str] = "alignment"
    shared: ClassVar[bool] = True
    folder: ClassVar[str] = "measures"
    takes_base: ClassVar[bool] = True  # a softmax model, whose head pairs are a control
    reading: Suppress[str] = "R1"
    probes: int = 32  # random directions per image for the alignment
    max_probes: int | None = None  # doubled up to so many while a sign is undecided; None: never
    seed: Suppress[int] = 0

    def __post_init__(self) -> None:
        check_fields(self, seed=0, probes=2)
        if self.max_probes is not None and self.max_probes < self.probes:
            raise InputError(f"--max-probes {self.max_probes} is below --probes {self.probes}: raise it")

    @property
    def title(self) -> str:
        return f"alignment {self.reading}"

    @property
    def price_group(self) -> str:
        return f"alignment {self.reading}"

    @property
    def work(self) -> Work:
        adaptive = math.sqrt((self.max_probes or self.probes) / self.probes)
        once = {"R1": self.probes * 2 * adaptive, "R2": self.probes * 2 * adaptive, "R3": 2.0}.get(self.reading, 20.0)
        return Work(per_image=4 * once)  # with its controls


@dataclass(frozen=True, kw_only=True)
class _Perturbed(Question):
    """What the model does under perturbations of equal size."""

    folder: ClassVar[str] = "measures"
    perturbations: Names = Names("sign,scrambled,fgsm,pgd")  # also uniform, gaussian, blur, jpeg50, ... (cancellation)
    eps: Budget = PAPER_EPS  # size of the perturbations whose cancellation is measured
    seed: Suppress[int] = 0

    def __post_init__(self) -> None:
        check_fields(self, seed=0)
        if self.eps <= 0:
            raise InputError(
                "--eps 0 changes nothing, so there is nothing to cancel: give a size above 0, such as 8/255"
            )

    @property
    def work(self) -> Work:
        steps = sum(ATTACK_STEPS.get(name, 0) for name in self.perturbations)
        return Work(per_image=BACKWARD * steps + 3 * len(self.perturbations))


@dataclass(frozen=True, kw_only=True)
class CancellationQuestion(_Perturbed):
    """How much of a perturbation the subtraction takes away, under noise and under attack of equal size."""

    kind: ClassVar[str] = "cancellation"
    shared: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return f"cancellation at {self.eps}"


@dataclass(frozen=True, kw_only=True)
class DepthQuestion(_Perturbed):
    """How a perturbation grows or shrinks from block to block."""

    kind: ClassVar[str] = "depth"
    shared: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return f"propagation at {self.eps}"

    @property
    def work(self) -> Work:
        return Work(per_image=super().work.per_image + POWER_ITERATION)


@dataclass(frozen=True, kw_only=True)
class CorrelationQuestion(Question):
    """Do the two maps look alike, and do they move alike under noise, blur and JPEG?"""

    kind: ClassVar[str] = "correlation"
    shared: ClassVar[bool] = True
    folder: ClassVar[str] = "measures"
    seed: Suppress[int] = 0

    @property
    def title(self) -> str:
        return "map correlation"

    @property
    def work(self) -> Work:
        return Work(per_image=25)


@dataclass(frozen=True, kw_only=True)
class FocusQuestion(_Perturbed):
    """How much of the attention lies on the object, and how spread out it is, clean and under perturbations of equal size."""

    kind: ClassVar[str] = "focus"
    shared: ClassVar[bool] = True
    perturbations: Names = Names("scrambled,pgd")

    @property
    def title(self) -> str:
        return f"focus at {self.eps}"


@dataclass(frozen=True, kw_only=True)
class MixedChangeQuestion(_Perturbed):
    """How much of the mixed values (A1 - lambda A2) V changes, relative to their size, under noise and under attack."""

    kind: ClassVar[str] = "mixed change"
    shared: ClassVar[bool] = True
    perturbations: Names = Names("sign,pgd")

    @property
    def title(self) -> str:
        return f"change of mixed values at {self.eps}"


@dataclass(frozen=True, kw_only=True)
class StepCostQuestion(Question):
    """What does a training step of the run cost beside one of the base? Timed in turns on images that it learned from."""

    kind: ClassVar[str] = "step cost"
    folder: ClassVar[str] = "measures"
    rounds: int = 60  # steps of each that are counted
    seed: Suppress[int] = 0

    def __post_init__(self) -> None:
        check_fields(self, rounds=1)

    @property
    def work(self) -> Work:
        return Work(per_image=BACKWARD * 2.0 * self.rounds / 4)


@dataclass(frozen=True, kw_only=True)
class CaptionCorrelationQuestion(Question):
    """Do the two maps of a text tower look alike on short and long captions, and move alike when a word is inserted?"""

    kind: ClassVar[str] = "caption-correlation"
    folder: ClassVar[str] = "measures"
    long: int = 16  # tokens, start and end among them, from which a caption counts as long
    seed: Suppress[int] = 0

    def __post_init__(self) -> None:
        check_fields(self, seed=0, long=2)

    @property
    def title(self) -> str:
        return "map correlation on captions"


@dataclass(frozen=True, kw_only=True)
class InterventionQuestion(Question):
    """Is it the subtraction? Accuracy, attack success and L with lambda replaced, branches swapped or one map held."""

    kind: ClassVar[str] = "interventions"
    folder: ClassVar[str] = "measures"
    interventions: Names = Names("lam=0,swap,hold=A1,hold=A2")  # each lam=NUMBER, swap, hold=A1 or hold=A2
    steps: int = 20  # of the PGD under interventions
    restarts: int = 1  # of that PGD: independent random starts
    eps: Suppress[Budget] = PAPER_EPS  # of that PGD, within Linf
    draws: Suppress[int] = 32  # for L
    seed: Suppress[int] = 0

    def __post_init__(self) -> None:
        check_fields(self, seed=0, draws=1)
        if not self.interventions:
            raise InputError("there is no intervention: give --interventions, as in --interventions lam=0,hold=A2")
        for name in self.interventions:
            check_intervention(name)
        self.attack  # noqa: B018 - refuses what PGD would refuse

    @property
    def attack(self) -> PGD:
        return PGD(within=Linf(self.eps), steps=self.steps, restarts=self.restarts)

    @property
    def title(self) -> str:
        return f"interventions at {self.eps}"

    @property
    def work(self) -> Work:
        once = BACKWARD * self.attack.forwards + self.draws + 3
        return Work(per_image=once * (1 + len(self.interventions)))


@named_arguments
@dataclass(frozen=True, kw_only=True)
class CertificateQuestion(Question):
    """Within which L2 radius of each image is the prediction proven not to change? By randomised smoothing."""

    kind: ClassVar[str] = "certificates"
    folder: ClassVar[str] = "certificates"
    sigma: float = 0.25  # of the noise, of pixels in [0,1]
    selection: int = 100  # draws per image that select the class
    samples: int = 1_000  # draws per image that bound its probability
    alpha: float = 0.001  # the chance, per image, that a certificate is wrong
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, seed=0, selection=1, samples=1)
        check_most(self, selection=MOST_DRAWS, samples=MOST_DRAWS)
        check_noise(self.sigma)
        if not 0 < self.alpha < 0.5:
            raise InputError(
                f"alpha={self.alpha:g} must be above 0 and below 0.5: the chance that a certificate is wrong"
            )
        needed = math.floor(math.log(self.alpha) / math.log(0.5)) + 1
        if self.samples < needed:
            raise InputError(
                f"samples={self.samples} can certify nothing at alpha={self.alpha:g}, even if all agree: at least {needed} "
                "are needed"
            )

    @property
    def title(self) -> str:
        return f"certificates at sigma {self.sigma:g}"

    @property
    def work(self) -> Work:
        return Work(per_image=self.selection + self.samples)


@dataclass(frozen=True, kw_only=True)
class SmoothedAttackQuestion(Question):
    """How near is an image at which the smoothed model answers another class? Found by an attack, confirmed by draws."""

    kind: ClassVar[str] = "smoothed attack"
    folder: ClassVar[str] = "certificates"
    sigma: float
    away_from: tuple[int, ...]  # the class of every image that the attack drives it out of
    attack: DDN
    samples: int = 1_000  # draws that confirm
    alpha: float = 0.001  # the chance, per image, that a confirmed distance is wrong
    draws: int = 32  # of the smoothed model that is attacked
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, seed=0, samples=1, draws=1)
        check_noise(self.sigma)

    @property
    def title(self) -> str:
        return f"{self.attack.name} on the model smoothed at sigma {self.sigma:g}"

    @property
    def work(self) -> Work:
        return Work(per_image=BACKWARD * self.draws * self.attack.forwards + 4 * self.samples)


def check_noise(sigma: float) -> None:
    """Noise that there is, in units of pixels."""
    if not 0 < sigma <= MOST_NOISE:
        raise InputError(
            f"sigma={sigma:g} must be above 0 and at most {MOST_NOISE:g}: it is the noise of pixels in [0,1], such as 0.25"
        )


def check_intervention(name: str) -> dict[str, Any]:
    """The settings of `intervene` that a name stands for: lam=0.4, swap, hold=A2; others are refused."""
    what, _, value = name.partition("=")
    if name == "swap":
        return {"swap": True}
    if what == "hold" and value in ("A1", "A2"):
        return {"hold": value}
    if what == "lam":
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return {"lam": number}
    raise InputError(f"intervention {name!r} is not known: it is lam=NUMBER, swap, hold=A1 or hold=A2")


# ------------------------------------------------------------------------------------------------- rows of an answer


def columns(rows: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows column by column: how they are kept. None where a row lacks a name that another has."""
    table: dict[str, list[Any]] = {}
    for number, row in enumerate(rows):
        for name in [name for name in row if name not in table]:
            table[name] = [None] * number
        for name, column in table.items():
            column.append(row.get(name))
    return table


@dataclass(frozen=True)
class Rows:
    """The rows of a measure, column by column: entry i of every column belongs to row i. n images."""

    columns: Mapping[str, Sequence[Any] | NDArray[Any]]

    @classmethod
    def of(cls, columns: Mapping[str, Any] | Rows) -> Rows:
        """Of what an answer has under `rows`, or of what `as_arrays` made of it."""
        return columns if isinstance(columns, Rows) else cls(columns)

    def as_arrays(self) -> Rows:
        """The same rows for many readers: a list takes more room than an array, and becomes one for each of them."""
        return Rows({name: _as_array(column) for name, column in self.columns.items()})

    @property
    def images(self) -> list[int]:
        """Ids of the images, each once, in the order of the rows."""
        return self._places[0]

    def numbers(self, name: str) -> Array:
        """A column as numbers; NaN where there is none."""
        return np.asarray(self.columns[name], dtype=np.float64)  # None becomes NaN

    def where(self, layer: int | None = None, **only: Any) -> NDArray[np.bool_]:
        """Rows whose columns have these values, of one layer by its place in the model or of all."""
        mask = np.ones(len(self.columns["image"]), dtype=bool)
        for name, wanted in only.items():
            mask &= self._values(name) == wanted
        if layer is not None:
            of_rows = self._values("layer")
            names = [name for name in dict.fromkeys(of_rows[mask]) if name is not None]
            mask &= of_rows == names[layer]
        return mask

    def sums(self, values: Any, counted: Any) -> tuple[Array, Array]:
        """Sums of values and of counts over the rows of each image: (n,) each"""
        images, at = self._places
        top: Any = np.bincount(at, np.where(counted, values, 0.0), len(images))
        counts: Any = np.bincount(at, counted, len(images))
        return top, counts

    def _values(self, name: str) -> NDArray[Any]:
        column = self.columns[name]
        return column if isinstance(column, np.ndarray) else np.array(column, dtype=object)

    @cached_property
    def _places(self) -> tuple[list[int], NDArray[np.int64]]:
        """The images in the order of the rows, and the place among them of each row's."""
        ids, first, at = np.unique(self.columns["image"], return_index=True, return_inverse=True)
        order = np.argsort(first)
        return ids[order].tolist(), np.argsort(order)[at]


def _as_array(column: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """Whole numbers stay whole, other numbers and None become floats, and equal words are kept once."""
    kinds = set(map(type, column))
    if str in kinds:
        return np.array([sys.intern(value) if type(value) is str else value for value in column], dtype=object)
    return in_less_room(np.array(column)) if kinds == {int} else np.array(column, dtype=np.float64)


def in_less_room(values: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in half the bytes, where they fit."""
    small = values.dtype == np.int64 and np.abs(values).max(initial=0) < 2**31
    return values.astype(np.int32) if small else values
