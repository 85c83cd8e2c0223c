"""What a page is made of, as values: cards, tables, figures, places for what is missing, in sections.

Whatever has results (a comparison, runs, a ledger) is turned into these by pages/*, and into HTML by page.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from antiphase.measures.stats import Verdict
from antiphase.report.numbers import columns_of
from antiphase.report.words import label_words, reading_words

Panel = Callable[[Any], None]  # draws on one pair of axes


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
    folded: bool = False  # shown when the reader asks for it
    starts: tuple[int, ...] = ()  # rows with which a block begins: a rule stands above each
    note: str = ""
    command: str = ""  # that fills what is missing, after the note
    failed: tuple[str, ...] = ()  # cells that have no number, each with its error
    data: Mapping[str, Sequence[Any]] | None = None  # the same numbers unrounded, written as CSV


@dataclass(frozen=True)
class Switch:
    """Two panels in one place of a page: the reader sees the first, until the other is chosen. A file shows both."""

    question: str  # what is chosen, for readers who cannot see it
    views: Mapping[str, Panel]  # by what the reader chooses


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str
    title: str = ""  # none where the section's own title says it
    alt: str  # what there is to see, for readers who cannot see it
    panels: tuple[Panel | Switch, ...]
    data: Mapping[str, Sequence[Any]]  # what is drawn, written as CSV
    note: str = ""
    wide: bool = False  # each panel takes the whole width, for there is much side by side in it
    height: float = 2.45  # of a row of panels in print, in inches
    heights: tuple[float, ...] = ()  # of each panel on a page, where they are not alike; rows in print follow them

    @property
    def drawn(self) -> tuple[Panel, ...]:
        """Every panel, whether or not a page shows it at first."""
        return tuple(
            panel
            for place in self.panels
            for panel in (place.views.values() if isinstance(place, Switch) else (place,))
        )


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A place for something that has not been computed."""

    study: str
    command: str  # what fills it
    why: str = "This has not been run yet."


@dataclass(frozen=True, kw_only=True)
class Commands:
    """What has not been computed, a line each: what it is, and the command that computes it."""

    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    name: str
    title: str
    parts: tuple[Table | Figure | Slot | Commands, ...]
    note: str = ""
    short: str = ""  # in the bar at the top; the title where it is short itself
    beside: bool = False  # figures stand side by side where there is room

    @property
    def figures(self) -> list[Figure]:
        return [part for part in self.parts if isinstance(part, Figure)]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A card about one model. The place of a model among those of a page is its colour everywhere on the page."""

    name: str
    title: str
    facts: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, kw_only=True)
class KeyNumber:
    """A finding as one number, its interval and one sentence."""

    name: str  # in a word or two
    value: str
    interval: str  # with what it rests on
    sentence: str
    model: str = ""  # whose colour it carries, if it speaks of one


@dataclass(frozen=True, kw_only=True)
class Page:
    title: str
    lede: str
    headline: str = ""
    evidence: str = ""  # what the headline rests on, beneath it
    first_figure: Figure | None = None  # beside the headline
    key_numbers: tuple[KeyNumber, ...] = ()
    findings: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    models: tuple[Model, ...] = ()
    places: Mapping[str, int] | None = None  # of models in the order of colours, where cards do not give it
    looks: tuple[tuple[str, Mapping[str, Any]], ...] = ()  # (model, cell of results/look.py): what the lens shows
    no_lens: Slot | None = None  # in the lens's place, where there are no looks
    sections: tuple[Section, ...] = ()
    made: tuple[tuple[str, str], ...] = ()  # where the numbers come from: versions, fingerprints, seeds
    source: str = ""  # the file or folder that everything here was read from

    @property
    def figures(self) -> list[Figure]:
        return [part for part in self.parts if isinstance(part, Figure)]

    @property
    def parts(self) -> tuple[Table | Figure | Slot | Commands, ...]:
        """Everything below the bar, the first figure first."""
        first = () if self.first_figure is None else (self.first_figure,)
        return (*first, *(part for section in self.sections for part in section.parts))


def study_table(
    name: str,
    title: str,
    lines: Sequence[Mapping[str, Any]],
    *,
    note: str = "",
    failed: Sequence[str] = (),
    folded: bool = False,
) -> Table:
    """Lines of a study (paper/study.py), as mappings: what, the paper's number, ours, its reading, n, seeds, interval, note."""
    rows: list[tuple[str | Value, ...]] = []
    for line in lines:
        label, reference, ours, interval, _, n, seeds = columns_of(dict(line))
        has_result = line["value"] is not None or bool(line["text"])
        remark = line["note"] if has_result else ""
        rows.append(
            (
                label_words(label),
                reference,
                Value(ours, strong=has_result),
                reading_words(line["reading"]),
                n,
                seeds,
                interval,
                remark,
            )
        )
    words, keys = (
        ("", "reading", "note"),
        ("label", "reference", "value", "reading", "n", "seeds", "interval", "unit", "text", "note"),
    )
    titles: tuple[str, ...] = ("", "reference", "ours", "reading", "n", "seeds", "95 % interval", "note")
    if not any(row[-1] for row in rows):
        titles, rows = titles[:-1], [row[:-1] for row in rows]
    return Table(
        name=name,
        title=title,
        columns=tuple(Column(title=t or "what", words=t in words) for t in titles),
        rows=tuple(tuple(v if isinstance(v, Value) else Value(v) for v in row) for row in rows),
        note=note,
        failed=tuple(failed),
        folded=folded,
        data={"ours" if key == "value" else key: column for key, column in columns_of_lines(lines, keys).items()},
    )


def column_groups(table: Table) -> list[tuple[str, str, int]]:
    """Headings over neighbouring columns: (group, model, how many); none where no column has a group."""
    groups: list[tuple[str, str, int]] = []
    for column in table.columns:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (*groups[-1][:2], groups[-1][2] + 1)
        else:
            groups.append((column.group, column.model, 1))
    return groups if any(group for group, *_ in groups) else []


def columns_of_lines(lines: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> dict[str, list[Any]]:
    """Columns of a CSV; an interval is two of them, its ends."""
    columns: dict[str, list[Any]] = {}
    for key in keys:
        if key == "interval":
            ends = [line[key] or (None, None) for line in lines]
            columns |= {"low": [low for low, _ in ends], "high": [high for _, high in ends]}
        else:
            columns[key] = [line[key] for line in lines]
    return columns
