"""The commands as functions: the same questions, the same defaults and the same stored answers as on the command line.

Each function takes the flags of its command as keywords (`probes=64`, `scale="cpu"`), a run as a `Run`, a path or a string, and
images as an ImageSet or as tensors where the run's own test images are not wanted. It returns what the command prints with
`--json`, as a dict that `print` shows as the command does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import tempfile
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tyro.conf import Suppress

from antiphase.attacks import engine
from antiphase.attacks.config import Attack
from antiphase.attacks.red_flags import check_batches
from antiphase.cli.flags import fields_of, marked
from antiphase.config import (
    LARGEST_INTEGER,
    InputError,
    check_value,
    checked_arguments,
    fits,
    from_plain,
    shown,
    to_plain,
)
from antiphase.console import all_visible
from antiphase.data.imageset import Images, ImageSet, as_images, as_labels, as_pixels
from antiphase.measures import alignment, lipschitz, smoothing, success
from antiphase.measures.rated_result import RatedResult, RatedSweep, rated
from antiphase.models.classifier import as_classifier
from antiphase.models.run import Run
from antiphase.runtime import at_rest, pick_device
from antiphase.scales import ScaleName

RunLike = Run | Path | str
LEAST = {"seed": 0, "batch_size": 1, "draws": 1, "probes": 1, "eps": 0}  # of settings that are numbers
OURS = {"clean_predictions"}  # settings of the engine that only its own callers can give rightly
SHOWN = 32  # images on which it is tried whether a model's answers depend on the batch
T = TypeVar("T")


# ------------------------------------------------------------------------------------------------- attacks on a classifier


def attack(classifier: Any, images: Any, *labels_and_attack: Any, **settings: Any) -> RatedResult:
    """Attack a classifier: `attack(classifier, images, PGD(...))` with an ImageSet, `attack(classifier, x, y, PGD(...))` with
    tensors or NumPy arrays x: (n, C, H, W) in [0,1] and y: (n,). The classifier is a module, a function or a run. The attack may
    also be any callable (model, x, y) -> x_adv. Settings are those of `antiphase.attacks.engine.run`: seed, protocol, batch_size,
    eight_bit, journal, compile, ... The result prints as a table of its rates; `.summary()` has them as numbers, `.to_pandas()` a
    row per image."""
    x, y, what, ids = _examples(images, labels_and_attack)
    if isinstance(what, Sequence) and not isinstance(what, str):
        raise InputError("attack takes one attack: call sweep(classifier, images, attacks) for several budgets")
    _check_attack(what)
    known = {**ids, **_settings(settings, len(y), engine.run)}
    return rated(engine.run(_classifier(classifier, images), x, y, what, **known), what, known.get("ids"))


def sweep(classifier: Any, images: Any, *labels_and_attacks: Any, **settings: Any) -> RatedSweep:
    """The same over several budgets, smallest first: `sweep(classifier, images, [PGD(...), ...])`. The list of results
    prints as a table with a row per budget.

    `protocol="bisect"` searches for the smallest budget that fools an image instead of trying one after the other: fewer steps,
    and nearly the same answers (docs/attacks.md says how nearly)."""
    x, y, what, ids = _examples(images, labels_and_attacks)
    if not isinstance(what, Sequence) or isinstance(what, str):
        raise InputError("sweep takes a list of attacks: call attack(classifier, images, attack) for one")
    if not what:
        raise InputError("sweep got an empty list: give at least one attack")
    for one in what:
        if not isinstance(one, Attack):
            raise InputError(f"sweep takes attacks such as ap.PGD(within=ap.Linf('8/255')), not a {type(one).__name__}")
    engine.check_nested(what)
    known = {**ids, **_settings(settings, len(y), engine.sweep, engine.run)}
    ordered = engine.by_budget(what)
    results = engine.sweep(_classifier(classifier, images), x, y, ordered, **known)
    return RatedSweep(rated(result, one, known.get("ids")) for result, one in zip(results, ordered))


def transfer(models: Sequence[Any], images: Images, attack: Attack, *, seed: int = 0) -> dict[str, Any]:
    """Every model attacked, and what was made for it shown to every model: `transfer([vit, diffvit], images, PGD(...))`.

    In the matrix rows are sources and columns targets; each entry has rates with n and Wilson's interval, `transfer_correct` of
    the images that the target has right. Models are runs (a Run or the path of one), whose answers are kept in the folder of the
    source, or classifiers.
    """
    if isinstance(models, RunLike) or not isinstance(models, Sequence) or not len(models):
        raise InputError("transfer takes a list of models: transfer([first, second], images, attack)")
    if not isinstance(attack, Attack):
        raise InputError(f"transfer takes an attack such as ap.PGD(within=ap.Linf('8/255')), not {shown(attack)}")
    check_value("seed", seed, int, 0)
    are_runs = [isinstance(model, RunLike) for model in models]
    if all(are_runs):
        from antiphase.results.transfer import transfer_matrix

        runs = [model if isinstance(model, Run) else Run(_folder(model)) for model in models]
        chosen = _chosen(images, runs[0].folder)
        assert chosen is not None
        return transfer_matrix(runs, chosen, attack, seed=seed)
    if any(are_runs):
        raise InputError(
            "transfer takes runs or classifiers, not both: call run.classifier_for(images) for classifiers"
        )
    from antiphase.measures.transfer import transfer as of_classifiers

    named = {str(i): _classifier(model, images) for i, model in enumerate(models)}
    return of_classifiers(named, images, attack, seed=seed)


def _check_attack(what: Any) -> None:
    if isinstance(what, type) or not (isinstance(what, Attack) or callable(what)):
        named = f"the class {what.__name__}" if isinstance(what, type) else f"a {type(what).__name__}"
        raise InputError(
            f"{named} is no attack: give one such as ap.PGD(within=ap.Linf('8/255')), or a function (model, x, y)"
        )


def _settings(settings: dict[str, Any], images: int, *functions: Callable[..., Any]) -> dict[str, Any]:
    """Keywords that one of the functions has, of the type that the first of them gives it; others are refused by name."""
    kinds: dict[str, Any] = {}
    for function in functions:
        kinds = {name: kind for name, kind in _kinds(function).items() if name not in OURS} | kinds
    _check_settings(settings, kinds)
    if settings.get("ids") is not None:
        settings = settings | {"ids": _ids(settings["ids"], images)}
    if isinstance(settings.get("journal"), str):
        settings = settings | {"journal": Path(settings["journal"])}
    return settings


def _kinds(function: Callable[..., Any]) -> dict[str, Any]:
    """The keywords of a function and their types."""
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters.items()
    return {name: hints.get(name, Any) for name, p in parameters if p.kind is p.KEYWORD_ONLY}


def _check_settings(settings: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Refuse keywords that a function does not have, and values that are not of their type or below the least of them."""
    for name, value in settings.items():
        if name not in kinds:
            raise InputError(f"{name!r} is no argument here; there are {', '.join(sorted(kinds))}")
        check_value(name, value, kinds[name], LEAST.get(name))


