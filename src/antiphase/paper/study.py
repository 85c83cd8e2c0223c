"""A study: a question, the cells that answer it, the lines of its table, and the contrasts that decide claims. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from antiphase.measures.stats import Contrast
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Cell, Train, ordered

if TYPE_CHECKING:
    from antiphase.paper.grid import Setting

Answer = dict[str, Any]
Unit = Literal["%", "points", ""]  # of a rate, of a difference of rates, of another number
SURROGATE = "surrogate"  # a small model trained here in place of a published one; it never decides a claim
FIGURE_ONLY = "figure only"  # the paper draws it and prints no number


class Missing(LookupError):
    """A cell that is not in the ledger."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell.title)
        self.cell = cell


@dataclass
class Found:
    """Answers by cell; one that is not there raises `Missing`."""

    ledger: Ledger
    read: dict[str, Answer] = field(default_factory=dict)

    def __call__(self, cell: Cell) -> Answer:
        if cell.key not in self.read:
            row = self.ledger.row(cell)
            if row is None:
                raise Missing(cell)
            self.read[cell.key] = row["answer"]
        return self.read[cell.key]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a table: the paper's number beside ours."""

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


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a claim says, as a number that it says is above 0; listed before any run."""

    claim: str
    name: str
    part: str  # what the claim is tested on
    reading: str  # the first reading of a claim is the one that decides
    finding: Callable[[Found], Contrast]
    cells: tuple[Cell, ...] = ()

    def witnesses(self, setting: Setting) -> list[Train]:
        """Of the models trained here: a published one has no accuracy to reach."""
        return list(dict.fromkeys(setting.witness(cell) for cell in self.cells if isinstance(cell, Train)))


def nothing(_: Setting) -> list[Prediction]:
    return []


@dataclass(frozen=True, kw_only=True)
class Study:
    name: str
    title: str
    question: str
    cells: Callable[[Setting], Sequence[Cell]]
    lines: Callable[[Setting, Found], Sequence[Line]]
    contrasts: Callable[[Setting], list[Prediction]] = nothing
    minutes: float  # of two cores at the cpu scale, on an empty ledger: processor time, halved
    priced: bool = False  # from one seed of three; else every cell was run
    clip: bool = False  # takes --clip and --diffclip, and trains surrogates without them

    def grid(self, setting: Setting) -> list[Cell]:
        """Every cell, in the order in which to do them: those it asks for, what they need, and the witnesses of its claims."""
        judged = [witness for contrast in self.contrasts(setting) for witness in contrast.witnesses(setting)]
        return ordered([*self.cells(setting), *judged])

    def claims(self, setting: Setting) -> list[str]:
        return list(dict.fromkeys(contrast.claim for contrast in self.contrasts(setting)))
