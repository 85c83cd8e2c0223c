"""What a study is made of, cell by cell: a model to train, or a question asked of a model on images. No torch.

A cell is a frozen config, and its answer a pure function of it. A cell that needs another (an attack needs its trained model)
holds that cell, so its key covers everything it depends on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from antiphase.attacks import PGD
from antiphase.config import Budget
from antiphase.data.catalog import entry_of
from antiphase.evals.config import Task
from antiphase.measures.questions import PredictionQuestion
from antiphase.models.attention_syntax import value_text
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.config import Differential, Softmax, Tower, ViTConfig
from antiphase.store import Keyed, Question
from antiphase.training.config import OF_BRANCHES, ContrastiveConfig, TrainConfig
from antiphase.training.penalty_syntax import penalty_text

PUBLISHED = (768, 12)  # width and depth of the vision tower that the papers are about, ViT-B/16


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


class Cell(Keyed):
    """What every cell is: a frozen dataclass whose fields say all that its answer depends on."""

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def title(self) -> str:
        raise TypeError(f"{type(self).__name__} has no title")

    @property
    def needs(self) -> tuple[Cell, ...]:
        """The cells that must be finished first."""
        values = (getattr(self, field.name) for field in dataclasses.fields(self))  # type: ignore[arg-type]
        return tuple(value for value in values if isinstance(value, Cell))

    @property
    def data_sets(self) -> tuple[str, ...]:
        """The data sets that it reads itself."""
        return ()


# ------------------------------------------------------------------------------------------------- models


class Model(Cell):
    """A model that others are about; studies share it."""

    @property
    def tower(self) -> Tower:
        """What looks at images."""
        raise TypeError(f"{type(self).__name__} has no tower")

    @property
    def grid(self) -> tuple[int, int]:
        """Sides of an image and of a patch, in pixels."""
        raise TypeError(f"{type(self).__name__} has no grid")

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
    after: int | None = (
        None  # with the weights that it had after this epoch, which `training` keeps; None: after the last
    )

    @property
    def needs(self) -> tuple[Cell, ...]:
        return super().needs if self.after is None else (self.whole,)

    @property
    def whole(self) -> Train:
        """The training that goes to its last epoch."""
        return dataclasses.replace(self, after=None)

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
        if t.penalty is not None:
            parts.append(f"penalty {penalty_text(t.penalty)}")
        for name in ("noise", "label_smoothing", "weight_decay"):
            if value := getattr(t, name):
                parts.append(f"{name.replace('_', ' ')} {value:.3g}")
        if self.after is not None:
            parts.append(f"after epoch {self.after}")
        return f"{', '.join(parts)}, {self.data}, seed {t.seed}"

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.data,)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to train, from several seeds, and what a ranking asks of each training."""

    trained: tuple[Train, ...]
    accuracy: tuple[Ask, ...]
    attacked: tuple[Ask, ...]
    cost: tuple[Ask, ...]

    @property
    def asked(self) -> tuple[Ask, ...]:
        return (*self.accuracy, *self.attacked, *self.cost)


@dataclass(frozen=True, kw_only=True)
class Ranking(Cell):
    """The order of recipes by what a first look at them found; paper/selection.py has the rule."""

    named_by_key: ClassVar[bool] = True  # it holds hundreds of configs
    recipes: tuple[Recipe, ...]
    beside: Recipe  # what they are to improve on

    def __hash__(self) -> int:
        return hash(self.key)  # found once

    @property
    def needs(self) -> tuple[Cell, ...]:
        return tuple(ask for recipe in (*self.recipes, self.beside) for ask in recipe.asked)

    @property
    def title(self) -> str:
        return f"ranking of {len(self.recipes)} recipes by a first look"


@dataclass(frozen=True, kw_only=True)
class Chosen(Model):
    """The recipe at a place of a ranking, trained anew from a seed that had no part in the ranking.

    Which recipe that is, rows decide, by a rule that stands in the code; so lines and predictions about it are fixed before any
    run. Depth and data may be others than those of the first look.
    """

    model: ViTConfig  # its sizes; the recipe says which attention
    data: str
    ranking: Ranking
    place: int  # counted from 0
    seed: int
    softmax: bool = False  # the same training of a softmax ViT, its control

    @property
    def needs(self) -> tuple[Cell, ...]:
        return (self.ranking,)

    @property
    def tower(self) -> Tower:
        return self.model

    @property
    def grid(self) -> tuple[int, int]:
        return entry_of(self.data).size, self.model.patch

    @property
    def run_seed(self) -> int:
        return self.seed

    @property
    def title(self) -> str:
        control = ", its softmax control" if self.softmax else ""
        depth = "" if self.model.depth == 1 else f", depth {self.model.depth}"
        return f"place {self.place + 1} of the {self.ranking.title}{control}{depth}, {self.data}, seed {self.seed}"

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.data,)

    def training_of(self, recipe: Recipe) -> Train:
        """What is trained if this is the recipe. Its control has no penalty on branches, since it has none."""
        first = recipe.trained[0]
        training = dataclasses.replace(first.training, seed=self.seed)
        model = dataclasses.replace(first.model, depth=self.model.depth)
        if self.softmax:
            model = dataclasses.replace(model, attention=(Softmax(),))
            if training.penalty is not None and training.penalty.term in OF_BRANCHES:
                training = dataclasses.replace(training, penalty=None)
        return dataclasses.replace(first, model=model, training=training, data=self.data)


