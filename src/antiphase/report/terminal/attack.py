"""What `antiphase attack` prints: rates for each budget, or the distances of the nearest adversarial images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphase.console import stdout
from antiphase.report.numbers import attack_name, attack_text, eps_of
from antiphase.report.terminal.tables import table
from antiphase.tables import number, with_interval

Row = dict[str, Any]


def show_attacks(result: Row) -> None:
    first = result["cells"][0]
    title = (
        f"{first['model']} in {result['run']}: {attack_text(first['attack'])} on {first['data']['n']} {first['data']['name']} "
        f"test images, clean accuracy {with_interval(first['rates']['clean_accuracy'])}, 95 % intervals"
    )
    if "distances" in first:
        _show_distances(title, first)
    else:
        names = ("robust_accuracy", "asr_change", "asr_correct")
        rates = ((eps_of(c), *(with_interval(c["rates"][name]) for name in names)) for c in result["cells"])
        table(title, ("eps", *names), rates)
    if "transfer" in result:
        _show_transfer(result)
    for flag in sorted({flag for cell in result["cells"] for flag in cell["flags"]}):
        stdout.print(f"red flag: {flag}", style="red", markup=False)


def _show_transfer(result: Row) -> None:
    """What the images made for this run do to others."""
    names = ("clean_accuracy", "transfer_change", "transfer_correct", "transfer_fooled")
    words = ("clean accuracy", "changed, of all", "of its correct images", "of those that fooled the source")
    table(
        f"images made for {result['run']}, shown to other runs, n = {result['transfer'][0]['data']['n']}, 95 % intervals",
        ("shown to", "eps", *words),
        (
            (c["target"]["run"], eps_of(c), *(with_interval(c["rates"][name]) for name in names))
            for c in result["transfer"]
        ),
    )


def _show_distances(title: str, cell: Row) -> None:
    table(
        f"{title}; the smallest L2 that changes a prediction, where one was found, apart for images that are wrong already",
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
    for by, part in {attack_name(cell["attack"]): cell, **cell.get("alone", {})}.items():
        yield by, "correct", part["distances"]["correct"]
    if cell["distances"]["wrong"]["found"]["n"]:
        yield attack_name(cell["attack"]), "wrong", cell["distances"]["wrong"]


def _median(estimate: Row) -> str:
    ends = f" [{', '.join(map(number, estimate['interval']))}]" if estimate["interval"] else ""
    return number(estimate["value"]) + ends
