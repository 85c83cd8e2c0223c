"""A study: a question, the lines of its table and what its claims predict. Its cells follow from what those read. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from antiphase.config import Budget
from antiphase.measures.questions import Rows, in_less_room
from antiphase.measures.stats import Contrast, Unit
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Cell, Train, ordered
from antiphase.paper.verdict_rule import GAP, LEVEL, POWER
from antiphase.store import Content

if TYPE_CHECKING:
    from antiphase.paper.grid import Grid

MODELS = ("ViT", "DiffViT", "CLIP", "DiffCLIP")  # in the order of their colours
SURROGATE = "surrogate"  # a small model trained here in place of a published one; it never decides a claim
FIGURE_ONLY = "figure only"  # the paper draws it and prints no number
NOT_RUN = "not run yet"
TABLES = ("rows", "per_image")  # of an answer, column by column (measures/questions.py)


class Missing(LookupError):
    """A cell that is not in the ledger."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell.title)
        self.cell = cell


@dataclass
class Answers:
    """Answers by cell, each read once; one that is not there raises `Missing`."""

    ledger: Ledger
    read: dict[str, Content] = field(default_factory=dict)

    def __call__(self, cell: Cell) -> Content:
        if cell.key not in self.read:
            row = self.ledger.row(cell)
            if row is None:
                raise Missing(cell)
            self.read[cell.key] = _compact(self.ledger.answer(row))
        return self.read[cell.key]


def _compact(content: Content) -> Content:
    """With what is there of each image or row as arrays: many lines read it, and lists take more room and time."""
    images = content.get("images")
    tables: dict[str, Any] = {
        name: Rows(content[name]).as_arrays() for name in TABLES if isinstance(content.get(name), dict)
    }
    if isinstance(images, dict):
        tables["images"] = {name: in_less_room(np.array(v)) if isinstance(v, list) else v for name, v in images.items()}
    return content | tables


# ------------------------------------------------------------------------------------------------- lines of a table


@dataclass(frozen=True)
class Tick:
    """A number on the axis of a figure, as part of a label."""

    axis: str  # eps, depth, layer, lambda_init, ...
    x: float
    text: str  # in the label
    series: str = ""  # what is left of it in the name of the curve

    @classmethod
    def eps(cls, eps: Budget, word: str = "eps") -> Tick:
        """In 255ths, where the budget is written so."""
        return cls(word, float(str(eps).removesuffix("/255")), f"{word} {eps}")

    @classmethod
    def patch(cls, width: int) -> Tick:
        return cls("patch", width, f"patch {width} x {width}")

    @classmethod
    def at(cls, word: str, x: float) -> Tick:
        return cls(word, x, f"{word} {x}")


