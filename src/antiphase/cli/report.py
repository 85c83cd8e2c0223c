"""antiphase report"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from antiphase import files
from antiphase.config import InputError
from antiphase.scales import ScaleName

EXAMPLES = """\
  antiphase report runs/comparison
  antiphase report runs/comparison --out site"""


@dataclass(frozen=True, kw_only=True)
class Command:
    comparison: tyro.conf.Positional[Path]  # folder that antiphase compare wrote
    out: Path | None = None  # folder for index.html; report/ in the comparison's folder when not given
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        del scale  # a page has no size to choose
        return cls(comparison=tyro.MISSING)


def run(command: Command) -> dict[str, Any]:
    rows = command.comparison / "comparison.json"
    if not rows.is_file():
        raise InputError(f"{rows} does not exist: make it with antiphase compare --out {command.comparison}")
    comparison = files.read_json(rows, "models", "paired", "config", "data", "pictures", "differences", "denominators")
    files.require_folder(command.out or command.comparison / "report")
    from antiphase.report.page import write_report

    return {"page": str(write_report(comparison, command.out or command.comparison / "report"))}


def show(result: dict[str, Any]) -> None:
    print(result["page"])
