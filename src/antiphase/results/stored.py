"""A result is a cell on disk, keyed by everything it depends on. A cell that exists is read, not computed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from antiphase import files, runtime
from antiphase.config import InputError, fingerprint, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.run import Run

Cell = dict[str, Any]


FORMAT = 3  # raised when a cell of the same question would come out differently


class Data(Protocol):
    """What a question is about: an ImageSet or a PairSet."""

    @property
    def name(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def fingerprint(self) -> str: ...
    def __len__(self) -> int: ...


def looks_at(run: Run) -> tuple[int, int, int]:
    """(C, H, W) of the images that this run takes"""
    if isinstance(run.config, CLIPConfig):
        return 3, run.config.vision.image, run.config.vision.image
    channels, height, width = run.about["data"]["shape"]
    return channels, height, width


def check_shape(run: Run, data: Data) -> None:
    """The run can look at these images."""
    taken = looks_at(run)
    grey = tuple(run.about["data"].get("shape", ()))  # if a CLIP learned from such: they are broadcast
    if data.shape not in (taken, grey):
        who = "a CLIP" if isinstance(run.config, CLIPConfig) else "this run"
        alike = data.shape[0] == taken[0]
        remedy = f"give --image-size {taken[-1]}" if alike else f"{who} looks at {_colour(taken[0])} images"
        raise InputError(
            f"{run.folder} takes images of {_size(taken)}, and those of {data.name} are {_size(data.shape)}: {remedy}"
        )


def check_fits(run: Run, images: ImageSet) -> None:
    """The run was trained for images and classes like these; a CLIP takes any classes."""
    if isinstance(run.config, CLIPConfig):
        check_shape(run, images)
        return
    data = run.about["data"]
    if tuple(data["shape"]) != images.shape or tuple(data["class_names"]) != images.class_names:
        raise InputError(
            f"{run.folder} was trained on {data['name']} ({len(data['class_names'])} classes, {_size(data['shape'])}), "
            f"which does not fit {images.name} ({images.classes} classes, {_size(images.shape)})"
        )


def check_base(run: Run, base: Run | None) -> None:
    """A baseline is a softmax model of the same depth, trained on the same images."""
    if base is None:
        return
    if base.config.is_differential:
        raise InputError(f"{base.folder} has layers with two branches: --base takes a softmax model")
    if base.config.depth != run.config.depth:
        raise InputError(
            f"{base.folder} has depth {base.config.depth} and {run.folder} has {run.config.depth}: "
            "layers are compared one by one, so the depths must be equal"
        )
    ours, theirs = (r.about["data"] for r in (run, base))
    if any(ours.get(key) != theirs.get(key) for key in ("name", "shape", "class_names")):
        raise InputError(
            f"{base.folder} was trained on {theirs.get('name')} and {run.folder} on {ours.get('name')}: the data must be the same"
        )


def identity_of(run: Run | None) -> dict[str, Any] | None:
    """What a result depends on where a second run takes part in it."""
    return None if run is None else {"model": to_plain(run.config), "weights": run.weights_digest}


def _colour(channels: int) -> str:
    return "colour" if channels == 3 else "grey" if channels == 1 else f"{channels}-channel"


def _size(shape: Any) -> str:
    return " x ".join(map(str, shape))


def cell(run: Run, kind: str, images: ImageSet, question: Mapping[str, Any], compute: Callable[[Path], Cell]) -> Cell:
    """The answer to a question about a run as a classifier of these images."""
    check_fits(run, images)
    return stored(run, kind, images, question, compute, words=run.words_for(images))


def stored(
    run: Run,
    kind: str,
    data: Data,
    question: Mapping[str, Any],
    compute: Callable[[Path], Cell],
    *,
    words: Mapping[str, Any],
) -> Cell:
    """The answer to a question about a run and these data. `compute` gets a folder of its own for what it keeps."""
    depends = {"format": FORMAT, "model": run.config, "weights": run.weights_digest, "images": data.fingerprint}
    key = fingerprint({**depends, **words, **question})
    path = run.folder / kind / f"{key}.json"
    if path.exists():
        found: Cell = files.read_json(path, "model", "data", "seed", "seconds")
        return found
    began = time.perf_counter()
    answer = {
        "model": run.config.title,
        "run": run.name,
        "data": {"name": data.name, "split": data.split, "n": len(data), "fingerprint": data.fingerprint},
        **({"prompts": run.wording} if words else {}),
        "seed": question["seed"],
        **compute(path.with_suffix("")),
        "seconds": round(time.perf_counter() - began, 3),
        "environment": runtime.environment(),
    }
    files.write_json(path, answer)  # refuses NaN and infinity: they are findings to look at, not to file
    return answer