class Label:
    """What a line is about, in parts that are separated by commas; one of them may be a number on an axis."""

    def __init__(self, *parts: str | Tick) -> None:
        self.parts = tuple(part for part in parts if part)

    def __str__(self) -> str:
        return ", ".join(part.text if isinstance(part, Tick) else part for part in self.parts)

    @property
    def tick(self) -> Tick | None:
        return next((part for part in self.parts if isinstance(part, Tick)), None)

    @property
    def series(self) -> str:
        """The name of the curve that it lies on: the label without its number on the axis."""
        texts = (part.series if isinstance(part, Tick) else part for part in self.parts)
        return ", ".join(text for text in texts if text)

    @property
    def model(self) -> str:
        """Whose colour it has; none for a difference or a control."""
        first = self.parts[0] if self.parts else ""
        return first if isinstance(first, str) and first in MODELS else ""

    @property
    def details(self) -> tuple[str, ...]:
        """What it says besides its model and its number on the axis, part by part."""
        words = tuple(part for part in self.parts if isinstance(part, str))
        return words[1:] if self.model else words


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One line of a table as it came out: the paper's number beside ours."""

    label: str
    reading: str  # which of the possible meanings was measured
    value: float | None = None  # None: not there yet
    interval: tuple[float, float] | None = None  # 95 %
    n: int | None = None  # images
    seeds: int | None = None
    reference: float | str | None = None  # of the paper; FIGURE_ONLY where it has none, None where it has no such thing
    unit: Unit = "%"
    text: str = ""  # in place of a value, where the finding is a sentence
    note: str = ""
    model: str = ""  # whose colour it has in a figure
    series: str = ""  # the curve that it lies on
    axis: str = ""  # what is along the axis
    x: float | None = None
    details: tuple[str, ...] = ()  # what else its label says: data, depth, attack, control

    @classmethod
    def about(cls, label: Label, reading: str, **fields: Any) -> TableRow:
        """With what a label says of its place in a figure."""
        tick = label.tick
        place: dict[str, Any] = {"model": label.model, "series": label.series, "axis": tick.axis if tick else ""}
        place |= {"x": tick.x if tick else None, "details": label.details}
        return cls(label=str(label), reading=reading, **place, **fields)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a table, listed before any run: what it is about, which cells it reads, and how."""

    label: Label
    reading: str
    cells: tuple[Cell, ...]
    read: Callable[[Answers], dict[str, Any] | list[TableRow]]  # fields of the row, or rows of its own
    unit: Unit = "%"
    reference: float | str | None = None

    def row(self, **fields: Any) -> TableRow:
        return TableRow.about(self.label, self.reading, unit=self.unit, reference=self.reference, **fields)

    def rows(self, answers: Answers) -> list[TableRow]:
        """As far as the ledger has it."""
        try:
            result = self.read(answers)
        except Missing:
            return [self.row(note=NOT_RUN)]
        return result if isinstance(result, list) else [self.row(**result)]


# ------------------------------------------------------------------------------------------------- what claims predict


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What a scale gives to a contrast, known before any run."""

    seeds: int  # fewest of any model in it
    images: int  # that count
    of_pair: bool = False  # two given models: over images alone
    surrogate: bool = False  # small models stand in for those that the claim is about: it decides nothing
    least_p: float = 0.0  # of a permutation test, whatever comes out
    power_by_plan: Callable[[], float | None] = lambda: None  # called when asked for: lists of cells do without
    seeds_by_plan: Callable[[], int | None] = lambda: None
    margin: float = GAP  # what it must show: a gap of five points, or that nothing lies beyond a margin
    margin_by_plan: Callable[[], float | None] = lambda: None
    images_there: int = 0  # that would count if all of the data set were taken
    images_by_plan: Callable[[], int | None] = lambda: None

    @cached_property
    def power(self) -> float | None:
        """Chance to see a gap of five points; None where that is no question."""
        return self.power_by_plan()

    @cached_property
    def power_at_margin(self) -> float | None:
        """Chance to see what it must show, where that is less than five points."""
        return self.margin_by_plan() if self.margin < GAP else None

    @property
    def can_decide(self) -> bool:
        """Whether the contrast may decide its claim, as far as that is known before any run."""
        enough = self.power is None or self.power >= POWER
        return enough and self.least_p < LEVEL and not self.surrogate

    @cached_property
    def seeds_needed(self) -> int | None:
        """Of every model, to see it with probability 0.8; None: more than one would train."""
        return self.seeds_by_plan()

    @cached_property
    def images_needed(self) -> int | None:
        """Of a given pair, to see its margin with probability 0.8; None where seeds count as well."""
        return self.images_by_plan()


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a claim says, as a number that it says is above 0; listed before any run."""

    claim: str
    name: str
    part: str  # what the claim is tested on
    reading: str  # the first reading of a claim is the one that decides
    contrast: Callable[[Any], Contrast]  # from what gives the number of a series (paper/contrasts.py)
    cells: tuple[Cell, ...] = ()
    optional: bool = False  # decided if its cells happen to be there; the study does not compute them
    unit: Unit = "points"
    threshold: bool = False  # a distance to a threshold, and no effect
    planned: Planned
    groups: tuple[
        Any, ...
    ] = ()  # of models, whose weighted sum it is; of a rank correlation the two numbers of each layer
    direction_of: tuple[Any, ...] = ()  # groups whose sum says which direction it should have
    ranks_seeds: bool = (
        False  # a rank correlation over seeds: `groups` are first and second number of each pair in turn
    )
    premise: bool = False  # what the claim takes for granted
    clusters: tuple[str, ...] = ()  # of a rank correlation: which of the things that are ranked are alike

    def witnesses(self, grid: Grid) -> list[Train]:
        """Of the models trained here: a published one has no accuracy to reach."""
        return list(dict.fromkeys(grid.witness(cell) for cell in self.cells if isinstance(cell, Train)))


def no_predictions(_: Grid) -> list[Prediction]:
    return []


@dataclass(frozen=True, kw_only=True)
class Study:
    name: str
    title: str | Callable[[Grid], str]  # made from the grid where it names data, depths, budgets or restarts
    question: str
    lines: Callable[[Grid], Sequence[Line]]
    predictions: Callable[[Grid], list[Prediction]] = no_predictions
    claims: tuple[str, ...] = ()  # that its predictions are about; a small scale may have predictions for fewer
    aliases: tuple[str, ...] = ()  # other names that the command line takes
    minutes: float  # of two cores at the cpu scale, on an empty ledger, by the price list (paper/cost.py)
    clip: bool = False  # takes --clip and --diffclip, and trains surrogates without them

    def titled(self, grid: Grid) -> str:
        """Its title at a scale."""
        return self.title if isinstance(self.title, str) else self.title(grid)

    def cells(self, grid: Grid) -> list[Cell]:
        """Every cell that its lines and predictions read, what those need, and the witnesses of its claims, in order."""
        return list(_cells(self, grid))

    def table(self, grid: Grid, answers: Answers) -> list[TableRow]:
        return [row for line in self.lines(grid) for row in line.rows(answers)]


@lru_cache(maxsize=500)
def _cells(study: Study, grid: Grid) -> tuple[Cell, ...]:
    """Listed once: thousands of configs are made on the way."""
    read = [cell for line in study.lines(grid) for cell in line.cells]
    listed = study.predictions(grid)
    read += [cell for prediction in listed if not prediction.optional for cell in prediction.cells]
    return tuple(ordered([*read, *(witness for prediction in listed for witness in prediction.witnesses(grid))]))
