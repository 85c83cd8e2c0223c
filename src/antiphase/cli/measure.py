"""antiphase measure"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from antiphase.cli.flags import OfRuns, TestImages
from antiphase.config import Budget, InputError, check_fields
from antiphase.files import require_folder, require_run
from antiphase.scales import SCALES, ScaleName

MEASURES = ("lipschitz", "alignment", "cancellation", "lambda", "correlation")
OF_TWO = ("alignment", "lambda")  # these need a model with two branches
OF_PAIRS = ("cancellation", "correlation")  # and these at least two heads
LEVELS = ("maps", "branch", "block")
PAPER_EPS = Budget("8/255")
ESTIMATORS = ("sample", "power", "ascent")
EXAMPLES = """\
  antiphase measure runs/diffvit
  antiphase measure runs/diffvit --measures cancellation,correlation --eps 4/255
  antiphase measure runs/diffvit --measures alignment --readings R1,R3,R8 --base runs/vit --out runs/lens
  antiphase measure runs/vit --measures lipschitz --estimators sample,power,ascent --levels maps,block --images 64 --json"""


@dataclass(frozen=True, kw_only=True)
class Command(OfRuns):
    run: tyro.conf.Positional[Path]  # folder of a trained run
    measures: str | None = None  # lipschitz, alignment, cancellation, lambda, correlation; None: all that the model has
    base: Path | None = None  # a softmax run: for gamma, and its head pairs as a control of the alignment
    draws: int = 32  # random perturbations per image for the Lipschitz estimate
    estimators: str = "sample"  # of local Lipschitz: sample, power, ascent; the last two come together
    levels: str = "maps"  # where it is measured: maps, branch, block
    probes: int = 32  # random directions per image for the alignment
    max_probes: int | None = None  # doubled up to so many while a sign is undecided; None: never
    readings: str = "R1"  # of alignment: R1 to R8 (R6 as R6-entropy, ...), separated by commas
    eps: Budget = PAPER_EPS  # size of the perturbations whose cancellation is measured
    perturbations: str = "sign,scrambled,fgsm,pgd"  # for cancellation: also uniform, gaussian, blur, jpeg50, ...
    out: Path | None = None  # folder for the raw rows and a figure of each measure
    rows: Literal["parquet", "jsonl"] = "parquet"  # how --out writes rows
    seed: int = 0  # of the subset and of everything drawn

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        chosen = SCALES[scale]
        return cls(
            run=tyro.MISSING,
            draws=chosen.lipschitz_draws,
            probes=chosen.probes,
            max_probes=chosen.max_probes,
            scale=scale,
            source=TestImages.at(scale),
        )

    def __post_init__(self) -> None:
        check_fields(self, seed=0, draws=1, probes=2)
        if self.max_probes is not None and self.max_probes < self.probes:
            raise InputError(f"--max-probes {self.max_probes} is below --probes {self.probes}: raise it")
        if self.eps <= 0:
            raise InputError(
                "--eps 0 changes nothing, so there is nothing to cancel: give a size above 0, such as 8/255"
            )
        for flag, known in (("measures", MEASURES), ("estimators", ESTIMATORS), ("levels", LEVELS)):
            for name in self.words(flag):
                if name not in known:
                    raise InputError(f"{flag[:-1]} {name!r} is not known: --{flag} takes {', '.join(known)}")

    def words(self, flag: str) -> list[str]:
        given = getattr(self, flag)
        return [] if given is None else [word.strip() for word in given.split(",")]


def run(command: Command) -> dict[str, Any]:
    folder, base = require_run(command.run), command.base and require_run(command.base)
    if command.out is not None:
        require_folder(command.out)
    from antiphase.measures.alignment import check_reading
    from antiphase.measures.perturbations import check_names
    from antiphase.models.run import Run
    from antiphase.runtime import pick_device

    for reading in command.words("readings"):
        check_reading(reading)
    check_names(tuple(command.words("perturbations")))
    run = Run(folder, command.source.prompts)
    images = command.source.choose(run.about, command.seed)
    wanted = command.words("measures") or _all_of(run.config)
    common: dict[str, Any] = {"seed": command.seed, "device": pick_device(command.device)}
    result: dict[str, Any] = {"run": str(folder), "title": run.config.title, "scale": command.scale}
    for measure in wanted:
        result |= _measured(measure, command, run, base and Run(base, command.source.prompts), images, common)
    if command.out is not None:
        from antiphase.report.export import write_measures

        write_measures(result, command.out, command.rows)
    return result


def _all_of(config: Any) -> list[str]:
    """Every measure that a model of this shape has: two branches, or at least a pair of heads to stand in for them."""
    if config.is_differential:
        return list(MEASURES)
    heads = getattr(config, "vision", config).heads
    return [m for m in MEASURES if m not in OF_TWO and (heads > 1 or m not in OF_PAIRS)]


def _measured(
    measure: str, command: Command, run: Any, base: Any, images: Any, common: dict[str, Any]
) -> dict[str, list[Any]]:
    from antiphase.results import measure as results

    if measure == "lambda":
        return {measure: results.lambda_rows(run)}
    if measure == "correlation":
        return {measure: [results.correlation_cell(run, images, **common)]}
    if measure == "cancellation":
        chosen = {"perturbations": tuple(command.words("perturbations")), "eps": float(command.eps), **common}
        branches = results.cancellation_cell(run, images, **chosen)
        return {measure: [branches], "depth": [results.depth_cell(run, images, **chosen)]}
    if measure == "alignment":
        probes: dict[str, Any] = {"probes": command.probes, "max_probes": command.max_probes, "base": base, **common}
        readings = command.words("readings")
        return {measure: [results.alignment_cell(run, images, reading=reading, **probes) for reading in readings]}
    cells, draws = [], {"draws": command.draws, **common}
    for level in command.words("levels"):
        for estimator in dict.fromkeys("sample" if e == "sample" else "sharp" for e in command.words("estimators")):
            cells.append(results.lipschitz_cell(run, images, level=level, estimator=estimator, **draws))  # type: ignore[arg-type]
    return {measure: cells}


def show(result: dict[str, Any]) -> None:
    from antiphase.report.terminal.measure import show_measures

    show_measures(result)
