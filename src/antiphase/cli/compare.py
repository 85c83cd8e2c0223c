"""antiphase compare"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from antiphase.cli.flags import OfRuns, TestImages
from antiphase.config import Budget
from antiphase.files import require_folder, require_run
from antiphase.results.questions import CompareConfig
from antiphase.scales import SCALES, ScaleName

if TYPE_CHECKING:
    from antiphase.data.imageset import ImageSet

EXAMPLES = """\
  antiphase compare runs/vit runs/diffvit --out runs/comparison --eps 4/255,8/255,16/255
  antiphase compare runs/c10-vit runs/c10-diffvit --out runs/c10 --scale cpu"""
TAKES = "two runs"


@dataclass(frozen=True, kw_only=True)
class Command(OfRuns):
    pair: tyro.conf.Positional[tuple[Path, Path]]  # folders of two trained runs
    out: Path  # folder for comparison.json and report/
    settings: CompareConfig = CompareConfig()

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        s = SCALES[scale]
        settings = CompareConfig(
            eps=tuple(map(Budget, s.eps)),
            steps=s.pgd_steps,
            restarts=s.pgd_restarts,
            draws=s.lipschitz_draws,
            probes=s.probes,
            max_probes=max(s.max_probes, s.probes),
            accuracy_floor=s.accuracy_floor,
        )
        return cls(pair=tyro.MISSING, out=tyro.MISSING, settings=settings, scale=scale, source=TestImages.at(scale))


def comparison(command: Command, images: ImageSet | None = None) -> dict[str, Any]:
    """The numbers alone; nothing is written but the answers in the folders of the runs."""
    first, second = (require_run(folder) for folder in command.pair)
    from antiphase.models.run import Run
    from antiphase.results.compare import compare
    from antiphase.runtime import pick_device

    runs = Run(first, command.source.prompts), Run(second, command.source.prompts)
    images = images or command.source.choose(runs[0].about, command.settings.seed)
    return {"scale": command.scale} | compare(runs, images, command.settings, device=pick_device(command.device))


def run(command: Command, images: ImageSet | None = None) -> dict[str, Any]:
    for folder in command.pair:
        require_run(folder)
    require_folder(command.out)
    result = comparison(command, images)
    from antiphase import files
    from antiphase.report.page import write_page
    from antiphase.report.pages.comparison import comparison_page

    files.write_json(command.out / "comparison.json", result)
    return result | {"page": str(write_page(comparison_page(result), command.out / "report"))}


def show(result: dict[str, Any]) -> None:
    from antiphase.report.terminal.compare import show_comparison

    show_comparison(result)
    if result.get("page"):
        print(f"\nThe whole story: {result['page']}")
