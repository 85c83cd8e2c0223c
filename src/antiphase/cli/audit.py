"""antiphase audit"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from antiphase.cli.flags import TestImages
from antiphase.config import InputError
from antiphase.files import require_folder
from antiphase.models.foreign_config import Source, as_preprocessing, read_source
from antiphase.results.questions import AuditConfig
from antiphase.scales import ScaleName

if TYPE_CHECKING:
    from antiphase.data.imageset import ImageSet
    from antiphase.models.run import Run

EXAMPLES = """\
  antiphase audit timm:vit_small_patch16_224 --data imagenet
  antiphase audit hf:google/vit-base-patch16-224 timm:vit_base_patch16_224 --data imagenet --quick
  antiphase audit open_clip:ViT-B-32/openai --data cifar10 --prompts a
  antiphase audit path/to/model.py:factory --weights mine.safetensors --data path/to/images
  antiphase audit timm:vit_tiny_patch16_224 --no-weights --data imagenet --dry-run
  antiphase audit runs/diffvit runs/vit --out audits/twins"""
TAKES = "one model, or two to compare (a run, timm:NAME, open_clip:ARCH/TAG, hf:NAME, a folder, FILE.py:FUNCTION)"
IMAGES, QUICK_IMAGES = 256, 32
LONG = 600  # seconds from which on --quick is offered


@dataclass(frozen=True, kw_only=True)
class Command:
    model: tyro.conf.Positional[str]  # a run, timm:NAME, open_clip:ARCH/TAG, hf:NAME, a folder, FILE.py:FUNCTION
    baseline: tyro.conf.Positional[str | None] = None  # a second model, named in the same way, to compare with
    weights: Path | None = None  # a file of the model's weights, in place of its library's
    baseline_weights: Path | None = None  # the same for the baseline
    no_weights: tyro.conf.FlagCreatePairsOff[bool] = False  # random weights, for a dry run of everything
    preprocessing: str | None = None  # none, imagenet, clip, or resize=256,crop=224,mean=0.5,std=0.5; None: its own
    heads: int | None = None  # of a SLIP checkpoint's image tower, which its tensors do not show
    text_heads: int | None = None  # of its text tower
    quick: bool = False  # cheaper: fewer images, budgets, steps and draws
    dry_run: bool = False  # load everything, say how long it would take, and stop
    out: Path | None = None  # folder of the audit: answers, audit.json, report/; audits/NAME when not given
    source: TestImages = TestImages(images=IMAGES)
    settings: AuditConfig = AuditConfig()
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    json: bool = False  # print the result as JSON on stdout

    @classmethod
    def defaults(cls, scale: ScaleName) -> Command:
        del scale  # a model of any size: --quick is what makes it cheaper
        return cls(model=tyro.MISSING)

    def at_quick(self) -> Command:
        return replace(self, settings=AuditConfig.quick(), source=replace(self.source, images=QUICK_IMAGES), quick=True)

    def __post_init__(self) -> None:
        if self.preprocessing is not None:
            as_preprocessing(self.preprocessing)
        if self.baseline_weights is not None and self.baseline is None:
            raise InputError(f"--baseline-weights {self.baseline_weights} has no use: there is no baseline")


def run(command: Command) -> dict[str, Any]:
    named = (command.model,) if command.baseline is None else (command.model, command.baseline)
    sources = [read_source(spec, weights=w, random=_random(command, spec)) for spec, w in _named(command, named)]
    if command.preprocessing is not None and not any(isinstance(source, Source) for source in sources):
        raise InputError(f"{command.model} knows its preprocessing: leave --preprocessing out")
    out = require_folder(command.out or Path("audits") / "-vs-".join(map(_short, sources)))
    if not all(isinstance(source, Path) and source.is_dir() for source in sources) and command.source.data is None:
        raise InputError(f"it is not known on what {command.model} was trained: name images with --data")
    return audit_runs(command, named, None, out, page=True)


def _named(command: Command, named: Sequence[Any]) -> list[tuple[Any, Path | None]]:
    return list(zip(named, (command.weights, command.baseline_weights)))


def _random(command: Command, spec: Any) -> bool:
    """--no-weights is for models that are built; a run brings its own."""
    return command.no_weights and not Path(str(spec)).exists()


def _short(source: Source | Path) -> str:
    name = source.short_name if isinstance(source, Source) else source.resolve().stem
    return re.sub(r"[^\w.-]+", "-", name)


def audit_runs(
    command: Command, named: Sequence[Any], images: ImageSet | None, out: Path, *, page: bool, preprocessing: Any = None
) -> dict[str, Any]:
    """The audit of models that are named, or in memory, on these images or on those that the flags name."""
    runs: list[Run] = []
    with _nothing_left(named, runs, out, dry_run=command.dry_run):
        return _audit_runs(command, named, images, out, runs, page=page, preprocessing=preprocessing)


@contextmanager
def _nothing_left(named: Sequence[Any], runs: list[Run], out: Path, *, dry_run: bool) -> Iterator[None]:
    """Of `runs`, which are opened inside, remove what was made for nothing: by a dry run, and by an audit that was refused
    before it kept an answer. What was there before stays as it was."""
    from antiphase.processes import current

    places = (out, out / "models", out / "baseline")
    there = {path for place in places if place.is_dir() for path in place.iterdir()}
    folders = there | {Path(getattr(model, "folder", str(model))) for model in named if not callable(model)}
    texts = {path for folder in folders for path in _texts(folder)}
    made = [*(folder / "texts" for folder in folders), out / "models", out / "baseline", out, *out.parents]
    absent = [path for path in made if not path.exists()]

    def remove() -> None:
        for run in runs if current().is_main else ():
            if run.folder.parent in places and run.folder not in there:
                if not _holds_answers(run.folder):
                    shutil.rmtree(run.folder, ignore_errors=True)
            else:
                for path in set(_texts(run.folder)) - texts:
                    path.unlink(missing_ok=True)
        for path in absent:
            with contextlib.suppress(OSError):  # something is in there, or it was not made
                path.rmdir()

    try:
        yield
    except BaseException as failure:
        if dry_run or isinstance(failure, Exception):  # an audit that was interrupted goes on from what is there
            remove()
        raise
    if dry_run:
        current().barrier()  # until no process reads there any more
        remove()


def _texts(run: Path) -> list[Path]:
    """What is kept of the words for classes, which the first forward of a CLIP writes."""
    return list((run / "texts").glob("*"))


def _holds_answers(run: Path) -> bool:
    """Whether anything is kept there beside the model and the words for its classes."""
    return any(path.is_file() for kind in run.iterdir() if kind.name != "texts" for path in kind.rglob("*"))


def _audit_runs(
    command: Command,
    named: Sequence[Any],
    images: ImageSet | None,
    out: Path,
    runs: list[Run],
    *,
    page: bool,
    preprocessing: Any,
) -> dict[str, Any]:
    """The same; every run that is opened is put into `runs`."""
    from antiphase.console import duration, say
    from antiphase.processes import current
    from antiphase.results.audit import audit, check_runs, forwards_needed, seconds_per_forward
    from antiphase.runtime import pick_device

    device = pick_device(command.device)
    for place, (model, weights) in enumerate(_named(command, named)):
        with current().first():  # one process makes the run of a model, the others find it
            runs.append(_opened(command, model, weights, out, place, images, preprocessing))
        images = images or _choose(command, runs[0])
    assert images is not None
    check_runs(runs, images)
    each = [seconds_per_forward(run, images, device) for run in runs]
    quick = images.at_most(QUICK_IMAGES, command.settings.seed), AuditConfig.quick()
    seconds, cheaper = (
        sum(s * forwards_needed(run, some, config) for s, run in zip(each, runs))
        for some, config in ((images, command.settings), quick)
    )
    offer = f"; --quick takes about {duration(cheaper)}" if seconds > LONG and not command.quick else ""
    say(f"{len(images)} images of {images.name}: about {duration(seconds)}, less where answers are kept{offer}")
    if command.dry_run:
        return {"dry_run": True, "models": [run.name for run in runs], "images": len(images)} | {
            "seconds": round(seconds, 1),
            "quick_seconds": round(cheaper, 1),
        }
    result = audit(runs, images, command.settings, device=device)
    if not page or not current().is_main:
        return result
    from antiphase import files
    from antiphase.report.page import write_page
    from antiphase.report.pages.audit import audit_page

    files.write_json(out / "audit.json", result)
    return result | {"page": str(write_page(audit_page(result), out / "report"))}


def _choose(command: Command, run: Run) -> ImageSet:
    return command.source.choose(run.about, command.settings.seed)


def _opened(
    command: Command,
    model: Any,
    weights: Path | None,
    out: Path,
    place: int,
    images: ImageSet | None,
    preprocessing: Any,
) -> Run:
    """The run of a model: one that exists, one that is made of what is named, or one of a module in this process."""
    from antiphase.models.open_model import open_model, run_of_module
    from antiphase.models.run import Run

    if isinstance(model, Run):
        return model
    if isinstance(model, str | Path):
        return open_model(
            str(model),
            out / "models" if place == 0 else out / "baseline",
            weights=weights,
            random=_random(command, model),
            preprocessing=command.preprocessing if _is_built(model) else None,
            shape=lambda: (images or command.source.load("test")).shape,
            prompts=command.source.prompts,
            heads=command.heads,
            text_heads=command.text_heads,
        )
    if images is None:
        raise InputError("a model in memory is audited on images that are given: call ap.audit(model, images)")
    return run_of_module(model, out / ("model" if place == 0 else "baseline"), images, preprocessing)


def _is_built(model: Any) -> bool:
    """Whether it is a model to which a preprocessing can be given: not a run, nor a checkpoint of a CLIP."""
    path = Path(str(model))
    return not path.is_file() and not (path / "run.json").is_file()


def show(result: dict[str, Any]) -> None:
    if result.get("dry_run"):
        return
    from antiphase.report.terminal.audit import show_audit

    show_audit(result)
    if result.get("page"):
        print(f"\nThe whole story: {result['page']}")
