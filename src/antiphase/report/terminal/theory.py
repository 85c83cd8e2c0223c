"""What `antiphase theory` prints: one block per statement, readable at any width."""

from __future__ import annotations

from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from antiphase.console import stdout
from antiphase.tables import with_interval

COLOURS = {"holds": "green", "identity": "green", "violated": "red", "postulated;": "yellow", "not": "dim"}


def show_audit(result: dict[str, Any]) -> None:
    base = "no baseline" if result["baseline"] is None else f"baseline {result['base']}"
    _print(
        f"{result['model']} in {result['run']}, {base}: the theory on {result['data']['n']} {result['data']['name']} test "
        f"images, {result['probes']} probes (95 % intervals; docs/theory.md explains each row)",
        "bold",
    )
    if result["differences"]:
        _print(f"the two were made differently: {'; '.join(result['differences'])}", "yellow")
    for row in result["rows"]:
        stdout.print()
        colour = COLOURS[row["verdict"].split()[0]]
        stdout.print(Text.assemble((row["name"], "bold"), ": ", (row["verdict"], f"bold {colour}")))
        block = Table.grid(padding=(0, 2, 0, 0))
        block.add_row("says", Text(row["statement"]))
        block.add_row("right", Text(row["corrected"]))
        stdout.print(Padding(block, (0, 0, 0, 2), expand=False))
        if row["figures"]:
            stdout.print(Padding(_figures(row["figures"]), (0, 0, 0, 9), expand=False))


def _print(text: str, style: str) -> None:
    stdout.print(text, style=style, markup=False)


def _figures(figures: dict[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, value in figures.items():
        grid.add_row(Text(name, style="dim"), Text(_value(value)))
    return grid


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{with_interval(value)} n = {value['n']}" if value["n"] else "- n = 0"
    if isinstance(value, float):
        return f"{value:.3g}"
    return "-" if value is None else str(value)
