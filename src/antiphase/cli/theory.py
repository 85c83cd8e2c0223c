"""antiphase theory"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from antiphase.cli.flags import OfRuns, TestImages
from antiphase.files import require_run
from antiphase.scales import SCALES, ScaleName
from antiphase.theory.question import AuditQuestion

if TYPE_CHECKING:
    from antiphase.data.imageset import ImageSet

EXAMPLES = """\
  antiphase theory runs/diffvit --base runs/vit
  antiphase theory runs/diffvit --base runs/vit --images 64 --probes 32 --json"""
TAKES = "one run"


@dataclass(frozen=True, kw_only=True)
class Command(OfRuns):
    run: tyro.conf.Positional[Path]  # folder of a trained run with two branches
    base: Path | None = None  # folder of its softmax baseline; without it several statements are not evaluated
    question: AuditQuestion = AuditQuestion()

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        question = AuditQuestion(draws=SCALES[scale].lipschitz_draws, probes=SCALES[scale].probes)
        return cls(run=tyro.MISSING, question=question, scale=scale, source=TestImages.at(scale))


def run(command: Command, images: ImageSet | None = None) -> dict[str, Any]:
    folders = [require_run(f) for f in (command.run, command.base) if f is not None]
    from antiphase.models.run import Run
    from antiphase.results.theory import audited, theory
    from antiphase.runtime import pick_device

    run, base = (*(Run(folder, command.source.prompts) for folder in folders), None)[:2]
    assert run is not None
    images = images or command.source.choose(run.about, command.question.seed)
    answer = theory(run, images, command.question, base=base, device=pick_device(command.device))
    where = {"run": str(folders[0]), "base": None if base is None else str(folders[1])}
    return {**audited(answer.content), **where, "scale": command.scale}


def show(result: dict[str, Any]) -> None:
    from antiphase.report.terminal.theory import show_audit

    show_audit(result)
