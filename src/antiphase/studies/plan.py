"""What a study asks, cell by cell: a cell is a frozen config, and its answer a pure function of it. No torch.

A cell that needs another (an attack needs its trained model) holds that cell, so its key covers everything it depends on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from antiphase.config import Budget, fingerprint, to_plain
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
        kept = {f.name: essence(getattr(value, f.name)) for f in dataclasses.fields(value) if not _default(f, value)}
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
