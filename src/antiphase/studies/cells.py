"""A result is a cell on disk, keyed by everything it depends on. A cell that exists is read, not computed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from antiphase import files, runtime
from antiphase.config import InputError, fingerprint, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.models.checkpoint import Run
from antiphase.models.clip_config import CLIPConfig

Cell = dict[str, Any]
FORMAT = 3  # raised when a cell of the same question would come out differently


def check_fits(run: Run, images: ImageSet) -> None:
    """The run was trained for images and classes like these; a CLIP takes any classes."""
    if isinstance(run.config, CLIPConfig):
        side = run.config.vision.image
        own = tuple(run.about["data"].get("shape", ()))  # grey images, if it learned from such: they are broadcast
        if images.shape not in ((3, side, side), own):
            remedy = f"give --image-size {side}" if images.shape[0] == 3 else "a CLIP looks at colour images"
            raise InputError(
                f"{run.folder} takes images of {_size((3, side, side))}, and those of {images.name} are "
                f"{_size(images.shape)}: {remedy}"
            )
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


def _size(shape: Any) -> str:
    return " x ".join(map(str, shape))


def cell(run: Run, kind: str, images: ImageSet, question: Mapping[str, Any], compute: Callable[[Path], Cell]) -> Cell:
    """The answer to a question about a run on these images. `compute` gets a folder of its own for what it keeps."""
    check_fits(run, images)
    depends = {"format": FORMAT, "model": run.config, "weights": run.weights_digest, "images": images.fingerprint}
    key = fingerprint({**depends, **run.words_for(images), **question})
    path = run.folder / kind / f"{key}.json"
    if path.exists():
        stored: Cell = files.read_json(path, "model", "data", "seed", "seconds")
        return stored
    began = time.perf_counter()
    answer = {
        "model": run.config.title,
        "run": run.name,
        "data": {"name": images.name, "split": images.split, "n": len(images), "fingerprint": images.fingerprint},
        **({"prompts": run.wording} if run.words_for(images) else {}),
        "seed": question["seed"],
        **compute(path.with_suffix("")),
        "seconds": round(time.perf_counter() - began, 3),
        "environment": runtime.environment(),
    }
    files.write_json(path, answer)  # refuses NaN and infinity: they are findings to look at, not to file
    return answer
