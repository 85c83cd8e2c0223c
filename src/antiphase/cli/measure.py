"""antiphase measure"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from antiphase.cli.dispatch import existing_run
from antiphase.cli.flags import DataFlags, at_least
from antiphase.config import InputError
from antiphase.scales import SCALES, ScaleName

MEASURES = ("lipschitz", "alignment", "lambda")
EXAMPLES = """\
  antiphase measure runs/diffvit
  antiphase measure runs/diffvit --measures alignment,lambda --images 256 --probes 64 --json"""


@dataclass(frozen=True, kw_only=True)
class Command:
    run: tyro.conf.Positional[Path]  # folder of a trained run
    measures: str = "lipschitz,alignment,lambda"  # which, separated by commas
    images: int | None = None  # class-balanced subset of the test split; None: all of it
    draws: int = 32  # random perturbations per image for the Lipschitz estimate
    probes: int = 32  # random directions per image for the alignment
    seed: int = 0
    scale: ScaleName = "smoke"  # sizes of everything here, where a flag does not say otherwise
    source: DataFlags = DataFlags()
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: str) -> Command:
        s = SCALES[scale]
        return cls(run=tyro.MISSING, images=s.eval_images, draws=s.lipschitz_draws, probes=s.probes, scale=scale, source=DataFlags(data=s.data))  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        at_least(0, seed=self.seed)
        at_least(1, images=self.images, draws=self.draws)
        at_least(2, probes=self.probes)
        for name in self.measures.split(","):
            if name not in MEASURES:
                raise InputError(f"measure {name!r} is not known: it takes {', '.join(MEASURES)}")


def run(command: Command) -> dict[str, Any]:
    folder = existing_run(command.run)
    from antiphase.models.checkpoint import Run
    from antiphase.runtime import pick_device
    from antiphase.studies.evaluate import alignment_cell, lambda_rows, lipschitz_cell

    run, device, wanted = Run(folder), pick_device(command.device), command.measures.split(",")
    images = command.source.load("test")
    images = images.subset(min(command.images or len(images), len(images)), command.seed)
    result: dict[str, Any] = {"run": str(folder), "title": run.config.title}
    if "lipschitz" in wanted:
        result["lipschitz"] = lipschitz_cell(run, images, draws=command.draws, seed=command.seed, device=device)
    if "alignment" in wanted and (run.config.is_differential or wanted == ["alignment"]):
        result["alignment"] = alignment_cell(run, images, probes=command.probes, seed=command.seed, device=device)
    if "lambda" in wanted:
        result["lambda"] = lambda_rows(run)
    return result


def show(result: dict[str, Any]) -> None:
    from rich.table import Table

    from antiphase.console import stdout
    from antiphase.report.findings import with_interval

    def table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
        drawn = Table(title=title, title_justify="left")
        for column in columns:
            drawn.add_column(column, justify="right")
        for row in rows:
            drawn.add_row(*row)
        stdout.print(drawn)

    if "lipschitz" in result:
        cell = result["lipschitz"]
        table(
            f"local Lipschitz of the maps, n = {cell['data']['n']} (sampled: a lower bound)",
            ("layer", "max", "s.e.", "mean", "rms", "max / ||A||"),
            [
                (r["layer"], f"{r['max']:.4f}", "-" if r["max_se"] is None else f"{r['max_se']:.4f}", f"{r['mean']:.4f}", f"{r['rms']:.4f}", f"{r['relative_max']:.4f}")
                for r in cell["layers"]
            ],
        )
    if "alignment" in result:
        cell = result["alignment"]
        table(
            f"branch alignment, n = {cell['data']['n']} images (share of (image, head) pairs, 95 % intervals)",
            ("layer", "cos", "rho", "lambda", "cos < 0", "undecided", "amplification"),
            [
                (r["layer"], f"{r['cos']:+.3f}", f"{r['rho']:.3f}", f"{r['lambda']:.3f}", with_interval(r["negative"]), with_interval(r["undecided"]), f"{r['amplification']:.3f}")
                for r in cell["layers"]
            ],
        )
    if result.get("lambda"):
        table(
            "lambda",
            ("layer", "lambda", "lambda_init", "drift"),
            [(r["layer"], f"{r['lambda']:.4f}", f"{r['lambda_init']:.4f}", f"{r['drift']:+.4f}") for r in result["lambda"]],
        )
    if "alignment" not in result and "lambda" in result and not result["lambda"]:
        print(f"{result['title']} has one branch in every layer: no alignment and no lambda to report")
