"""name -> ImageSet. Finds the files, says plainly where it looked, and imports a reader only when it is used."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from antiphase.config import InputError

if TYPE_CHECKING:
    from antiphase.data.imageset import ImageSet


@dataclass(frozen=True)
class Entry:
    """A data set by name: where it may lie below the data root, and the side its images are brought to."""

    folders: tuple[str, ...]  # tried in this order; a * matches what a copy or a subset is usually called
    size: int
    resizable: bool = True
    downloadable: bool = False


CATALOG: dict[str, Entry] = {
    "digits": Entry((), size=8, resizable=False),
    "cifar10": Entry(("cifar10", "cifar-10-batches-py", "cifar10-*"), size=32, downloadable=True),
    "cifar100": Entry(("cifar100", "cifar-100-python", "cifar100-*"), size=32, downloadable=True),
    "tiny-imagenet": Entry(("tiny-imagenet", "tiny-imagenet-200", "tiny-imagenet-*"), size=64, downloadable=True),
    "imagenet": Entry(("imagenet", "ILSVRC2012", "imagenet-*"), size=224),
    "coco": Entry(("coco", "coco2017", "coco-*"), size=224),
}
FOLDER_SIZE = 64  # side of images from a folder of the user's own, unless --image-size says otherwise


def check_name(name: str) -> None:
    """A known name or an existing folder; needs no heavy import, so a typing error is caught at once."""
    if name in CATALOG or Path(name).is_dir():
        return
    near = difflib.get_close_matches(name, CATALOG, n=1)
    hint = (
        f"did you mean {near[0]!r}?" if near else f"known are {', '.join(CATALOG)}, or the path of a folder of images"
    )
    raise InputError(f"there is no data set or folder {name!r}: {hint}")


def load(
    name: str,
    split: str,
    *,
    root: str | Path | None = None,
    image_size: int | None = None,
    download: bool = False,
) -> ImageSet:
    """The `train` or `test` split of a named set, or of a folder of images (one sub-folder a class).

    Files are looked for below `root`, else below $ANTIPHASE_DATA. `image_size` resizes photographs; digits keep
    their own.
    """
    check_name(name)
    if split not in ("train", "test"):
        raise InputError(f"split is {split!r}: it takes 'train' or 'test'")
    entry = entry_of(name)
    if image_size is not None and (image_size < 1 or not entry.resizable):
        rule = (
            f"{name} images are {entry.size} x {entry.size}" if not entry.resizable else "a side has at least one pixel"
        )
        raise InputError(f"image_size={image_size} cannot be used: {rule}")
    folder = None if name == "digits" else Path(name) if name not in CATALOG else _find(name, entry, root, download)
    images = _read(name, split, folder, image_size or entry.size)
    return replace(images, origin=name if name in CATALOG else str(Path(name).resolve()))


def missing(name: str, root: str | Path | None = None) -> str | None:
    """Why a data set cannot be loaded from here, None if it can; reads no image."""
    if name == "digits" or name not in CATALOG:
        return None
    try:
        _find(name, CATALOG[name], root, download=False)
    except InputError as error:
        return str(error)
    return None


def entry_of(name: str) -> Entry:
    return CATALOG.get(name, Entry((), FOLDER_SIZE))


def _read(name: str, split: str, folder: Path | None, size: int) -> ImageSet:
    if folder is None:
        from antiphase.data.digits import load_digits

        return load_digits(split)
    if name in ("cifar10", "cifar100"):
        from antiphase.data.cifar import load_cifar
        from antiphase.data.imageset import Resized

        images = load_cifar(name, split, folder)
        return images if size == images.shape[-1] else replace(images, source=Resized(images.source, size))
    if name == "coco":
        from antiphase.data.coco import load_coco

        return load_coco(split, folder, size)
    from antiphase.data.folders import load_folder, load_imagenet, load_tiny_imagenet

    if name not in CATALOG:
        return load_folder(folder.resolve().name, split, folder, size)
    return (load_imagenet if name == "imagenet" else load_tiny_imagenet)(split, folder, size)


def _find(name: str, entry: Entry, root: str | Path | None, download: bool) -> Path:
    given = root or os.environ.get("ANTIPHASE_DATA")
    if not given:
        raise InputError(f"{name} needs files: say where they are with --data-root or the variable ANTIPHASE_DATA")
    base = Path(given)
    if download and not entry.downloadable:
        raise InputError(f"{name} cannot be downloaded for you (its licence or size forbids it): put it below {base}")
    if not base.is_dir() and not download:
        raise InputError(f"the data root {base} is not a folder")
    for pattern in entry.folders:
        for folder in sorted(base.glob(pattern)) if base.is_dir() else []:
            if folder.is_dir():
                return folder
    if download:
        from antiphase.data.download import fetch

        return fetch(name, base)
    hint = " or add --download" if entry.downloadable else ""
    raise InputError(f"{name} is not below {base}: expected a folder named {' or '.join(entry.folders)}{hint}")
