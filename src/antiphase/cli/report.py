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
  antiphase report runs/vit runs/diffvit --out site"""


@dataclass(frozen=True, kw_only=True)
class Command:
    folders: tyro.conf.Positional[
        tuple[Path, ...]
    ]  # a folder that antiphase compare wrote, or runs, or a folder of runs
    out: Path | None = None  # folder for index.html and its data; report/ beside what was read when not given
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        del scale  # a page has no size to choose
        return cls(folders=tyro.MISSING)


def run(command: Command) -> dict[str, Any]:
    first, *others = command.folders
    runs = [] if (first / "comparison.json").is_file() and not others else _runs(command.folders)
    beside = first.parent if runs and first in runs and others else first
    out = files.require_folder(command.out or beside / "report")
    from antiphase.report.page import write_page

    if runs:
        from antiphase.report.runs import runs_page

        return {"page": str(write_page(runs_page(runs), out))}
    from antiphase.report.comparison import NEEDS, comparison_page

    path = first / "comparison.json"
    return {"page": str(write_page(comparison_page(files.read_json(path, *NEEDS), str(path)), out))}


def _runs(folders: tuple[Path, ...]) -> list[Path]:
    """The runs that are named, each by its own folder or by one that holds it."""
    found = []
    for folder in folders:
        if (folder / "run.json").is_file():
            found.append(folder)
            continue
        inside = sorted(path.parent for path in folder.glob("*/run.json"))
        if not inside:
            raise InputError(
                f"{folder} holds nothing to report: it has no comparison.json (antiphase compare --out {folder} writes one) "
                "and no run.json in it or one level below"
            )
        found += inside
    return found


def show(result: dict[str, Any]) -> None:
    print(result["page"])
