"""Variants of ImageNet, all of them test sets: V2 and Sketch have its 1,000 classes, A and R 200 of them each."""

from __future__ import annotations

import pkgutil
from pathlib import Path

from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.data.readers.image_folders import Labelled, assemble, by_class


def load_imagenet_v2(split: str, folder: Path, size: int) -> ImageSet:
    """<0 to 999>/*.jpeg: the folders are class indices, not names."""
    images = by_class(folder)
    for name in images:
        if not (name.isdigit() and int(name) < 1000):
            raise InputError(f"{folder / name} is out of range: the folders of imagenet-v2 are 0 to 999")
    labelled = [(path, label) for label in range(1000) for path in images.get(str(label), [])]
    return assemble("imagenet-v2", split, _names(class_wnids("imagenet_synsets")), labelled, folder, size)


def load_imagenet_a(split: str, folder: Path, size: int) -> ImageSet:
    """<wnid>/*.jpg of 200 classes."""
    return _by_wnid("imagenet-a", "imagenet_a_synsets", split, folder, size)


def load_imagenet_r(split: str, folder: Path, size: int) -> ImageSet:
    """<wnid>/*.jpg of 200 classes, others than those of imagenet-a."""
    return _by_wnid("imagenet-r", "imagenet_r_synsets", split, folder, size)


def load_imagenet_sketch(split: str, folder: Path, size: int) -> ImageSet:
    """<wnid>/*.JPEG, possibly below sketch/."""
    inner = folder / "sketch"
    return _by_wnid("imagenet-sketch", "imagenet_synsets", split, inner if inner.is_dir() else folder, size)


def _by_wnid(name: str, classes: str, split: str, folder: Path, size: int) -> ImageSet:
    """Every class takes part in the prediction, also one of which this copy has no image."""
    wnids, images = class_wnids(classes), by_class(folder)
    for wnid in images:
        if wnid not in wnids:
            raise InputError(f"{folder / wnid} is out of range: it is none of the {len(wnids)} classes of {name}")
    labelled: Labelled = [(path, label) for label, wnid in enumerate(wnids) for path in images.get(wnid, [])]
    return assemble(name, split, _names(wnids), labelled, folder, size)


def class_wnids(table: str) -> tuple[str, ...]:
    """WordNet ids in the order of the class indices, as timm lists them."""
    listed = pkgutil.get_data("timm.data", f"_info/{table}.txt")
    assert listed is not None
    return tuple(sorted(listed.decode().split()))


def _names(wnids: tuple[str, ...]) -> tuple[str, ...]:
    """What CLIP is prompted with."""
    from open_clip import IMAGENET_CLASSNAMES

    names = dict(zip(class_wnids("imagenet_synsets"), IMAGENET_CLASSNAMES))
    return tuple(names[wnid] for wnid in wnids)
