"""name -> ImageSet: finds the files of a data set, or says where it looked, and imports its reader only when it is used."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from antiphase.config import InputError, checked_arguments
from antiphase.console import say_once

if TYPE_CHECKING:
    from antiphase.data.imageset import ImageSet


TRAIN_TEST, TRAIN_VAL_TEST, TEST = ("train", "test"), ("train", "val", "test"), ("test",)


@dataclass(frozen=True)
class CatalogEntry:
    """A data set by name: where it may lie below the data root, and the side its images are brought to."""

    folders: tuple[
        str, ...
    ]  # tried in this order; a * matches what a copy or a subset is usually called; none: no files
    size: int
    reader: str = (
        "image_folders:load_own_folder"  # module:function of antiphase.data.readers, (split, folder, size) -> ImageSet
    )
    splits: tuple[str, ...] = TRAIN_TEST
    resizable: bool = True
    downloadable: bool = False


COCO_CAPTIONS = (
    "coco-captions*"  # a folder kept for its captions: where there is another, that one is for classification
)
CIFAR10_FOLDERS = ("cifar10", "cifar-10-batches-py", "cifar10-*")
CATALOG: dict[str, CatalogEntry] = {
    "digits": CatalogEntry((), size=8, reader="digits:load_digits", resizable=False),
    "tiles-digits": CatalogEntry((), size=16, reader="tiles:load_tiles_of_digits", resizable=False),
    "tiles": CatalogEntry(CIFAR10_FOLDERS, size=64, reader="tiles:load_tiles_of_cifar10", resizable=False),
    "cifar10": CatalogEntry(CIFAR10_FOLDERS, size=32, reader="cifar:load_cifar10", downloadable=True),
    "cifar100": CatalogEntry(
        ("cifar100", "cifar-100-python", "cifar100-*"), size=32, reader="cifar:load_cifar100", downloadable=True
    ),
    "tiny-imagenet": CatalogEntry(
        ("tiny-imagenet", "tiny-imagenet-200", "tiny-imagenet-*"),
        size=64,
        reader="image_folders:load_tiny_imagenet",
        downloadable=True,
    ),
    "imagenet": CatalogEntry(("imagenet", "ILSVRC2012", "imagenet-*"), size=224, reader="image_folders:load_imagenet"),
    "imagenet-v2": CatalogEntry(
        ("imagenetv2-matched-frequency-format-val", "imagenetv2", "imagenet-v2"),
        size=224,
        reader="imagenet_variants:load_imagenet_v2",
        splits=TEST,
    ),
    "imagenet-a": CatalogEntry(
        ("imagenet-a", "imagenet-a-*"), size=224, reader="imagenet_variants:load_imagenet_a", splits=TEST
    ),
    "imagenet-r": CatalogEntry(
        ("imagenet-r", "imagenet-r-*"), size=224, reader="imagenet_variants:load_imagenet_r", splits=TEST
    ),
    "imagenet-sketch": CatalogEntry(
        ("imagenet-sketch", "sketch", "imagenet-sketch-*"),
        size=224,
        reader="imagenet_variants:load_imagenet_sketch",
        splits=TEST,
    ),
    "coco": CatalogEntry(("coco", "coco2017", "coco-*", COCO_CAPTIONS), size=224, reader="coco:load_coco"),
    "caltech101": CatalogEntry(("caltech101", "caltech-101"), size=224, reader="downstream:load_caltech101"),
    "dtd": CatalogEntry(("dtd",), size=224, reader="downstream:load_dtd", splits=TRAIN_VAL_TEST),
    "pets": CatalogEntry(
        ("oxford-iiit-pet", "oxford-pets", "oxford-iiit-pet-*"), size=224, reader="downstream:load_pets"
    ),
    "flowers": CatalogEntry(("flowers-102",), size=224, reader="downstream:load_flowers", splits=TRAIN_VAL_TEST),
    "sun397": CatalogEntry(("SUN397",), size=224, reader="downstream:load_sun397"),
    "aircraft": CatalogEntry(
        ("fgvc-aircraft-2013b",), size=224, reader="downstream:load_aircraft", splits=TRAIN_VAL_TEST
    ),
    "food101": CatalogEntry(("food-101",), size=224, reader="downstream:load_food101"),
}
MMVP = CatalogEntry(("MMVP_VLM", "mmvp_vlm", "MMVP_VLM-*", "mmvp"), size=224, splits=TEST)  # statements, no classes
FOLDER_SIZE = 64  # side to which a folder of the user's own is brought; smaller squares of one size keep theirs


def check_name(name: str) -> None:
    """Refuse what is neither a known name nor an existing folder; without heavy imports, so a typing error is caught at once."""
    if name in CATALOG or Path(name).is_dir():
        return
    near = difflib.get_close_matches(name, CATALOG, n=1)
    hint = (
        f"did you mean {near[0]!r}?" if near else f"known are {', '.join(CATALOG)}, or the path of a folder of images"
    )
    raise InputError(f"there is no data set or folder {name!r}: {hint}")


@checked_arguments()
def load(
    name: str | Path,
    split: str,
    *,
    root: str | Path | None = None,
    image_size: int | None = None,
    download: bool = False,
) -> ImageSet:
    """The `train` or `test` split of a named set, or of a folder of images (one folder per class); `val` where one is published.

    Files are looked for below `root`, else below $ANTIPHASE_DATA. `image_size` resizes photographs; digits keep
    their own. A folder of small squares of one size keeps it too; any other is brought to 64 x 64.
    """
    name = str(name)
    check_name(name)
    entry = entry_of(name)
    if split not in entry.splits:
        raise InputError(f"the split of {name} is {split!r}: it takes {' or '.join(map(repr, entry.splits))}")
    if image_size is not None and (image_size < 1 or not entry.resizable):
        rule = (
            f"{name} images are {entry.size} x {entry.size}" if not entry.resizable else "a side has at least one pixel"
        )
        raise InputError(f"image_size={image_size} cannot be used: {rule}")
    folder = find_folder(name, entry, root, download=download) if entry.folders else Path(name)
    module, _, function = entry.reader.partition(":")
    read = getattr(import_module(f"antiphase.data.readers.{module}"), function)
    size = image_size or (entry.size if name in CATALOG else folder_size(folder))
    images: ImageSet = read(split, folder, size)
    return replace(images, origin=name if name in CATALOG else str(Path(name).resolve()))


def entry_of(name: str) -> CatalogEntry:
    return CATALOG.get(name, CatalogEntry((), FOLDER_SIZE))


def folder_size(folder: Path) -> int:
    """The side in which a folder of the user's own is read where none is asked for."""
    from antiphase.data.readers.image_folders import own_side

    side = own_side(folder, FOLDER_SIZE)
    if side is None:
        say_once(
            f"the images of {folder} differ in size, are no squares or are larger than {FOLDER_SIZE} x {FOLDER_SIZE}: they are "
            f"brought to {FOLDER_SIZE} x {FOLDER_SIZE}, unless --image-size (in Python: image_size=) says otherwise"
        )
    return side or FOLDER_SIZE


