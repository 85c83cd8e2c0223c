"""antiphase look"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from antiphase.cli.flags import OfRuns, TestImages
from antiphase.config import Budget, InputError
from antiphase.files import require_run
from antiphase.results.questions import LookQuestion, budgets
from antiphase.scales import SCALES, ScaleName

if TYPE_CHECKING:
    from antiphase.data.imageset import ImageSet

EXAMPLES = """\
  antiphase look runs/vit runs/diffvit
  antiphase look runs/vit runs/diffvit --eps 4/255,8/255,16/255 --images 12"""
TAKES = "the folders of runs"
IMAGES = 8


@dataclass(frozen=True, kw_only=True)
class Command(OfRuns):
    runs: tyro.conf.Positional[tuple[Path, ...]]  # folders of trained runs, all shown the same images
    question: LookQuestion = LookQuestion()

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        question = LookQuestion(eps=tuple(map(Budget, SCALES[scale].eps)), probes=SCALES[scale].probes)
        return cls(runs=tyro.MISSING, question=question, scale=scale, source=TestImages(images=IMAGES))


def run(command: Command, images: ImageSet | None = None) -> dict[str, Any]:
    folders = [require_run(folder) for folder in command.runs]
    if not folders:
        raise InputError(
            "no run is named: give the folders of trained runs, as in antiphase look runs/vit runs/diffvit"
        )
    from antiphase.models.run import Run
    from antiphase.results.look import look
    from antiphase.runtime import pick_device

    device = pick_device(command.device)
    question = replace(command.question, eps=tuple(budgets(command.question.eps)))
    looks = []
    for folder in folders:
        one = Run(folder, command.source.prompts)
        shown_to = images or command.source.choose(one.about, question.seed)
        answer = look(one, shown_to, question, device=device).content
        shown = {name: answer[name] for name in ("data", "eps", "left_out")}
        looks.append({"run": str(folder), "title": answer["model"]} | shown)
    return {"looks": looks, "scale": command.scale}


def show(result: dict[str, Any]) -> None:
    from antiphase.console import stdout

    for look in result["looks"]:
        eps = ", ".join(str(Budget(e)) for e in look["eps"])
        stdout.print(
            f"{look['run']}: {look['data']['n']} {look['data']['name']} images, clean and at {eps}", markup=False
        )
    runs = " ".join(look["run"] for look in result["looks"])
    stdout.print(f"see them in a page: antiphase report {runs}", markup=False, soft_wrap=True)
