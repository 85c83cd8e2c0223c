"""What `antiphase eval` prints: our numbers, beside the published ones where the model is a published one."""

from __future__ import annotations

from typing import Any

from antiphase.console import stdout
from antiphase.data.tolerance import ALLOWABLE
from antiphase.report.terminal.tables import table
from antiphase.tables import with_interval

Row = dict[str, Any]


def show_evaluation(result: Row) -> None:
    """Ours, and the published number where the model is a published one; below, what each number is a share of."""
    rows, is_published = result["rows"], result["pretraining"] is not None
    table(
        f"{result['title']} in {result['run']}, 95 % intervals"
        + (f"; published: B/16 trained on {result['pretraining']}" if is_published else ""),
        ("data", "measure", "value", "n", "chance", *["published"] * is_published),
        (
            (
                row["data"],
                row["name"],
                with_interval(row),
                f"{row['n']:,}",
                "-" if row["chance"] is None else f"{100 * row['chance']:.3g} %",
                *[_published(row["published"])] * is_published,
            )
            for row in rows
        ),
    )
    for row in rows:
        stdout.print(f"- {row['name']} on {row['data']}: {row['of']}", markup=False, soft_wrap=True)
    for cell in result["cells"]:
        for kind, n in cell["settings"].get("skipped", {}).items():
            stdout.print(f"left out of {cell['data']['name']}: {n:,} {ALLOWABLE[kind]}", markup=False, soft_wrap=True)


def _published(number: Row | None) -> str:
    if number is None:
        return "-"
    return f"{number['value']:.1f} %" if "value" in number else f"CLIP {number['gain']:+.1f}"
