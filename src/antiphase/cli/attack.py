"""antiphase attack"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from antiphase.attacks import PGD, Linf
from antiphase.cli.flags import TestImages, at_least, existing_run
from antiphase.config import Budget
from antiphase.scales import SCALES, ScaleName

EXAMPLES = """\
  antiphase attack runs/diffvit --eps 4/255,8/255
  antiphase attack runs/c10 --scale cpu --eps 0.25/255,1/255 --images 256 --json"""


@dataclass(frozen=True, kw_only=True)
class Command:
    run: tyro.conf.Positional[Path]  # folder of a trained run
    eps: tuple[Budget, ...] = ()  # Linf budgets, separated by commas: 4/255,8/255
    steps: int = 20  # of PGD
    runs: int = 1  # independent random starts
    seed: int = 0
    scale: ScaleName = "smoke"  # sizes of everything here, where a flag does not say otherwise
    source: TestImages = TestImages()
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        s, images = SCALES[scale], TestImages.at(scale)
        eps = tuple(map(Budget, s.eps))
        return cls(run=tyro.MISSING, eps=eps, steps=s.pgd_steps, runs=s.pgd_runs, scale=scale, source=images)

    def __post_init__(self) -> None:
        at_least(0, seed=self.seed)
        at_least(1, **{"number of budgets": len(self.eps)})
        self.attacks()  # refuses what an attack would refuse

    def attacks(self) -> list[PGD]:
        return [PGD(within=Linf(eps), steps=self.steps, runs=self.runs) for eps in sorted(self.eps)]


def run(command: Command) -> dict[str, Any]:
    folder = existing_run(command.run)
    from antiphase.models.checkpoint import Run
    from antiphase.runtime import pick_device
    from antiphase.studies.evaluate import attack_cell

    run, device, images = Run(folder), pick_device(command.device), command.source.choose(command.seed)
    cells = [attack_cell(run, images, attack, seed=command.seed, device=device) for attack in command.attacks()]
    return {"run": str(folder), "cells": cells}


def show(result: dict[str, Any]) -> None:
    from antiphase.report.tables import show_attacks

    show_attacks(result)
