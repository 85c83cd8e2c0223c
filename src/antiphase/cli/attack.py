"""antiphase attack"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from antiphase.cli.flags import TestImages
from antiphase.config import Budget, check_fields
from antiphase.files import require_run
from antiphase.scales import SCALES, ScaleName
from antiphase.studies.config import pgd_grid

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
        check_fields(self, seed=0)
        pgd_grid(self.eps, self.steps, self.runs)  # refuses what an attack would refuse


def run(command: Command) -> dict[str, Any]:
    folder = require_run(command.run)
    from antiphase.models.checkpoint import Run
    from antiphase.runtime import pick_device
    from antiphase.studies.evaluate import attack_cell

    run, device = Run(folder), pick_device(command.device)
    images = command.source.choose(run.about, command.seed)
    attacks = pgd_grid(command.eps, command.steps, command.runs)
    cells = [attack_cell(run, images, attack, seed=command.seed, device=device) for attack in attacks]
    return {"run": str(folder), "scale": command.scale, "cells": cells}


def show(result: dict[str, Any]) -> None:
    from antiphase.report.tables import show_attacks

    show_attacks(result)
