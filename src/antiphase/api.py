"""The commands as functions: the same questions, the same defaults and the same stored answers as on the command line.

Each function takes the flags of its command as keywords (`probes=64`, `scale="cpu"`), a run as a `Run`, a path or a string, and
images as an ImageSet or as tensors where the run's own test images are not wanted. It returns what the command prints with
`--json`.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from tyro.conf import Suppress

from antiphase.attacks import engine
from antiphase.attacks.engine import AttackResult
from antiphase.config import InputError, from_plain, to_plain
from antiphase.data.imageset import Images, ImageSet, as_images
from antiphase.models.run import Run
from antiphase.scales import ScaleName

RunLike = Run | Path | str
T = TypeVar("T")


# ------------------------------------------------------------------------------------------------- attacks on a classifier


def attack(classifier: Any, images: Any, *labels_and_attack: Any, **settings: Any) -> AttackResult:
    """Attack a classifier: `attack(classifier, images, PGD(...))` with an ImageSet, `attack(classifier, x, y, PGD(...))` with
    tensors x: (n, C, H, W) in [0,1] and y: (n,). The attack may also be any callable (model, x, y) -> x_adv. Settings are those
    of `antiphase.attacks.engine.run`: seed, protocol, batch_size, eight_bit, journal, compile, ..."""
    x, y, what, ids = _examples(images, labels_and_attack)
    if isinstance(what, Sequence):
        raise InputError("attack takes one attack: call sweep(classifier, images, attacks) for several budgets")
    return engine.run(_classifier(classifier, images), x, y, what, **{**ids, **settings})


def sweep(classifier: Any, images: Any, *labels_and_attacks: Any, **settings: Any) -> list[AttackResult]:
    """The same over several budgets, smallest first: `sweep(classifier, images, [PGD(...), ...])`."""
    x, y, what, ids = _examples(images, labels_and_attacks)
    if not isinstance(what, Sequence):
        raise InputError("sweep takes a list of attacks: call attack(classifier, images, attack) for one")
    return engine.sweep(_classifier(classifier, images), x, y, what, **{**ids, **settings})


def _classifier(model: Any, images: Any) -> Any:
    """A run's own classifier, where a run is given."""
    if not isinstance(model, Run):
        return model
    return model.classifier_for(images) if isinstance(images, ImageSet) else model.classifier()


def _examples(images: Any, rest: tuple[Any, ...]) -> tuple[Any, Any, Any, dict[str, Any]]:
    if isinstance(images, ImageSet):
        if len(rest) != 1:
            raise InputError("an ImageSet brings its labels: call attack(classifier, images, attack)")
        batch = images.all
        return batch.pixels, batch.labels, rest[0], {"ids": batch.ids}
    if isinstance(images, tuple):
        images, rest = images[0], (images[1], *rest)
    if len(rest) != 2:
        raise InputError("tensors need their labels: call attack(classifier, x, y, attack)")
    return images, rest[0], rest[1], {}


# ------------------------------------------------------------------------------------------------- what commands do


def attack_run(run: RunLike, images: Images | None = None, **flags: Any) -> dict[str, Any]:
    """What `antiphase attack` does: a run under attack at each budget, kept in its folder. `attack` is a name, as in
    `attack="autoattack"`; with an attack of your own call `ap.attack`."""
    return _run("attack", images, flags, run=_folder(run))


def measure(run: RunLike, images: Images | None = None, **flags: Any) -> dict[str, Any]:
    """What `antiphase measure` does: `measures` names some of lipschitz, alignment (reading R1), cancellation (with depth),
    lambda, correlation, focus (where images have boxes); by default all that there are. caption-correlation has to be named."""
    return _run("measure", images, flags, run=_folder(run))


def theory(run: RunLike, base: RunLike | None = None, images: Images | None = None, **flags: Any) -> dict[str, Any]:
    """What `antiphase theory` does: every statement of the paper held against a run and its softmax baseline."""
    return _run("theory", images, flags, run=_folder(run), base=None if base is None else _folder(base))


