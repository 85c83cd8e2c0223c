"""What `antiphase attack` found: a table on the terminal; rows and a figure in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from antiphase import files
from antiphase.console import say, stdout
from antiphase.report.numbers import eps_of, number, with_interval
from antiphase.report.terminal.tables import table

Row = dict[str, Any]


def show_attacks(result: Row) -> None:
    first = result["cells"][0]
    what = (
        f"{first['model']} in {result['run']}: {first['attack']['kind']} on {first['data']['n']} {first['data']['name']} "
        f"test images, clean accuracy {with_interval(first['rates']['clean_accuracy'])}, 95 % intervals"
    )
    if "distances" in first:
        _show_distances(what, first)
    else:
        names = ("robust_accuracy", "asr_change", "asr_correct")
        rates = ((eps_of(c), *(with_interval(c["rates"][name]) for name in names)) for c in result["cells"])
        table(what, ("eps", *names), rates)
    for flag in sorted({flag for cell in result["cells"] for flag in cell["flags"]}):
        stdout.print(f"red flag: {flag}", style="red", markup=False)


def _show_distances(what: str, cell: Row) -> None:
    table(
        f"{what}; the smallest L2 that changes a prediction, where one was found, apart for images that are wrong already",
        ("images", "by", "found", "median", "p90", "p95", "p99", "mean", "max"),
        (
            (
                word,
                by,
                f"{row['found']['hits']} of {row['found']['n']}",
                _median(row["median"]),
                *(number(row[name]["value"]) for name in ("p90", "p95", "p99", "mean")),
                number(row["max"]),
            )
            for by, word, row in _rows(cell)
        ),
    )
    if "alone" in cell:
        shares = ", ".join(f"{name} {count}" for name, count in cell["stages"].items())
        stdout.print(f"the nearest was found by: {shares}", markup=False)
    stdout.print(
        f"{cell['forwards_per_image']:.0f} forwards and {cell['backwards_per_image']:.0f} backwards an image",
        markup=False,
    )


def _rows(cell: Row) -> Iterator[tuple[str, str, Row]]:
    """The correct first, with what each of several attacks found alone; apart from them, those wrong already."""
    for by, part in {cell["attack"]["kind"]: cell, **cell.get("alone", {})}.items():
        yield by, "correct", part["distances"]["correct"]
    if cell["distances"]["wrong"]["found"]["n"]:
        yield cell["attack"]["kind"], "wrong", cell["distances"]["wrong"]


def _median(found: Row) -> str:
    return number(found["value"]) + (f" [{', '.join(map(number, found['interval']))}]" if found["interval"] else "")


# ------------------------------------------------------------------------------------------------- a folder
def write_attacks(result: Row, folder: Path) -> None:
    """The result without its rows as JSON, a row an image and cell, and the figure of success."""
    from antiphase.report.figures.attack import draw_attacks
    from antiphase.report.figures.render import write_figures

    cells = [{k: v for k, v in cell.items() if k != "images"} for cell in result["cells"]]
    files.write_json(folder / "attacks.json", {**result, "cells": cells})
    files.write_lines(folder / "images.jsonl", (row for cell in result["cells"] for row in _images(cell)))
    write_figures(folder, draw_attacks(result))
    say(f"rows and figures: {folder}")


def _images(cell: Row) -> Iterator[Row]:
    columns = {name: values for name, values in cell["images"].items() if name != "changed_in_run"}
    runs = zip(*cell["images"]["changed_in_run"])
    for *values, changed in zip(*columns.values(), runs):
        yield {"run": cell["run"], "eps": cell["eps"], **dict(zip(columns, values)), "changed_in_run": list(changed)}
