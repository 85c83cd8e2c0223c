"""Rows in, tables on the terminal out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.table import Table

from antiphase.console import stdout
from antiphase.data.tolerance import ALLOWABLE
from antiphase.report.numbers import eps_of, with_interval
from antiphase.report.sentences import findings

Row = dict[str, Any]


def show_comparison(result: Row) -> None:
    sides, rows = result["models"], result["paired"]
    both = rows[0]["both_right"]["n"]
    table(
        f"robust accuracy under PGD, n = {result['data']['n']}, 95 % intervals; test on the {both} both classify correctly",
        ("eps", *(side["name"] for side in sides), "McNemar p (Holm)"),
        (
            (
                eps_of(pair),
                *(with_interval(cell["rates"]["robust_accuracy"]) for cell in cells),
                f"{pair['both_right']['p_holm']:.2g}",
            )
            for pair, *cells in zip(rows, *(side["attacks"] for side in sides))
        ),
    )
    for sentence in findings(result):
        stdout.print(f"- {sentence}", markup=False)


def show_evaluation(result: Row) -> None:
    """Ours, and the published number where the model is a published one; below, what each number is a share of."""
    rows, beside = result["rows"], result["pretraining"] is not None
    table(
        f"{result['title']} in {result['run']}, 95 % intervals"
        + (f"; published: B/16 trained on {result['pretraining']}" if beside else ""),
        ("data", "measure", "value", "n", "chance", *["published"] * beside),
        (
            (
                row["data"],
                row["name"],
                with_interval(row),
                f"{row['n']:,}",
                "-" if row["chance"] is None else f"{100 * row['chance']:.3g} %",
                *[_published(row["published"])] * beside,
            )
            for row in rows
        ),
    )
    for row in rows:
        stdout.print(f"- {row['name']} on {row['data']}: {row['of']}", markup=False, soft_wrap=True)
    for cell in result["cells"]:
        for kind, n in cell["settings"].get("skipped", {}).items():
            stdout.print(f"left out of {cell['data']['name']}: {n:,} {ALLOWABLE[kind]}", markup=False, soft_wrap=True)


def _published(found: Row | None) -> str:
    if found is None:
        return "-"
    return f"{found['value']:.1f} %" if "value" in found else f"CLIP {found['gain']:+.1f}"


def table(title: str, columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> None:
    stdout.print(title, style="bold", markup=False)
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    for column in columns:
        grid.add_column(column, justify="right")
    for row in rows:
        grid.add_row(*row)
    stdout.print(grid)
