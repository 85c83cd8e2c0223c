"""antiphase measure"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from antiphase.cli.flags import OfRuns, TestImages
from antiphase.config import InputError, check_fields
from antiphase.files import require_run
from antiphase.scales import SCALES, ScaleName

MEASURES = ("lipschitz", "alignment", "lambda")
EXAMPLES = """\
  antiphase measure runs/diffvit
  antiphase measure runs/diffvit --measures alignment,lambda --images 256 --probes 64 --json"""


@dataclass(frozen=True, kw_only=True)
class Command(OfRuns):
    run: tyro.conf.Positional[Path]  # folder of a trained run
    measures: str | None = None  # lipschitz, alignment, lambda, separated by commas; None: all that the model has
    draws: int = 32  # random perturbations per image for the Lipschitz estimate
    probes: int = 32  # random directions per image for the alignment
    seed: int = 0  # of the subset and of everything drawn

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        draws, probes = SCALES[scale].lipschitz_draws, SCALES[scale].probes
        return cls(run=tyro.MISSING, draws=draws, probes=probes, scale=scale, source=TestImages.at(scale))

    def __post_init__(self) -> None:
        check_fields(self, seed=0, draws=1, probes=2)
        for name in self.measures.split(",") if self.measures is not None else ():
            if name not in MEASURES:
                raise InputError(f"measure {name!r} is not known: it takes {', '.join(MEASURES)}")


def run(command: Command) -> dict[str, Any]:
    folder = require_run(command.run)
    from antiphase.models.checkpoint import Run
    from antiphase.runtime import pick_device
    from antiphase.studies.measured import alignment_cell, lambda_rows, lipschitz_cell

    run = Run(folder)
    images = command.source.choose(run.about, command.seed)
    has = MEASURES if run.config.is_differential else ("lipschitz",)
    wanted = has if command.measures is None else command.measures.split(",")
    common: dict[str, Any] = {"seed": command.seed, "device": pick_device(command.device)}
    result: dict[str, Any] = {"run": str(folder), "title": run.config.title, "scale": command.scale}
    if "lipschitz" in wanted:
        result["lipschitz"] = lipschitz_cell(run, images, draws=command.draws, **common)
    if "alignment" in wanted:
        result["alignment"] = alignment_cell(run, images, probes=command.probes, **common)
    if "lambda" in wanted:
        result["lambda"] = lambda_rows(run)
    return result


def show(result: dict[str, Any]) -> None:
    from antiphase.report.tables import show_measures

    show_measures(result)
