"""The one way to print a table on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from antiphase.console import stdout
from antiphase.tables import grid


def table(title: str, columns: Sequence[str], rows: Iterable[tuple[str, ...]]) -> None:
    stdout.print(title, style="bold", markup=False)
    stdout.print(grid(columns, rows))
