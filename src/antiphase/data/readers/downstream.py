"""Data sets for zero-shot, probe and few-shot evaluation, as their authors and torchvision lay them out on disk.

A set without a published split has a fixed one, by the hash of each file's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from antiphase.config import InputError, read_text
from antiphase.data.imageset import ImageSet
from antiphase.data.readers.image_folders import Labelled, assemble, by_class, is_test, required

CALTECH_TRAIN = 30  # images of each class, as is usual for Caltech-101; the others are for testing
LAYOUTS = {
    "flowers": "jpg/image_00001.jpg, ..., imagelabels.mat and setid.mat as published",
    "sun397": "ClassName.txt and a/abbey/sun_*.jpg, ...",
    "aircraft": "data/images/*.jpg, data/variants.txt and data/images_variant_{train,val,test}.txt",
    "food101": "images/<class>/*.jpg and meta/{train,test}.json",
}


def load_caltech101(split: str, folder: Path, size: int) -> ImageSet:
    """101_ObjectCategories/<class>/image_*.jpg; the folder of background clutter is no class."""
    categories = _folder(folder / "101_ObjectCategories", "one folder of images for each class")
    images = {name: paths for name, paths in by_class(categories).items() if name != "BACKGROUND_Google"}
    labelled: Labelled = []
    for label, paths in enumerate(images.values()):
        ranked = sorted(paths, key=lambda path: _rank(path.relative_to(categories)))
        chosen = ranked[:CALTECH_TRAIN] if split == "train" else ranked[CALTECH_TRAIN:]
        labelled += [(path, label) for path in sorted(chosen)]
    return assemble("caltech101", split, tuple(images), labelled, folder, size)


def load_dtd(split: str, folder: Path, size: int) -> ImageSet:
    """images/<class>/*.jpg and labels/{train,val,test}1.txt (the first of ten partitions), possibly below dtd/."""
    base = folder / "dtd" if (folder / "dtd").is_dir() else folder
    images = _folder(base / "images", "one folder of images for each class")
    classes = sorted(path.name for path in images.iterdir() if path.is_dir())
    table = required(base / "labels" / f"{split}1.txt", f"the list of {split} images")
    labelled = []
    for number, line in enumerate(_lines(table), start=1):
        name = line.partition("/")[0]
        labelled.append((images / line, _index(classes, name, f"{table}, line {number}")))
    return assemble("dtd", split, tuple(classes), labelled, folder, size)


def load_pets(split: str, folder: Path, size: int) -> ImageSet:
    """images/<breed>_<number>.jpg and annotations/{trainval,test}.txt with lines such as `Abyssinian_100 1 1 1`.

    Possibly below oxford-iiit-pet/, as torchvision has it below its root.
    """
    folder = inner if (inner := folder / "oxford-iiit-pet").is_dir() else folder
    tables = {"train": "trainval.txt", "test": "test.txt"}
    names: dict[int, str] = {}
    listed: dict[str, list[tuple[str, int]]] = {}
    for part, file in tables.items():
        table = required(folder / "annotations" / file, f"the list of {part} images")
        listed[part] = []
        for number, line in enumerate(_lines(table), start=1):
            image, _, rest = line.partition(" ")
            label = rest.split()[0] if rest.split() else ""
            if not label.isdigit() or int(label) < 1:
                raise InputError(f"{table}, line {number}: expected the name of an image and the number of its breed")
            listed[part].append((image, int(label) - 1))
            names[int(label) - 1] = image.rpartition("_")[0].replace("_", " ").title()
    classes = tuple(names.get(label, f"breed {label + 1}") for label in range(max(names, default=-1) + 1))
    labelled = [(folder / "images" / f"{image}.jpg", label) for image, label in listed[split]]
    return assemble("pets", split, classes, labelled, folder, size)


def load_flowers(split: str, folder: Path, size: int) -> ImageSet:
    from torchvision.datasets import Flowers102

    raw, labelled = _torchvision("flowers", Flowers102, folder, split=split)
    return assemble("flowers", split, tuple(raw.classes), labelled, folder, size)


def load_sun397(split: str, folder: Path, size: int) -> ImageSet:
    """The first published partition where Training_01.txt and Testing_01.txt are there; else a fixed fifth for testing."""
    from torchvision.datasets import SUN397

    raw, labelled = _torchvision("sun397", SUN397, folder)
    names = tuple(" ".join(reversed(name.split("/"))) for name in raw.classes)  # "outdoor apartment_building"
    by_path = dict(sorted(labelled))
    lists = sorted(folder.rglob("Training_01.txt" if split == "train" else "Testing_01.txt"))
    if lists:
        paths = [folder / line.strip("/") for line in _lines(lists[0])]
    else:
        paths = [path for path in by_path if is_test(path.relative_to(folder)) == (split == "test")]
    for path in paths:
        if path not in by_path:
            raise InputError(f"{path} is missing: {lists[0].name} lists it")
    return assemble("sun397", split, names, [(path, by_path[path]) for path in paths], folder, size)


def load_aircraft(split: str, folder: Path, size: int) -> ImageSet:
    from torchvision.datasets import FGVCAircraft

    raw, labelled = _torchvision("aircraft", FGVCAircraft, folder, split=split)
    return assemble("aircraft", split, tuple(raw.classes), labelled, folder, size)


def load_food101(split: str, folder: Path, size: int) -> ImageSet:
    from torchvision.datasets import Food101

    raw, labelled = _torchvision("food101", Food101, folder, split=split)
    return assemble("food101", split, tuple(raw.classes), labelled, folder, size)


def _torchvision(name: str, reader: Callable[..., Any], folder: Path, **options: str) -> tuple[Any, Labelled]:
    """torchvision's reader of this layout, asked for the paths of its images instead of the images."""
    try:
        raw = reader(root=str(folder.parent), loader=Path, **options)
        return raw, [(path, int(label)) for path, label in (raw[i] for i in range(len(raw)))]
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        said = " ".join(str(error).split())
        raise InputError(f"{folder} is not a whole copy of {name}: expected {LAYOUTS[name]} ({said})") from None


def _folder(path: Path, what: str) -> Path:
    if not path.is_dir():
        raise InputError(f"{path} is missing: expected {what} in it")
    return path


def _lines(table: Path) -> list[str]:
    return [line.strip() for line in read_text(table).splitlines() if line.strip()]


def _index(classes: Sequence[str], name: str, where: str) -> int:
    if name not in classes:
        raise InputError(f"{where}: {name!r} is out of range, there is no such class")
    return classes.index(name)


def _rank(path: Path) -> bytes:
    return hashlib.sha256(path.as_posix().encode()).digest()
