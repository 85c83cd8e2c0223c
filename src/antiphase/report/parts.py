"""What a page is made of, as values. Whatever has results (a comparison, runs, a ledger) is turned into these; nothing else
is drawn or written about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["supported", "not supported", "inconclusive", "not tested here"]
Panel = Callable[[Any], None]  # draws on one pair of axes


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """One of the differences that a claim is about."""

    name: str  # what minus what, and where
    value: float | None
    interval: tuple[float, float] | None = None  # 95 %
    n: int | None = None
    unit: str = "points"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the contrasts say of a claim."""

    claim: str  # its short name, as K1
    text: str  # the claim in the words of the paper
    status: Status
    contrasts: tuple[Contrast, ...] = ()
    because: str = ""  # what is missing, or why nothing could be decided
    surrogate: bool = False  # decided on a stand-in: it says nothing of the paper's own models


@dataclass(frozen=True)
class Value:
    """One cell of a table."""

    text: str
    small: str = ""  # beneath it: an interval, n
    strong: bool = False


@dataclass(frozen=True, kw_only=True)
class Column:
    title: str
    group: str = ""  # columns side by side with the same group share a heading
    model: str = ""  # whose colour the heading carries
    words: bool = False  # text, set from the left; numbers are set from the right


@dataclass(frozen=True, kw_only=True)
class Table:
    name: str  # of its files
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    note: str = ""
    failed: tuple[str, ...] = ()  # cells that have no number, each with its error
    data: Mapping[str, Sequence[Any]] | None = None  # the same numbers unrounded, written as CSV


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str
    title: str
    alt: str  # what there is to see, for who cannot see it
    panels: tuple[Panel, ...]
    data: Mapping[str, Sequence[Any]]  # what is drawn, written as CSV
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A place for something that has not been computed."""

    study: str
    command: str  # what fills it
    why: str = "This has not been run yet."


@dataclass(frozen=True, kw_only=True)
class Section:
    name: str
    title: str
    parts: tuple[Table | Figure | Slot, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A card about one model. The place of a model among those of a page is its colour everywhere on the page."""

    name: str
    title: str
    facts: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    title: str
    lede: str
    headline: str = ""
    findings: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    models: tuple[Model, ...] = ()
    looks: tuple[tuple[str, Mapping[str, Any]], ...] = ()  # (model, cell of studies/looked.py): what the lens shows
    no_lens: Slot | None = None  # in the lens's place, where there are no looks
    sections: tuple[Section, ...] = ()
    made: tuple[tuple[str, str], ...] = ()  # where the numbers come from: versions, fingerprints, seeds
    source: str = ""  # the file or folder that everything here was read from


def study_table(
    name: str, title: str, labels: Sequence[str], entries: Sequence[Mapping[str, Any]], note: str = ""
) -> Table:
    """reference | ours | reading | n | interval, a line an entry. An entry has those keys, `labels` (a word for each label)
    and `unit`; one that failed has `error` in place of numbers."""
    failed = [f"{', '.join(e['labels'])}: {e['error']}" for e in entries if e.get("error")]
    rows = []
    for e in entries:
        unit = e.get("unit", "%")
        ours = "failed" if e.get("error") else shown(e.get("ours"), unit)
        rows.append(
            (
                *(Value(str(label)) for label in e["labels"]),
                Value(shown(e.get("reference"), unit)),
                Value(ours, strong=True),
                Value(e.get("reading", "")),
                Value("–" if e.get("n") is None else f"{e['n']:,}"),
                Value(shown_interval(e.get("interval"), unit)),
            )
        )
    words = [Column(title=label, words=True) for label in labels]
    numbers = (Column(title="reference"), Column(title="ours"), Column(title="reading", words=True))
    keys = ("reference", "ours", "reading", "n", "interval", "unit", "error")
    data: dict[str, list[Any]] = {label: [e["labels"][i] for e in entries] for i, label in enumerate(labels)}
    data |= {key: [e.get(key) for e in entries] for key in keys}
    return Table(
        name=name,
        title=title,
        columns=(*words, *numbers, Column(title="n"), Column(title="95 % interval")),
        rows=tuple(rows),
        note=note,
        failed=tuple(failed),
        data=data,
    )


def shown(value: Any, unit: str) -> str:
    """A number with its unit, three significant digits or a tenth of a per cent; a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{100 * value:.1f} %" if unit == "%" else f"{value:.3g} {unit}".strip()


def shown_interval(interval: Any, unit: str) -> str:
    if interval is None:
        return "–"
    low, high = interval
    return f"[{100 * low:.1f}, {100 * high:.1f}] %" if unit == "%" else f"[{low:.3g}, {high:.3g}] {unit}".strip()
