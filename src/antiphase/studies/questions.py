"""What is asked of a model, as cells: predictions, attacks, measures, the audit, evaluations. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from antiphase.attacks import APGD, CW, FAB, PGD, AutoAttack, Linf, Square
from antiphase.config import Budget
from antiphase.models.clip_config import CLIPConfig
from antiphase.studies.plan import Cell, Images, Model, Train, TrainClip
from antiphase.training.config import ContrastiveConfig

Attack = PGD | APGD | FAB | Square | AutoAttack | CW


@dataclass(frozen=True, kw_only=True)
class OfImages(Cell):
    """A question about a trained model on images."""

    of: Model
    images: Images
    seed: int = 0  # of everything drawn

    @property
    def what(self) -> str:
        return self.kind.lower()

    @property
    def title(self) -> str:
        return f"{self.what} of {self.of.title}: {self.images}"


@dataclass(frozen=True, kw_only=True)
class Predicted(OfImages):
    """What it says of clean images."""

    prompts: str | None = None  # how a CLIP words the classes; None: as it was trained, or as the paper does


@dataclass(frozen=True, kw_only=True)
class Attacked(OfImages):
    """Under attack; every run to its own end, so that means over runs and unions are both there."""

    attack: Attack

    @property
    def what(self) -> str:
        a = self.attack
        name = "FGSM" if isinstance(a, PGD) and a.steps == 1 and not a.random_start else a.name
        own_step = isinstance(a, PGD) and type(a.within) is Linf and a.step_size not in (None, a.within.eps)
        pace = f" by {a.steps} steps of {Budget(a.step)}" if isinstance(a, PGD) and own_step else ""
        return f"{name} {a.within}{pace}" + (f" away from the {a.label} label" if a.label != "true" else "")


@dataclass(frozen=True, kw_only=True)
class Lipschitz(OfImages):
    draws: int
    estimator: Literal["sample", "sharp"] = "sample"
    level: Literal["maps", "branch", "block"] = "maps"

    @property
    def what(self) -> str:
        return f"L-{self.estimator} of {self.level}"


@dataclass(frozen=True, kw_only=True)
class Aligned(OfImages):
    """Branch alignment with its controls."""

    base: Model | None = None  # a softmax model: its head pairs are a control
    reading: str = "R1"
    probes: int = 32
    max_probes: int | None = None

    @property
    def what(self) -> str:
        return f"alignment {self.reading}"


@dataclass(frozen=True, kw_only=True)
class Cancelled(OfImages):
    """What the subtraction takes away from perturbations of equal size."""

    perturbations: tuple[str, ...]
    eps: Budget

    @property
    def what(self) -> str:
        return f"cancellation at {self.eps}"


@dataclass(frozen=True, kw_only=True)
class Propagated(OfImages):
    """How perturbations travel from block to block."""

    perturbations: tuple[str, ...]
    eps: Budget

    @property
    def what(self) -> str:
        return f"propagation at {self.eps}"


@dataclass(frozen=True, kw_only=True)
class Correlated(OfImages):
    """The two maps and their changes."""

    @property
    def what(self) -> str:
        return "map correlation"


@dataclass(frozen=True, kw_only=True)
class Audited(OfImages):
    """The theory held against it and its softmax baseline."""

    base: Model
    probes: int
    draws: int

    @property
    def what(self) -> str:
        return "theory audit"


@dataclass(frozen=True, kw_only=True)
class Looked(OfImages):
    """One image, clean and attacked: its maps and the directions in which each branch's gradient points."""

    attack: PGD

    @property
    def what(self) -> str:
        return f"look under PGD {self.attack.within}"


@dataclass(frozen=True, kw_only=True)
class Evaluated(Cell):
    """What its features are good for, on one data set."""

    of: Model
    data: str
    task: Literal["zero-shot", "probe", "few-shot", "retrieval", "pairs"]
    n: int | None = None  # test images at most
    train_n: int | None = None  # training images at most
    costs: int = 96  # of a probe
    seed: int = 0
    prompts: str | None = None  # as of Predicted

    @property
    def title(self) -> str:
        worded = f" with prompts {self.prompts}" if self.prompts else ""
        return f"{self.task} of {self.of.title} on {self.data}{worded}"


@dataclass(frozen=True, kw_only=True)
class Foreign(Cell):
    """An encoder that is no CLIP (convolutions, torch's own attention, mean over tokens) learns from pairs and is attacked."""

    model: CLIPConfig  # sizes, and the text tower
    training: ContrastiveConfig
    differential: bool  # its attention layers are replaced
    pairs: str
    prompts: str
    images: int | None
    attacks: tuple[PGD, ...]
    judged: Images

    @property
    def title(self) -> str:
        kind = "differential" if self.differential else "softmax"
        return f"surrogate encoder of torch's layers, {kind}, {self.pairs}, seed {self.training.seed}"


def data_of(cell: Cell) -> Iterator[str]:
    """The data sets that a cell reads itself."""
    if isinstance(cell, Train | Evaluated):
        yield cell.data
    elif isinstance(cell, TrainClip | Foreign):
        yield cell.pairs
    elif isinstance(cell, OfImages):
        yield cell.images.data
