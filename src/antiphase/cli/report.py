"""antiphase report"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tyro

from antiphase import files
from antiphase.config import InputError
from antiphase.console import all_visible
from antiphase.data.catalog import check_name
from antiphase.paper.ledger import is_ledger
from antiphase.scales import ScaleName

EXAMPLES = """\
  antiphase report runs/comparison
  antiphase report runs/vit runs/diffvit --out site
  antiphase report runs/cpu --scale cpu"""
TAKES = "folders"


@dataclass(frozen=True, kw_only=True)
class Command:
    folders: tyro.conf.Positional[tuple[Path, ...]]  # a ledger of studies, a comparison, runs, or a folder of runs
    out: Path | None = None  # folder for index.html and data/; report/ beside what was read when not given
    scale: ScaleName | None = None  # of a ledger, which of its scales; the one with most rows when not given
    data: str | None = None  # of a ledger, in place of the scale's main data set
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        del scale  # what is there decides, unless it is named
        return cls(folders=tyro.MISSING)

    def __post_init__(self) -> None:
        if self.data is not None:
            check_name(self.data)


def run(command: Command) -> dict[str, Any]:
    first, *others = command.folders or (Path(),)
    if not others and (first / "comparison.json").is_file():
        from antiphase.report.pages.comparison import NEEDS, comparison_page

        stored = all_visible(files.read_json(first / "comparison.json", *NEEDS))
        with files.of_another_shape(first / "comparison.json"):
            return _written(command, first, lambda: comparison_page(stored, str(first / "comparison.json")))
    if not others and is_ledger(first):
        from antiphase.report.drawers import Drawers
        from antiphase.report.pages.ledger import ledger_page

        with files.of_another_shape(first), Drawers() as drawers:
            make = partial(ledger_page, first, command.scale, command.data, drawers.begin)
            return _written(command, first, make, drawers)
    runs = _runs(command.folders)
    from antiphase.report.pages.runs import runs_page

    with files.of_another_shape(first):
        return _written(command, first.parent if others else first, lambda: runs_page(runs))


def _written(command: Command, beside: Path, make: Any, draw: Any = None) -> dict[str, Any]:
    out = files.require_folder(command.out or beside / "report")
    from antiphase.report.figures import render
    from antiphase.report.page import write_page

    return {"page": str(write_page(make(), out, draw or render.draw))}


def _runs(folders: tuple[Path, ...]) -> list[Path]:
    """The runs that are named, each by its own folder or by one that holds it."""
    folders_of_runs = []
    for folder in folders or (Path(),):
        if (folder / "run.json").is_file():
            folders_of_runs.append(folder)
            continue
        inside = sorted(path.parent for path in folder.glob("*/run.json"))
        if not inside:
            raise InputError(
                f"{folder} holds nothing to report: it has no comparison.json (antiphase compare --out {folder} writes one), "
                "no rows of studies, and no run.json in it or one level below"
            )
        folders_of_runs += inside
    return folders_of_runs


def show(result: dict[str, Any]) -> None:
    print(result["page"])