def _ids(ids: Any, images: int) -> NDArray[np.int64]:
    """The ids of so many images, as they were given in a list, an array or a tensor."""
    try:
        given = np.asarray(ids).tolist()
    except (ValueError, TypeError, RuntimeError):  # rows of different lengths, or a tensor without values
        given = None
    whole = fits(given, list[int]) and all(abs(i) <= LARGEST_INTEGER for i in given)
    if not whole or len(set(given)) != len(given) or len(given) != images:
        raise InputError(
            f"ids={shown(ids)} must be {images} whole numbers up to 2**53, one per image and no two the same: what is random "
            "about an image belongs to its id"
        )
    return np.array(given, dtype=np.int64)


def _classifier(model: Any, images: Any) -> nn.Module:
    """A run's own classifier, where a run is given; a function as a module."""
    if isinstance(model, Run):
        return model.classifier_for(images) if isinstance(images, ImageSet) else model.classifier()
    return model if isinstance(model, nn.Module) else as_classifier(model, "none")


def _examples(images: Any, rest: tuple[Any, ...]) -> tuple[Any, Any, Any, dict[str, Any]]:
    if isinstance(images, Attack):
        raise InputError("the images come before the attack: call attack(classifier, images, attack)")
    if isinstance(images, ImageSet):
        if len(rest) != 1:
            raise InputError("an ImageSet brings its labels: call attack(classifier, images, attack)")
        batch = images.all
        return batch.pixels, batch.labels, rest[0], {"ids": batch.ids}
    if isinstance(images, tuple):
        if len(images) != 2:
            raise InputError(f"a tuple of images is (pixels, labels), and this one has {len(images)} parts")
        images, rest = images[0], (images[1], *rest)
    if len(rest) != 2:
        raise InputError("tensors need their labels: call attack(classifier, x, y, attack)")
    pixels = as_pixels(images).to("cpu", copy=True)  # results refer to them, whatever becomes of those that were given
    return pixels, as_labels(rest[0]), rest[1], {}


