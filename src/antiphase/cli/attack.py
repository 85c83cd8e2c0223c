"""antiphase attack"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from antiphase.attacks import PGD, Linf
from antiphase.cli.dispatch import existing_run
from antiphase.cli.flags import DataFlags, at_least
from antiphase.config import Budget
from antiphase.scales import SCALES, ScaleName

EXAMPLES = """\
  antiphase attack runs/diffvit --eps 4/255 8/255
  antiphase attack runs/c10 --scale cpu --eps 0.25/255 1/255 --images 256 --json"""


@dataclass(frozen=True, kw_only=True)
class Command:
    run: tyro.conf.Positional[Path]  # folder of a trained run
    eps: tuple[Budget, ...] = (Budget("1/255"), Budget("2/255"), Budget("4/255"), Budget("8/255"))  # Linf budgets, "4/255" or 0.0157
    steps: int = 20  # of PGD
    runs: int = 1  # independent random starts
    images: int | None = None  # class-balanced subset of the test split; None: all of it
    seed: int = 0
    scale: ScaleName = "smoke"  # sizes of everything here, where a flag does not say otherwise
    source: DataFlags = DataFlags()
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: str) -> Command:
        s = SCALES[scale]
        return cls(run=tyro.MISSING, steps=s.pgd_steps, runs=s.pgd_runs, images=s.eval_images, scale=scale, source=DataFlags(data=s.data))  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        at_least(0, seed=self.seed)
        at_least(1, images=self.images)

    @property
    def attacks(self) -> list[PGD]:
        return [PGD(within=Linf(eps), steps=self.steps, runs=self.runs) for eps in sorted(self.eps)]


def run(command: Command) -> dict[str, Any]:
    folder, attacks = existing_run(command.run), command.attacks
    from antiphase.models.checkpoint import Run
    from antiphase.runtime import pick_device
    from antiphase.studies.evaluate import attack_cell

    device = pick_device(command.device)
    images = command.source.load("test")
    images = images.subset(min(command.images or len(images), len(images)), command.seed)
    return {"run": str(folder), "cells": [attack_cell(Run(folder), images, a, seed=command.seed, device=device) for a in attacks]}


def show(result: dict[str, Any]) -> None:
    from rich.table import Table

    from antiphase.console import stdout
    from antiphase.report.findings import with_interval

    first = result["cells"][0]
    n = first["data"]["n"]
    table = Table(title=f"{first['model']} {result['run']}: PGD, {n} {first['data']['name']} test images, 95 % intervals", title_justify="left")
    names = ("clean_accuracy", "robust_accuracy", "asr_change", "asr_correct")
    for column in ("eps", *names, "forwards/image"):
        table.add_column(column, justify="right")
    for cell in result["cells"]:
        rates = [with_interval(cell["rates"][name]) for name in names]
        table.add_row(str(Budget(cell["eps"])), *rates, f"{cell['forwards_per_image']:.1f}")
    stdout.print(table)
