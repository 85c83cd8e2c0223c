"""antiphase compare"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from antiphase.cli.dispatch import existing_run
from antiphase.cli.flags import DataFlags, at_least
from antiphase.config import Budget
from antiphase.scales import SCALES, ScaleName
from antiphase.studies.config import CompareConfig

EXAMPLES = """\
  antiphase compare runs/vit runs/diffvit --out runs/comparison --eps 4/255 8/255 16/255
  antiphase compare runs/c10-vit runs/c10-diffvit --out runs/c10 --scale cpu"""


@dataclass(frozen=True, kw_only=True)
class Command:
    runs_: tyro.conf.Positional[tuple[Path, Path]]  # folders of two trained runs
    out: Path  # folder for comparison.json
    settings: CompareConfig = CompareConfig(eps=(Budget("1/255"),))
    images: int | None = None  # class-balanced subset of the test split; None: all of it
    scale: ScaleName = "smoke"  # sizes of everything here, where a flag does not say otherwise
    source: DataFlags = DataFlags()
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: str) -> Command:
        s = SCALES[scale]
        grid = ("2/255", "4/255", "8/255", "16/255", "32/255") if s.data == "digits" else ("0.25/255", "0.5/255", "1/255", "2/255", "4/255")
        settings = CompareConfig(eps=tuple(map(Budget, grid)), steps=s.pgd_steps, runs=s.pgd_runs, draws=s.lipschitz_draws, probes=s.probes)
        return cls(runs_=tyro.MISSING, out=tyro.MISSING, settings=settings, images=s.eval_images, scale=scale, source=DataFlags(data=s.data))  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        at_least(1, images=self.images)


def run(command: Command) -> dict[str, Any]:
    folders = [existing_run(folder) for folder in command.runs_]
    from antiphase import files
    from antiphase.models.checkpoint import Run
    from antiphase.runtime import pick_device
    from antiphase.studies.compare import compare

    images = command.source.load("test")
    images = images.subset(min(command.images or len(images), len(images)), command.settings.seed)
    result = compare(*map(Run, folders), images, command.settings, device=pick_device(command.device))
    files.write_json(command.out / "comparison.json", result)
    return result


def show(result: dict[str, Any]) -> None:
    from antiphase.console import stdout
    from antiphase.report.findings import findings

    for sentence in findings(result):
        stdout.print(f"- {sentence}", markup=False)
