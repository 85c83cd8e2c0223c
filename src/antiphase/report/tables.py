"""Rows in, tables on the terminal out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table

from antiphase.config import Budget
from antiphase.console import stdout
from antiphase.report.findings import findings, with_interval

Row = dict[str, Any]


def show_attacks(result: Row) -> None:
    first, names = result["cells"][0], ("robust_accuracy", "asr_change", "asr_correct")
    flags = sorted({flag for cell in result["cells"] for flag in cell["flags"]})
    _table(
        f"{first['model']} in {result['run']}: PGD on {first['data']['n']} {first['data']['name']} test images, "
        f"clean accuracy {with_interval(first['rates']['clean_accuracy'])}, 95 % intervals",
        ("eps", *names),
        ((_eps(c), *(with_interval(c["rates"][name]) for name in names)) for c in result["cells"]),
    )
    for flag in flags:
        stdout.print(f"red flag: {flag}", style="red", markup=False)


def show_measures(result: Row) -> None:
    if "lipschitz" in result:
        cell = result["lipschitz"]
        _table(
            f"local Lipschitz of the maps, n = {cell['data']['n']} (sampled: a lower bound)",
            ("layer", "max", "s.e.", "per head", "max / ||A||", "mean", "rms"),
            (
                (r["layer"], *(_number(r[k]) for k in ("max", "max_se", "per_head_max", "relative_max", "mean", "rms")))
                for r in cell["layers"]
            ),
        )
    if "alignment" in result:
        cell = result["alignment"]
        _table(
            f"branch alignment, n = {cell['data']['n']} images (shares of (image, head) pairs, 95 % intervals)",
            ("layer", "lambda", "cos", "amplification", "cos < 0 if decided", "undecided", "amplifying"),
            (
                (
                    r["layer"],
                    *(_number(r[k]) for k in ("lambda", "cos", "amplification")),
                    *(with_interval(r[k]) for k in ("negative", "undecided", "amplifying")),
                )
                for r in cell["layers"]
            ),
        )
    if "lambda" in result:
        keys = ("lambda", "lambda_init", "drift")
        _table("lambda", ("layer", *keys), ((r["layer"], *(_number(r[k]) for k in keys)) for r in result["lambda"]))


def show_comparison(result: Row) -> None:
    sides, rows = result["models"], result["paired"]
    both = rows[0]["both_right"]["n"]
    _table(
        f"robust accuracy under PGD, n = {result['data']['n']}, 95 % intervals; test on the {both} both classify correctly",
        ("eps", *(side["name"] for side in sides), "McNemar p (Holm)"),
        (
            (
                _eps(pair),
                *(with_interval(cell["rates"]["robust_accuracy"]) for cell in cells),
                f"{pair['both_right']['p_holm']:.2g}",
            )
            for pair, *cells in zip(rows, *(side["attacks"] for side in sides))
        ),
    )
    for sentence in findings(result):
        stdout.print(f"- {sentence}", markup=False)


def _table(title: str, columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> None:
    stdout.print(title, style="bold", markup=False)
    table = Table()
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    stdout.print(table)


def _eps(row: Row) -> str:
    return str(Budget(row["eps"]))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