def look(runs: Sequence[RunLike], images: Images | None = None, **flags: Any) -> dict[str, Any]:
    """What `antiphase look` does: a few images as the runs see them, for the lens of a report."""
    return _run("look", images, flags, runs=tuple(map(_folder, runs)))


def evaluate(run: RunLike, on: str, **flags: Any) -> dict[str, Any]:
    """What `antiphase eval` does: zero-shot, retrieval, probes, few-shot on data sets named as in `on="cifar10,flickr8k"`."""
    return _run("eval", None, flags, run=_folder(run), on=on)


def compare(
    first: RunLike, second: RunLike, out: Path | str | None = None, images: Images | None = None, **flags: Any
) -> dict[str, Any]:
    """What `antiphase compare` does: two runs on the same images, with paired tests. With `out` also comparison.json and a
    page in that folder."""
    pair = _folder(first), _folder(second)
    if out is None:
        from antiphase.cli.compare import Command, comparison

        command = _filled(Command, flags, pair=pair, out=Path())
        return comparison(command, _chosen(images, pair[0]))
    return _run("compare", images, flags, pair=pair, out=Path(out))


def report(*folders: RunLike, out: Path | str | None = None, **flags: Any) -> Path:
    """What `antiphase report` does: the page of runs, of a comparison or of a ledger; returns where it was written."""
    where = None if out is None else Path(out)
    return Path(_run("report", None, flags, folders=tuple(map(_folder, folders)), out=where)["page"])


def study(action: str, *names: str, **flags: Any) -> dict[str, Any]:
    """What `antiphase study` does: `study("run", "fig5", ledger="runs/studies")`."""
    return _run("study", None, flags, action=action, names=names)


def _folder(run: RunLike) -> Path:
    return run.folder if isinstance(run, Run) else Path(run)


def _run(name: str, images: Images | None, flags: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """The command with these flags, on these images where they are given."""
    module = import_module(f"antiphase.cli.{name}")
    command = _filled(module.Command, flags, **arguments)
    if images is None:
        result: dict[str, Any] = module.run(command)
    else:
        folder = arguments.get("run") or (arguments.get("pair") or arguments["runs"])[0]
        result = module.run(command, _chosen(images, folder))
    return result


def _chosen(images: Images | None, folder: Path) -> ImageSet | None:
    if images is None:
        return None
    return as_images(images, Run(folder).about["data"].get("class_names", ()))


def _filled(kind: type[T], flags: dict[str, Any], **arguments: Any) -> T:
    """A command at its scale's defaults, with these flags; one that it does not know is refused."""
    scale: ScaleName | None = flags.get("scale")
    command: Any = dataclasses.replace(kind.defaults(scale or "smoke"), **arguments)  # type: ignore[attr-defined]
    known = dict(_fields(command))
    for name in flags:
        if name not in known:
            raise InputError(f"{name!r} is no argument here; there are {', '.join(sorted(known))}")
    filled: T = _with(command, flags)
    return filled


def _fields(config: Any) -> Iterator[tuple[str, Any]]:
    hidden = _hidden(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _fields(value)
        elif field.name not in hidden:
            yield field.name, value


def _hidden(kind: type) -> set[str]:
    """Fields that the command asks for in another way: as a list, or once for all its questions."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name for name, hint in hints.items() if Suppress in getattr(hint, "__metadata__", ())}


def _with(config: Any, flags: dict[str, Any]) -> Any:
    changed: dict[str, Any] = {}
    hidden = _hidden(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in flags and field.name not in hidden:
            changed[field.name] = flags[field.name]
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            changed[field.name] = _with(value, flags)
    plain = {name: to_plain(value) for name, value in changed.items()}
    return from_plain(type(config), {**_plain(config), **plain}, "argument")


def _plain(config: Any) -> dict[str, Any]:
    return {name: value for name, value in to_plain(config).items() if name != "kind"}
