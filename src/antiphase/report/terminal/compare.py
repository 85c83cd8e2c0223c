"""What `antiphase compare` and `antiphase demo` print: both models budget by budget, then the findings in sentences."""

from __future__ import annotations

from typing import Any

from antiphase.console import stdout
from antiphase.report.numbers import eps_of
from antiphase.report.sentences import findings
from antiphase.report.terminal.tables import table
from antiphase.tables import with_interval

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
