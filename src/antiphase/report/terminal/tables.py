"""The one way to print a table on the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from antiphase.console import stdout
from antiphase.tables import grid


def show_classes_by(sentences: Mapping[str, str]) -> None:
    """By which prompts CLIPs classify: of each run, by its name, a sentence (`Run.classes_by`)."""
    for name, sentence in sentences.items():
        stdout.print(f"{name}: {sentence}" if len(sentences) > 1 else sentence, markup=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[int] = ()) -> None:
    """Numbers are set from the right. If some columns are of `words`, only these are broken into lines where the terminal is
    narrow, and the first of them is set from the left."""
    if title:
        stdout.print(title, style="bold", markup=False)
    stdout.print(grid(columns, rows, words))
