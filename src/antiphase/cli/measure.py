"""antiphase measure"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from antiphase.cli.flags import OfRuns, TestImages
from antiphase.config import InputError, Names, check_fields, read_text
from antiphase.files import require_folder, require_run
from antiphase.measures.questions import (
    AlignmentQuestion,
    CancellationQuestion,
    CaptionCorrelationQuestion,
    CorrelationQuestion,
    DepthQuestion,
    FocusQuestion,
    InterventionQuestion,
    LipschitzQuestion,
)
from antiphase.scales import SCALES, ScaleName
from antiphase.store import Question

CAPTIONS = "caption-correlation"  # about texts
BY_NAME = ("interventions", CAPTIONS)  # attacks anew, or needs captions: it is asked for by name
MEASURE_NAMES = ("lipschitz", "alignment", "cancellation", "lambda", "correlation", "focus", *BY_NAME)
OF_TWO = ("alignment", "lambda")  # these need a model with two branches
OF_PAIRS = ("cancellation", "correlation")  # and these at least two heads
LEVELS = ("maps", "branch", "block")
ESTIMATORS = ("sample", "power", "ascent")
if TYPE_CHECKING:
    from antiphase.data.imageset import ImageSet
    from antiphase.data.pairs import Captions
    from antiphase.models.run import Run

EXAMPLES = """\
  antiphase measure runs/diffvit
  antiphase measure runs/diffvit --measures cancellation,correlation --eps 4/255
  antiphase measure runs/diffvit --measures alignment --readings R1,R3,R8 --base runs/vit --out runs/lens
  antiphase measure runs/diffvit --measures interventions --interventions lam=0,lam=0.4,swap,hold=A2 --eps 4/255
  antiphase measure runs/tiles --measures focus --eps 1/255
  antiphase measure runs/diffclip --measures caption-correlation --captions flickr8k --images 200
  antiphase measure runs/vit --measures lipschitz --estimators sample,power,ascent --levels maps,block --images 64 --json"""
TAKES = "one run"


@dataclass(frozen=True, kw_only=True)
class Command(OfRuns):
    run: tyro.conf.Positional[Path]  # folder of a trained run
    # lipschitz, alignment, cancellation, lambda, correlation, focus (where the data have boxes); none: all of these that there
    # are; by name only: interventions, caption-correlation
    measures: Names = Names()
    base: Path | None = None  # a softmax run: for gamma, and its head pairs as a control of the alignment
    lipschitz: LipschitzQuestion = LipschitzQuestion()
    alignment: AlignmentQuestion = AlignmentQuestion()
    cancellation: CancellationQuestion = CancellationQuestion()
    texts: CaptionCorrelationQuestion = CaptionCorrelationQuestion()
    causes: InterventionQuestion = InterventionQuestion()
    captions: str | None = None  # texts for caption-correlation: a captioned set or a file; None: those of the training
    estimators: Names = Names("sample")  # of local Lipschitz: sample, power, ascent; power and ascent together
    levels: Names = Names("maps")  # where it is measured: maps, branch, block
    readings: Names = Names("R1")  # of alignment: R1 to R8 (R6 as R6-entropy, ...), separated by commas
    out: Path | None = None  # folder for the raw rows and a figure of each measure
    rows: Literal["parquet", "jsonl"] = "parquet"  # how --out writes rows
    seed: int = 0  # of the subset and of everything drawn

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        chosen = SCALES[scale]
        return cls(
            run=tyro.MISSING,
            lipschitz=LipschitzQuestion(draws=chosen.lipschitz_draws),
            alignment=AlignmentQuestion(probes=chosen.probes, max_probes=chosen.max_probes),
            causes=InterventionQuestion(steps=chosen.pgd_steps, restarts=chosen.pgd_restarts),
            scale=scale,
            source=TestImages.at(scale),
        )

    def __post_init__(self) -> None:
        check_fields(self, seed=0)
        for flag, known in (("measures", MEASURE_NAMES), ("estimators", ESTIMATORS), ("levels", LEVELS)):
            for name in getattr(self, flag):
                if name not in known:
                    raise InputError(f"{flag[:-1]} {name!r} is not known: --{flag} takes {', '.join(known)}")

    def questions(self, measure: str) -> list[Question]:
        """What a measure asks, with the flags that concern it."""
        seed = self.seed
        if measure == "correlation":
            return [CorrelationQuestion(seed=seed)]
        if measure == "interventions":
            return [replace(self.causes, eps=self.cancellation.eps, draws=self.lipschitz.draws, seed=seed)]
        if measure == "focus":
            return [FocusQuestion(eps=self.cancellation.eps, seed=seed)]
        if measure == "cancellation":
            question = replace(self.cancellation, seed=seed)
            return [question, DepthQuestion(perturbations=question.perturbations, eps=question.eps, seed=seed)]
        if measure == "alignment":
            return [replace(self.alignment, reading=reading, seed=seed) for reading in self.readings]
        estimators = dict.fromkeys("sample" if name == "sample" else "sharp" for name in self.estimators)
        return [
            replace(self.lipschitz, level=level, estimator=estimator, seed=seed)  # type: ignore[arg-type]
            for level in self.levels
            for estimator in estimators
        ]


def run(command: Command, images: ImageSet | None = None) -> dict[str, Any]:
    folder, base_folder = require_run(command.run), command.base
    if base_folder is not None:
        require_run(base_folder)
    if command.out is not None:
        require_folder(command.out)
    from antiphase.measures.alignment import check_reading
    from antiphase.measures.perturbations import check_names
    from antiphase.models.run import Run
    from antiphase.processes import is_main_process
    from antiphase.results.measure import lambda_rows, measure, measure_captions
    from antiphase.runtime import pick_device

    for reading in command.readings:
        check_reading(reading)
    check_names(command.cancellation.perturbations)
    run, device = Run(folder, command.source.prompts), pick_device(command.device)
    base = None if base_folder is None else Run(base_folder, command.source.prompts)
    wanted = set(command.measures)
    if images is None and wanted != {CAPTIONS}:
        images = command.source.choose(run.about, command.seed)
    result: dict[str, Any] = {"run": str(folder), "title": run.config.title, "scale": command.scale}
    for name in command.measures or _all_of(run.config, images):
        if name == "lambda":
            result[name] = lambda_rows(run)
            continue
        if name == CAPTIONS:
            answer = measure_captions(
                run, _captions(command, run), replace(command.texts, seed=command.seed), device=device
            )
            result[CAPTIONS] = [answer.content]
            continue
        assert images is not None
        for question in command.questions(name):
            second = base if question.takes_base else None
            answer = measure(run, images, question, base=second, device=device)
            result.setdefault(question.kind, []).append(answer.content)
    if command.out is not None and is_main_process():
        from antiphase.report.export import write_measures

        write_measures(result, command.out, command.rows)
    return result


def _all_of(config: Any, images: ImageSet | None) -> list[str]:
    """Every measure that a model of this shape has: two branches, or at least a pair of heads to stand in for them."""
    boxes = images is not None and images.boxes is not None
    names = [name for name in MEASURE_NAMES if name not in BY_NAME and (boxes or name != "focus")]
    if config.is_differential:
        return [m for m in names if m != "lambda" or config.has_lambda_parameters]
    heads = getattr(config, "vision", config).heads
    return [m for m in names if m not in OF_TWO and (heads > 1 or m not in OF_PAIRS)]


def _captions(command: Command, run: Run) -> Captions:
    """Of a text file, one per line; else of the test split of a captioned set, by default the one that the run learned from."""
    from antiphase.data.pair_catalog import is_captioned, load_pairs
    from antiphase.data.pairs import Captions

    name = command.captions or run.about["data"].get("origin")
    if name is None or not (Path(name).is_file() or is_captioned(name)):
        what = f"{name!r} has none" if name else "this run was converted"
        raise InputError(
            f"caption-correlation needs captions, and {what}: name a captioned set or a text file by --captions"
        )
    if Path(name).is_file() and not is_captioned(name):
        lines = [line.strip() for line in read_text(Path(name)).splitlines()]
        return Captions(Path(name).name, "all", tuple(filter(None, lines)))
    pairs = load_pairs(name, "test", root=command.source.data_root)
    return Captions.of(pairs, command.source.images, command.seed)


def show(result: dict[str, Any]) -> None:
    from antiphase.report.terminal.measure import show_measures

    show_measures(result)
