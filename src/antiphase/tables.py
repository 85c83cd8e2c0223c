"""Numbers as text, tables of at most 80 columns, and objects that show themselves as a table, in `print` and in a notebook.

An object says what its rows are; how they look as text and as HTML is written here, once.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from antiphase.config import InputError
from antiphase.console import visible

WIDTH = 80  # characters of a line


# ------------------------------------------------------------------------------------------------- numbers as text


def number(value: float | None) -> str:
    """Three significant digits; a dash where there is no number."""
    return "-" if value is None else f"{value:.3g}"


def percent(rate: dict[str, Any], digits: int = 1) -> str:
    """A stored rate; one without any trials is undefined."""
    return "undefined" if rate["value"] is None else f"{100 * rate['value']:.{digits}f} %"


def interval_of(rate: dict[str, Any], digits: int = 1) -> str:
    """The interval of a stored rate in percent; its n where it has none."""
    if rate["interval"] is None:
        return f"n = {rate['n']}"
    low, high = (100 * v for v in rate["interval"])
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def with_interval(rate: dict[str, Any], digits: int = 1) -> str:
    return f"{percent(rate, digits)} {interval_of(rate, digits)}"


def size_text(shape: Iterable[int]) -> str:
    """3 x 32 x 32"""
    return " x ".join(map(str, shape))


def short_layer(layer: str) -> str:
    """model.blocks.3.attn -> blocks.3: what every layer's name has in common here is left out."""
    return layer.removeprefix("visual.").removeprefix("model.").removeprefix("vit.").removesuffix(".attn")


# ------------------------------------------------------------------------------------------------- tables


def grid(columns: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[int] = ()) -> RichTable:
    """The look of every table of ours on a terminal; columns without names have no head. Where some columns are of `words`, only
    these are broken into lines, and the first of them is set from the left."""
    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    table.show_header = any(columns)
    for place, column in enumerate(columns):
        left = place == min(words) if words else not table.show_header
        whole = bool(words) and place not in words
        table.add_column(Text(column), justify="left" if left else "right", no_wrap=whole, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


@dataclass(frozen=True)
class Table:
    """Texts that may come from anybody: they are made visible and, in HTML, escaped."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def text(self) -> str:
        """No line is longer than WIDTH; what is too long for its cell goes on below."""
        page = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_jupyter=False, legacy_windows=False)
        page.print(Text(visible(self.title)))
        if self.rows:
            page.print(grid(self.columns, [[visible(cell) for cell in row] for row in self.rows]))
        for note in self.notes:
            page.print(Text(visible(note)))
        assert isinstance(page.file, io.StringIO)
        return "\n".join(line.rstrip() for line in page.file.getvalue().rstrip().splitlines())

    def html(self) -> str:
        """One table element, its notes in the last row."""
        head = _cells("th", self.columns)
        body = "".join(_cells("td", row) for row in self.rows)
        notes = "".join(
            f'<tr><td colspan="{len(self.columns)}" style="text-align: left">{_safe(note)}</td></tr>'
            for note in self.notes
        )
        caption = f'<caption style="text-align: left">{_safe(self.title)}</caption>'
        return f"<table>{caption}<thead>{head}</thead><tbody>{body}</tbody><tfoot>{notes}</tfoot></table>"


def _cells(tag: str, texts: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_safe(text)}</{tag}>' for text in texts)}</tr>"


def _safe(text: str) -> str:
    return escape(visible(text))


# ------------------------------------------------------------------------------------------------- objects


class Shown:
    """An object that `print` and a notebook show as a table. No model is run and no image copied for it."""

    def table(self) -> Table:
        raise NotImplementedError

    def summary(self) -> Any:
        """Plain numbers, each rate with its interval and n."""
        raise NotImplementedError

    def records(self) -> list[dict[str, Any]]:
        """The rows of the data frame."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """A pandas.DataFrame of `records()`."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_pandas needs pandas, which is not installed: pip install pandas") from None
        return pandas.DataFrame(self.records())

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


S = TypeVar("S", bound=Shown)


class ShownList(list[S], Shown):
    """A list that is shown as one table, with a row for each of its objects."""

    def summary(self) -> list[Any]:
        """That of each."""
        return [each.summary() for each in self]

    def records(self) -> list[dict[str, Any]]:
        """Those of all, one after the other."""
        return [record for each in self for record in each.records()]
