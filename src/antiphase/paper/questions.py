"""What a study asks, cell by cell: a cell is a frozen config, and its answer a pure function of it. No torch.

A cell that needs another (an attack needs its trained model) holds that cell, so its key covers everything it depends on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from antiphase.attacks import APGD, CW, FAB, PGD, AutoAttack, Linf, Square
from antiphase.config import Budget, fingerprint, stored_name, to_plain
from antiphase.data.catalog import entry_of
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.config import Differential, Tower, ViTConfig
from antiphase.training.config import ContrastiveConfig, TrainConfig

FORMAT = 1  # raised when a cell of the same config would come out differently


@dataclass(frozen=True, kw_only=True)
class Images:
    """Which images of a data set."""

    data: str
    n: int | None = None  # at most so many, a class-balanced subset; None: all
    split: Literal["test", "train"] = "test"
    learned: int | None = None  # of a train split: chosen among the so many that a run of this seed learned from
    seed: int = 0  # of the subset
    size: int | None = None  # side to which photographs are brought; None: as the data set has it

    def __str__(self) -> str:
        return f"{'all' if self.n is None else self.n} {self.data} {self.split} images"


class Cell:
    """What every cell is: a frozen dataclass whose fields say all that its answer depends on."""

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def title(self) -> str:
        raise NotImplementedError

    @property
    def needs(self) -> tuple[Cell, ...]:
        """The cells that must be finished first."""
        values = (getattr(self, field.name) for field in dataclasses.fields(self))  # type: ignore[arg-type]
        return tuple(value for value in values if isinstance(value, Cell))

    @cached_property
    def key(self) -> str:
        """Changes with anything the answer depends on, and stays when a config gains a field that is left at its default."""
        return fingerprint({"format": FORMAT, "cell": essence(self)})


class Model(Cell):
    """A model that others are about; studies share it."""

    @property
    def tower(self) -> Tower:
        """What looks at images."""
        raise NotImplementedError

    @property
    def grid(self) -> tuple[int, int]:
        """Sides of an image and of a patch, in pixels."""
        raise NotImplementedError

    @property
    def run_seed(self) -> int:
        return 0

    @property
    def surrogate(self) -> bool:
        """Stands in for a published model that is not here."""
        return False


@dataclass(frozen=True, kw_only=True)
class Train(Model):
    """A ViT, trained."""

    model: ViTConfig
    training: TrainConfig
    data: str
    images: int | None = None  # class-balanced training subset of the run's seed; None: all
    start: Train | None = None  # fine-tuned from this one

    @property
    def tower(self) -> Tower:
        return self.model

    @property
    def grid(self) -> tuple[int, int]:
        return entry_of(self.data).size, self.model.patch

    @property
    def run_seed(self) -> int:
        return self.training.seed

    @property
    def title(self) -> str:
        m, t = self.model, self.training
        parts = [m.title, f"depth {m.depth}", *_attention(m), *([f"patch {m.patch}"] if m.patch != 4 else [])]
        if m.is_differential and m.init != "official":
            parts.append(f"{m.init} init")
        if t.adv_eps is not None:
            parts.append(f"trained against {Budget(t.adv_eps)}" + (" from scratch" if self.start is None else ""))
        return f"{', '.join(parts)}, {self.data}, seed {t.seed}"


@dataclass(frozen=True, kw_only=True)
class TrainClip(Model):
    """A CLIP trained on images whose captions are words for their classes, or on captioned images."""

    model: CLIPConfig
    training: ContrastiveConfig
    pairs: str
    prompts: str
    images: int | None = None  # training subset of the run's seed; None: all

    @property
    def tower(self) -> Tower:
        return self.model.vision

    @property
    def grid(self) -> tuple[int, int]:
        return self.model.vision.image, self.model.vision.patch

    @property
    def run_seed(self) -> int:
        return self.training.seed

    @property
    def surrogate(self) -> bool:
        return not _published(self.model)

    @property
    def title(self) -> str:
        parts = [self.model.title, *_attention(self.model.vision), self.pairs, f"seed {self.training.seed}"]
        return ("surrogate " if self.surrogate else "") + ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Given(Model):
    """A CLIP of the user's own, known by its weights; where it lies does not matter."""

    model: CLIPConfig
    weights: str  # sha256

    @property
    def tower(self) -> Tower:
        return self.model.vision

    @property
    def grid(self) -> tuple[int, int]:
        return self.model.vision.image, self.model.vision.patch

    @property
    def surrogate(self) -> bool:
        return not _published(self.model)

    @property
    def title(self) -> str:
        return ("surrogate " if self.surrogate else "") + f"{self.model.title} {self.weights[:12]}"


def _published(model: CLIPConfig) -> bool:
    """Of the shape that the papers are about, ViT-B/16."""
    return (model.vision.width, model.vision.depth) == (768, 12)


def _attention(model: Tower) -> list[str]:
    kinds = dict.fromkeys(layer for layer in model.layers if isinstance(layer, Differential))
    return [
        f"lambda_init {k.lambda_init}" + (f", {k.out_scale} scale" if k.out_scale != "official" else "") for k in kinds
    ]


# ------------------------------------------------------------------------------------------------- identity and order
def essence(value: Any) -> Any:
    """A config as plain values without the fields that stand at their defaults."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f for f in dataclasses.fields(value) if not _default(f, value)]
        kept = {stored_name(f): essence(getattr(value, f.name)) for f in fields}
        return {"kind": type(value).__name__, **kept}
    if isinstance(value, list | tuple):
        return [essence(v) for v in value]
    return to_plain(value)


def _default(field: dataclasses.Field[Any], config: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return bool(getattr(config, field.name) == field.default)
    made = field.default_factory
    return made is not dataclasses.MISSING and bool(getattr(config, field.name) == made())


def agrees(stored: Any, present: Any) -> bool:
    """Whether a stored config says the same as a present one wherever both say something."""
    if isinstance(stored, dict) and isinstance(present, dict):
        return all(agrees(stored[k], present[k]) for k in stored.keys() & present.keys())
    if isinstance(stored, list) and isinstance(present, list):
        return len(stored) == len(present) and all(map(agrees, stored, present))
    return bool(stored == present)


def ordered(cells: Iterable[Cell]) -> list[Cell]:
    """Every cell and all that it needs, once each; what is needed comes first."""
    seen: dict[str, Cell] = {}

    def visit(cell: Cell) -> None:
        if cell.key not in seen:
            for other in cell.needs:
                visit(other)
            seen[cell.key] = cell

    for cell in cells:
        visit(cell)
    return list(seen.values())


# ------------------------------------------------------------------------------------------------- studies.questions
# What is asked of a model, as cells: predictions, attacks, measures, the audit, evaluations. No torch.


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
