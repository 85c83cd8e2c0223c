"""Images in folders: one folder per class, Tiny ImageNet's layout, and ImageNet's validation set in class folders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from antiphase import files
from antiphase.config import InputError, read_text
from antiphase.data.decode import IMAGE_SUFFIXES, file_pixels, native_side
from antiphase.data.imageset import ImageSet

VAL_NAMES = ("val", "validation")
TEST_NAMES = ("test", *VAL_NAMES)
TEST_SHARE = 0.2  # of a folder that comes without a split of its own
Labelled = list[tuple[Path, int]]


def load_own_folder(split: str, folder: Path, size: int) -> ImageSet:
    """A folder of the user's own, named after itself."""
    return load_folder(folder.resolve().name, split, folder, size)


def own_side(folder: Path, at_most: int) -> int | None:
    """The side that all images of a folder have, those of every split, where they are squares of at most so many pixels."""
    splits = [folder / name for name in ("train", *TEST_NAMES) if (folder / name).is_dir()]
    return native_side(splits or [folder], at_most)


def load_folder(name: str, split: str, folder: Path, size: int) -> ImageSet:
    """Class folders below `train` and `test` (or `val`); without those, a fixed fifth by file name is the test split."""
    if (folder / "train").is_dir() or any((folder / n).is_dir() for n in TEST_NAMES):
        classes = by_class(folder / "train") if (folder / "train").is_dir() else None
        return from_class_folders(name, split, split_folder(folder, split), size, classes)
    by_name = by_class(folder)
    wanted = split == "test"
    labelled = [(p, i) for i, c in enumerate(by_name) for p in by_name[c] if is_test(p.relative_to(folder)) == wanted]
    return assemble(name, split, tuple(by_name), labelled, folder, size)


def load_imagenet(split: str, folder: Path, size: int) -> ImageSet:
    """Sorted WordNet ids are the usual 1,000 class indices; the names are the ones CLIP is prompted with."""
    images = from_class_folders("imagenet", split, split_folder(folder, split), size)
    if images.classes != 1000:
        return images
    from open_clip import IMAGENET_CLASSNAMES

    return replace(images, class_names=tuple(IMAGENET_CLASSNAMES))


def load_tiny_imagenet(split: str, folder: Path, size: int) -> ImageSet:
    """train/<wnid>/images/*.JPEG, val/images/*.JPEG with val/val_annotations.txt; classes are the sorted wnids.txt."""
    wnids = sorted(row[0] for row in _rows(required(folder / "wnids.txt", "the list of classes"), 1))
    words = dict(row[:2] for row in _rows(required(folder / "words.txt", "the names of the classes"), 2))
    names = tuple(words.get(wnid, wnid).split(",")[0] for wnid in wnids)
    index = {wnid: i for i, wnid in enumerate(wnids)}
    if split == "train":
        labelled = [(p, index[w]) for w in wnids for p in _images(folder / "train" / w / "images")]
        return assemble("tiny-imagenet", split, names, labelled, folder, size)
    table = required(folder / "val" / "val_annotations.txt", "the labels of the validation images")
    labelled = []
    for number, (file, wnid, *_) in enumerate(_rows(table, 2), start=1):
        if wnid not in index:
            raise InputError(f"{table}, line {number}: {wnid} is out of range, wnids.txt does not list it")
        labelled.append((required(folder / "val" / "images" / file, f"named by {table.name}"), index[wnid]))
    return assemble("tiny-imagenet", split, names, labelled, folder, size)


def from_class_folders(
    name: str, split: str, folder: Path, size: int, classes: Iterable[str] | None = None
) -> ImageSet:
    """One folder per class; `classes`, where given, are those of the training split, and the test split may lack some."""
    by_name = by_class(folder)
    known = tuple(by_name if classes is None else classes)
    for name_of_class in by_name:
        if name_of_class not in known:
            raise InputError(
                f"{folder / name_of_class} is out of range: the training split has no class {name_of_class!r}"
            )
    return assemble(name, split, known, [(p, i) for i, c in enumerate(known) for p in by_name.get(c, [])], folder, size)


def is_test(path: Path) -> bool:
    """A fixed choice by the file's name, so that adding files moves none from one split to the other."""
    return hashlib.sha256(path.as_posix().encode()).digest()[0] < 256 * TEST_SHARE


def split_folder(folder: Path, split: str) -> Path:
    """Where a split lies below a folder that has them; "val" is never the test folder."""
    for name in {"train": ("train",), "val": VAL_NAMES}.get(split, TEST_NAMES):
        if (folder / name).is_dir():
            return folder / name
    raise InputError(f"{folder} has no {split} split: expected {folder / ('train' if split == 'train' else 'val')}")


def by_class(folder: Path) -> dict[str, list[Path]]:
    """The images of every class, by the name of its folder."""
    classes = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not classes:
        raise InputError(f"{folder} is empty: expected one folder of images for each class")
    for path in classes:
        files.require_text(path)
    return {c.name: _images(c) for c in classes}


def _images(folder: Path) -> list[Path]:
    images = sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES) if folder.is_dir() else []
    if not images:
        raise InputError(f"{folder} is empty: expected image files in it")
    for path in images:
        files.require_text(path)
    return images


def required(path: Path, what: str) -> Path:
    """The path of a file that has to be there; `what` it is goes into the refusal."""
    if not path.is_file():
        raise InputError(f"{path} is missing: it is {what}")
    return path


def _rows(table: Path, columns: int) -> list[list[str]]:
    """The lines of a table whose columns are separated by tabs."""
    rows = [line.split("\t") for line in read_text(table).splitlines()]
    for number, row in enumerate(rows, start=1):
        if len(row) < columns or not row[0]:
            raise InputError(f"{table}, line {number}: expected at least {columns} columns separated by tabs")
    return rows


def assemble(name: str, split: str, classes: tuple[str, ...], labelled: Labelled, folder: Path, size: int) -> ImageSet:
    if not labelled:
        raise InputError(f"{folder} leaves no image for the {split} split")
    source, content = file_pixels(tuple(p for p, _ in labelled), size, f"{name} {split}")
    return ImageSet(
        name=name,
        split=split,
        class_names=classes,
        labels=np.array([label for _, label in labelled], dtype=np.int64),
        ids=np.arange(len(labelled)),
        source=source,
        content=content,
    )
