"""The one way to print a table on the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.table import Table

from antiphase.console import stdout


def table(title: str, columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> None:
    stdout.print(title, style="bold", markup=False)
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    for column in columns:
        grid.add_column(column, justify="right")
    for row in rows:
        grid.add_row(*row)
    stdout.print(grid)
