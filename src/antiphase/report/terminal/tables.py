"""The one way to print a table on the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rich import box
from rich.table import Table

from antiphase.console import stdout


def table(title: str, columns: Iterable[str], rows: Iterable[tuple[str, ...]], words: Collection[int] = ()) -> None:
    """Numbers are set from the right. If some columns are of `words`, only these are broken into lines where the terminal is
    narrow, and the first of them is set from the left."""
    if title:
        stdout.print(title, style="bold", markup=False)
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    for place, column in enumerate(columns):
        left = bool(words) and place == min(words)
        grid.add_column(column, justify="left" if left else "right", no_wrap=bool(words) and place not in words)
    for row in rows:
        grid.add_row(*row)
    stdout.print(grid)