def _of_any_model(function: Callable[..., T]) -> Callable[..., T]:
    """A measure that takes whatever `attack` takes, and refuses in one sentence what is no classifier, or one whose answers
    depend on the batch."""
    kinds, (_, __, *names) = typing.get_type_hints(function), inspect.signature(function).parameters

    @functools.wraps(function)
    def checked(classifier: Any, images: Any, *rest: Any, **settings: Any) -> T:
        _check_settings({**dict(zip(names, rest)), **settings}, {name: kinds[name] for name in names})
        if "device" in settings:
            settings["device"] = pick_device(str(settings["device"]))
        if function is success.accuracy and isinstance(images, Tensor | np.ndarray):
            raise InputError("accuracy needs labels: give an ImageSet, or (pixels, labels)")
        model = _classifier(classifier, images)
        chosen = as_images(images)
        some = chosen.take(np.arange(min(SHOWN, len(chosen)))).all.pixels
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        with at_rest(model):
            check_batches(model, some.to(device))
        return function(model, chosen, *rest, **settings)

    return checked


accuracy = _of_any_model(success.accuracy)
l_sample = _of_any_model(lipschitz.l_sample)
branch_alignment = _of_any_model(alignment.align)
certificates = _of_any_model(smoothing.certificates)


# ------------------------------------------------------------------------------------------------- what commands do


class Answered(dict[str, Any]):
    """What a command answered: a dict of plain values, as `--json` has them, that prints as the command does."""

    def __init__(self, values: dict[str, Any], command: str) -> None:
        super().__init__(values)
        self.command = command

    def __str__(self) -> str:
        module, printed = import_module(f"antiphase.cli.{self.command}"), io.StringIO()
        with contextlib.redirect_stdout(printed):
            module.show(all_visible(dict(self)))
        return printed.getvalue().strip("\n")

    __repr__ = __str__


@checked_arguments()
def attack_run(run: RunLike, images: Images | None = None, **flags: Any) -> dict[str, Any]:
    """What `antiphase attack` does: a run under attack at each budget, kept in its folder. `attack` is a name, as in
    `attack="autoattack"`; with an attack of your own call `ap.attack`."""
    return _run("attack", images, flags, run=_folder(run))


@checked_arguments()
def measure(run: RunLike, images: Images | None = None, **flags: Any) -> dict[str, Any]:
    """What `antiphase measure` does: `measures` names some of lipschitz, alignment (reading R1), cancellation (with depth),
    lambda, correlation, focus (where images have boxes); by default all that there are. interventions and
    caption-correlation have to be named."""
    return _run("measure", images, flags, run=_folder(run))


@checked_arguments()
def theory(run: RunLike, base: RunLike | None = None, images: Images | None = None, **flags: Any) -> dict[str, Any]:
    """What `antiphase theory` does: every statement of the paper tested on a run and its softmax baseline."""
    return _run("theory", images, flags, run=_folder(run), base=None if base is None else _folder(base))


@checked_arguments()
def certify(run: RunLike, other: RunLike | None = None, images: Images | None = None, **flags: Any) -> dict[str, Any]:
    """What `antiphase certify` does: L2 radii within which the smoothed model is proven not to change its prediction, of one run
    or of two on the same images, and the sandwich certified <= true <= attacked of a few images."""
    return _run("certify", images, flags, runs=tuple(_folder(one) for one in (run, other) if one is not None))


def look(runs: Sequence[RunLike], images: Images | None = None, **flags: Any) -> dict[str, Any]:
    """What `antiphase look` does: a few images as the runs see them, for the lens of a report."""
    if isinstance(runs, RunLike) or not isinstance(runs, Sequence):
        raise InputError(f"look takes a list of runs, such as ap.look([first, second]), not {shown(runs)}")
    return _run("look", images, flags, runs=tuple(map(_folder, runs)))


@checked_arguments()
def audit(
    model: Any,
    images: Images | None = None,
    baseline: Any = None,
    *,
    out: Path | str | None = None,
    preprocessing: Any = None,
    **flags: Any,
) -> dict[str, Any]:
    """What `antiphase audit` does, of a model in memory or of one that is named as there: `audit(model, images)`. Model and
    baseline are modules, functions, runs, or words such as "timm:vit_small_patch16_224". With `out`, answers are kept in that
    folder, an interrupted audit goes on, and a page is written; without it nothing is kept of a model in memory. What
    `preprocessing` says holds for models in memory; `quick=True` takes fewer images, budgets and steps."""
    from antiphase.cli.audit import audit_runs

    with tempfile.TemporaryDirectory() as fleeting:
        folder = Path(fleeting) if out is None else Path(out)
        command = _audit_command(flags, preprocessing, folder, model if isinstance(model, str) else "model in memory")
        named = (model,) if baseline is None else (model, baseline)
        found = audit_runs(command, named, _given(images), folder, page=out is not None, preprocessing=preprocessing)
        return Answered(found, "audit")


