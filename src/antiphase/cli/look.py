"""antiphase look"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from antiphase.cli.flags import OfRuns, TestImages
from antiphase.config import Budget, InputError, check_fields
from antiphase.files import require_run
from antiphase.results.config import budgets
from antiphase.scales import SCALES, ScaleName

EXAMPLES = """\
  antiphase look runs/vit runs/diffvit
  antiphase look runs/vit runs/diffvit --eps 4/255,8/255,16/255 --images 12"""
IMAGES = 8


@dataclass(frozen=True, kw_only=True)
class Command(OfRuns):
    runs: tyro.conf.Positional[tuple[Path, ...]]  # folders of trained runs, all shown the same images
    eps: tuple[Budget, ...] = ()  # Linf budgets, separated by commas
    probes: int = 32  # random directions per image for the alignment
    seed: int = 0  # of the subset, the random starts and the probes

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        chosen = SCALES[scale]
        eps = tuple(map(Budget, chosen.eps))
        return cls(runs=tyro.MISSING, eps=eps, probes=chosen.probes, scale=scale, source=TestImages(images=IMAGES))

    def __post_init__(self) -> None:
        check_fields(self, seed=0, probes=2)
        if any(budget <= 0 for budget in self.eps):
            raise InputError("--eps 0 is the clean image, which the lens shows anyway: give budgets above 0")


def run(command: Command) -> dict[str, Any]:
    folders = [require_run(folder) for folder in command.runs]
    if not folders:
        raise InputError(
            "no run is named: give the folders of trained runs, as in antiphase look runs/vit runs/diffvit"
        )
    from antiphase.models.run import Run
    from antiphase.results.look import look_cell
    from antiphase.runtime import pick_device

    device = pick_device(command.device)
    looked = []
    for folder in folders:
        one = Run(folder, command.source.prompts)
        images = command.source.choose(one.about, command.seed)
        common: dict[str, Any] = {"probes": command.probes, "seed": command.seed, "device": device}
        cell = look_cell(one, images, eps=budgets(command.eps), **common)
        looked.append({"run": str(folder), "title": cell["model"]} | {k: cell[k] for k in ("data", "eps", "left_out")})
    return {"looks": looked, "scale": command.scale}


def show(result: dict[str, Any]) -> None:
    from antiphase.console import stdout

    for look in result["looks"]:
        eps = ", ".join(str(Budget(e)) for e in look["eps"])
        stdout.print(
            f"{look['run']}: {look['data']['n']} {look['data']['name']} images, clean and at {eps}", markup=False
        )
    runs = " ".join(look["run"] for look in result["looks"])
    stdout.print(f"see them in a page: antiphase report {runs}", markup=False, soft_wrap=True)
