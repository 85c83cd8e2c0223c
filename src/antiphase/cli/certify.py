"""antiphase certify"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from antiphase.cli.flags import OfRuns, TestImages
from antiphase.config import InputError
from antiphase.files import require_run
from antiphase.results.questions import CertifyConfig
from antiphase.scales import SCALES, ScaleName

if TYPE_CHECKING:
    from antiphase.data.imageset import ImageSet

EXAMPLES = """\
  antiphase certify runs/diffvit
  antiphase certify runs/diffvit runs/vit --sigma 0.12,0.25 --samples 10000 --images 200
  antiphase certify runs/vit --alpha 0.01 --attack-images 0 --json"""
TAKES = "one run or two"


@dataclass(frozen=True, kw_only=True)
class Command(OfRuns):
    runs: tyro.conf.Positional[tuple[Path, ...]]  # folder of a trained run, or of two on the same images
    settings: CertifyConfig = CertifyConfig()

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        s = SCALES[scale]
        settings = CertifyConfig(samples=s.certify_samples)
        return cls(runs=tyro.MISSING, settings=settings, scale=scale, source=TestImages(images=s.certify_images))


def run(command: Command, images: ImageSet | None = None) -> dict[str, Any]:
    folders = [require_run(folder) for folder in command.runs]
    if not 1 <= len(folders) <= 2:
        raise InputError(
            f"certify takes one run or two, got {len(folders)}: as in antiphase certify runs/diffvit runs/vit"
        )
    from antiphase.models.run import Run
    from antiphase.results.certify import certify
    from antiphase.runtime import pick_device

    runs = [Run(folder, command.source.prompts) for folder in folders]
    images = images or command.source.choose(runs[0].about, command.settings.seed)
    return {"scale": command.scale} | certify(runs, images, command.settings, device=pick_device(command.device))


def show(result: dict[str, Any]) -> None:
    from antiphase.report.terminal.certify import show_certificates

    show_certificates(result)