class ClipModel(Model):
    """A CLIP, wherever it comes from: its vision tower is what looks at images."""

    model: CLIPConfig

    @property
    def tower(self) -> Tower:
        return self.model.vision

    @property
    def grid(self) -> tuple[int, int]:
        return self.model.vision.image, self.model.vision.patch

    @property
    def surrogate(self) -> bool:
        return (self.model.vision.width, self.model.vision.depth) != PUBLISHED


@dataclass(frozen=True, kw_only=True)
class TrainClip(ClipModel):
    """A CLIP trained on images whose captions are words for their classes, or on captioned images."""

    model: CLIPConfig
    training: ContrastiveConfig
    pairs: str
    prompts: str
    images: int | None = None  # training subset of the run's seed; None: all

    @property
    def run_seed(self) -> int:
        return self.training.seed

    @property
    def title(self) -> str:
        parts = [self.model.title, *_attention(self.model.vision), self.pairs, f"seed {self.training.seed}"]
        return ("surrogate " if self.surrogate else "") + ", ".join(parts)

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.pairs,)


@dataclass(frozen=True, kw_only=True)
class UserClip(ClipModel):
    """A CLIP of the user's own, known by its weights; where it lies does not matter."""

    model: CLIPConfig
    weights: str  # sha256

    @property
    def title(self) -> str:
        return ("small " if self.surrogate else "") + f"{self.model.title} {self.weights[:12]}"


@dataclass(frozen=True, kw_only=True)
class OtherEncoder(Cell):
    """An encoder that is no CLIP (convolutions, torch's own attention, mean over tokens) learns from pairs and is attacked."""

    model: CLIPConfig  # sizes, and the text tower
    training: ContrastiveConfig
    differential: bool  # its attention layers are replaced
    pairs: str
    prompts: str
    images: int | None
    attacks: tuple[PGD, ...]
    tested_on: Images

    @property
    def title(self) -> str:
        kind = "differential" if self.differential else "softmax"
        return f"surrogate encoder of torch's layers, {kind}, {self.pairs}, seed {self.training.seed}"

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.pairs,)


def _attention(model: Tower) -> list[str]:
    kinds = dict.fromkeys(layer for layer in model.layers if isinstance(layer, Differential))
    return [
        f"lambda_init {value_text(k.lambda_init, digits=3)}"
        + (" fixed" if not k.learned else "")
        + (f", {k.out_scale} scale" if k.out_scale != "official" else "")
        + (", no head norm" if k.head_norm == "none" else "")
        for k in kinds
    ]


# ------------------------------------------------------------------------------------------------- questions


@dataclass(frozen=True, kw_only=True)
class Ask(Cell):
    """A question asked of a trained model on images."""

    of: Model
    images: Images
    question: Question
    base: Model | None = None  # a softmax model, where the question takes one
    prompts: str | None = None  # how a CLIP words the classes; None: as it was trained, or as the paper does

    @property
    def kind(self) -> str:
        return self.question.kind

    @property
    def title(self) -> str:
        return f"{self.question.title} of {self.of.title}: {self.images}"

    @property
    def models(self) -> tuple[Model, ...]:
        """The models whose numbers are in the answer."""
        return (self.of, self.base) if self.question.compares and self.base is not None else (self.of,)

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.images.data,)

    @property
    def clean_predictions(self) -> tuple[Ask, ...]:
        """The cells that know what its models say of the clean images: itself, if it does."""
        if self.question.has_predictions:
            return (self,)
        return tuple(Ask(of=model, images=self.images, question=PredictionQuestion()) for model in self.models)


@dataclass(frozen=True, kw_only=True)
class Evaluate(Cell):
    """What the features of a model are good for, on one data set."""

    of: Model
    data: str
    task: Task
    n: int | None = None  # test images at most
    train_n: int | None = None  # training images at most
    costs: int = 96  # of a probe
    seed: int = 0
    prompts: str | None = None  # as of Ask

    @property
    def title(self) -> str:
        worded = f" with prompts {self.prompts}" if self.prompts else ""
        return f"{self.task} of {self.of.title} on {self.data}{worded}"

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.data,)


def ordered(cells: Iterable[Cell]) -> list[Cell]:
    """Every cell and all that it needs, once each; what is needed comes first."""
    listed: dict[str, Cell] = {}

    def visit(cell: Cell) -> None:
        if cell.key not in listed:
            for other in cell.needs:
                visit(other)
            listed[cell.key] = cell

    for cell in cells:
        visit(cell)
    return list(listed.values())


def data_sets(cells: Iterable[Cell]) -> Iterator[str]:
    """The data sets that these cells read, each once."""
    yield from dict.fromkeys(name for cell in cells for name in cell.data_sets)