def find_folder(name: str, entry: CatalogEntry, root: str | Path | None, *, download: bool = False) -> Path:
    """Where a named set lies: below `root`, else below $ANTIPHASE_DATA."""
    configured = root or os.environ.get("ANTIPHASE_DATA")
    if not configured:
        raise InputError(f"{name} needs files: say where they are with --data-root or the variable ANTIPHASE_DATA")
    base = Path(configured)
    if download and not entry.downloadable:
        raise InputError(f"{name} cannot be downloaded for you (its licence or size forbids it): put it below {base}")
    if not base.is_dir() and not download:
        raise InputError(f"the data root {base} is not a folder")
    for pattern in entry.folders:
        for folder in sorted(base.glob(pattern)) if base.is_dir() else []:
            if folder.is_dir() and not _claimed(folder.name, pattern):
                return folder
    if download:
        from antiphase.data.download import fetch

        return fetch(name, base)
    hint = " or add --download" if entry.downloadable else ""
    raise InputError(f"{name} is not below {base}: expected a folder named {' or '.join(entry.folders)}{hint}")


def _claimed(folder: str, pattern: str) -> bool:
    """Another set says more exactly that this folder is its own: imagenet-a is no copy of imagenet, though imagenet-* fits."""
    others = [other for entry in CATALOG.values() for other in entry.folders]
    return any(_exact(other) > _exact(pattern) and fnmatch(folder, other) for other in others)


def _exact(pattern: str) -> int:
    return len(pattern.replace("*", ""))