def _audit_command(flags: dict[str, Any], preprocessing: Any, folder: Path, model: str) -> Any:
    from antiphase.cli.audit import Command

    quick = bool(flags.get("quick"))
    said = preprocessing if isinstance(preprocessing, str) else None
    start = Command.defaults("smoke").at_quick() if quick else Command.defaults("smoke")
    filled: Any = _with_flags(dataclasses.replace(start, model=model, out=folder, preprocessing=said), flags)
    return filled


def _given(images: Any) -> ImageSet | None:
    return None if images is None else as_images(images)


@checked_arguments()
def evaluate(run: RunLike, on: str, **flags: Any) -> dict[str, Any]:
    """What `antiphase eval` does: zero-shot, retrieval, probes, few-shot on data sets named as in `on="cifar10,flickr8k"`, and
    accuracy and calibration under corruptions, `on="corrupted"`."""
    return _run("eval", None, flags, run=_folder(run), on=on)


@checked_arguments()
def compare(
    first: RunLike, second: RunLike, out: Path | str | None = None, images: Images | None = None, **flags: Any
) -> dict[str, Any]:
    """What `antiphase compare` does: two runs on the same images, with paired tests. With `out` also comparison.json and a
    page in that folder."""
    pair = _folder(first), _folder(second)
    if out is None:
        from antiphase.cli.compare import Command, comparison

        command = _filled(Command, flags, pair=pair, out=Path())
        return Answered(comparison(command, _chosen(images, pair[0])), "compare")
    return _run("compare", images, flags, pair=pair, out=Path(out))


@checked_arguments()
def report(*folders: RunLike, out: Path | str | None = None, **flags: Any) -> Path:
    """What `antiphase report` does: the page of runs, of a comparison or of a ledger; returns where it was written."""
    where = None if out is None else Path(out)
    return Path(_run("report", None, flags, folders=tuple(map(_folder, folders)), out=where)["page"])


@checked_arguments()
def study(action: str, *names: str, **flags: Any) -> dict[str, Any]:
    """What `antiphase study` does: `study("run", "fig5", ledger="runs/studies")`."""
    return _run("study", None, flags, action=action, names=names)


def _folder(run: RunLike) -> Path:
    check_value("run", run, RunLike)
    return run.folder if isinstance(run, Run) else Path(run)


def _run(name: str, images: Images | None, flags: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """The command with these flags, on these images where they are given."""
    module = import_module(f"antiphase.cli.{name}")
    command = _filled(module.Command, flags, **arguments)
    if images is None:
        return Answered(module.run(command), name)
    folder = arguments.get("run") or (arguments.get("pair") or arguments["runs"])[0]
    return Answered(module.run(command, _chosen(images, folder)), name)


def _chosen(images: Images | None, folder: Path) -> ImageSet | None:
    if images is None:
        return None
    return as_images(images, Run(folder).about["data"].get("class_names", ()))


def _filled(kind: type[T], flags: dict[str, Any], **arguments: Any) -> T:
    """A command at its scale's defaults, with these flags; one that it does not know is refused."""
    scale: ScaleName | None = flags.get("scale")
    command: Any = dataclasses.replace(kind.defaults(scale or "smoke"), **arguments)  # type: ignore[attr-defined]
    filled: T = _with_flags(command, flags)
    return filled


def _with_flags(command: Any, flags: dict[str, Any]) -> Any:
    known = dict(fields_of(command))
    for name in flags:
        if name not in known:
            raise InputError(f"{name!r} is no argument here; there are {', '.join(sorted(known))}")
    return _with(command, flags)


def _with(config: Any, flags: dict[str, Any]) -> Any:
    changed: dict[str, Any] = {}
    suppressed = marked(type(config), Suppress)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in flags and field.name not in suppressed:
            changed[field.name] = flags[field.name]
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            changed[field.name] = _with(value, flags)
    plain = {name: to_plain(value) for name, value in changed.items()}
    return from_plain(type(config), {**_plain(config), **plain}, "argument")


def _plain(config: Any) -> dict[str, Any]:
    return {name: value for name, value in to_plain(config).items() if name != "kind"}
