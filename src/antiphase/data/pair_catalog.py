"""name -> PairSet: captioned images by the name of their set, or of a folder in a known layout."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from antiphase.config import InputError
from antiphase.data.catalog import CATALOG, COCO_CAPTIONS, CatalogEntry, find_folder

if TYPE_CHECKING:
    from antiphase.data.pairs import PairSet


PAIR_CATALOG: dict[str, CatalogEntry] = {
    "flickr8k": CatalogEntry(("flickr8k", "Flickr8k", "flickr8k-*"), size=224),
    "flickr30k": CatalogEntry(("flickr30k", "Flickr30k", "flickr30k-*"), size=224),
    "coco": CatalogEntry((COCO_CAPTIONS, "coco", "coco2017", "coco-*"), size=224),
    "tiles": CATALOG["tiles"],
    "tiles-digits": CATALOG["tiles-digits"],
}
TILES = ("tiles", "tiles-digits")
SPLITS = ("train", "val", "test", "all")


def is_captioned(name: str) -> bool:
    """Whether the name, folder or pattern stands for images with captions; False for images with classes or nothing."""
    return name in PAIR_CATALOG or _layout(name) is not None


def load_pairs(
    name: str,
    split: str,
    *,
    root: str | Path | None = None,
    image_size: int | None = None,
    allow: Collection[str] = (),
) -> PairSet:
    """A split of a named set of captioned images, of a folder in such a layout, or of webdataset shards (folder, glob, range).

    `allow` names what may be left out (data/tolerance.py); it is counted in `skipped`. A set without splits of its own has a
    fixed choice of images as its test split; "all" is everything.
    """
    if split not in SPLITS:
        raise InputError(f"split is {split!r}: it takes {', '.join(SPLITS)}")
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size={image_size} cannot be used: a side has at least one pixel")
    entry = PAIR_CATALOG.get(name)
    if entry is not None and not entry.resizable and image_size not in (None, entry.size):
        raise InputError(f"image_size={image_size} cannot be used: {name} images are {entry.size} x {entry.size}")
    size = image_size or (entry.size if entry else 224)
    layout = name if entry else _layout(name)
    if layout is None:
        known = ", ".join(PAIR_CATALOG)
        raise InputError(f"there are no captioned images {name!r}: known are {known}, or a folder or glob of shards")
    folder = find_folder(name, entry, root) if entry and entry.folders else Path(name)
    label = name if entry else folder.resolve().name
    if name in TILES:
        from antiphase.data.readers.tiles import load_tile_pairs

        pairs = load_tile_pairs(name, split, folder)
    elif layout == "shards":
        from antiphase.data.readers.shards import load_shards

        pairs = load_shards(label, split, str(folder), size, allow)
    else:
        from antiphase.data.readers.captions import load_coco_captions, load_flickr

        read = load_coco_captions if layout == "coco" else partial(load_flickr, label)
        pairs = read(split, folder, size, allow)
    return replace(pairs, origin=name if entry else str(Path(name).resolve()))


def _layout(name: str) -> str | None:
    folder = Path(name)
    if glob.has_magic(name) or folder.suffix == ".tar":
        return "shards" if tars(name) else None
    if not folder.is_dir():
        return None
    for layout, pattern in (
        ("shards", "*.tar"),
        ("shards", "*/*.tar"),
        ("coco", "annotations/captions_*.json"),
        ("flickr", "*.token.txt"),
        ("flickr", "*.token"),
        ("flickr", "dataset_flickr*.json"),
    ):
        if any(folder.glob(pattern)):
            return layout
    return None


def tars(pattern: str) -> tuple[Path, ...]:
    """The shards that a glob matches; every single one of a range as webdataset writes it, `shards/{00000..00331}.tar`."""
    span = re.search(r"\{(\d+)\.\.(\d+)\}", pattern)
    if span is None:
        return tuple(sorted(Path(path) for path in glob.glob(pattern) if path.endswith(".tar")))  # noqa: PTH207
    first, last = span.groups()
    names = [
        f"{pattern[: span.start()]}{number:0{len(first)}d}{pattern[span.end() :]}"
        for number in range(int(first), int(last) + 1)
    ]
    shards = [(name, tars(name)) for name in names]
    for name, paths in shards:
        if not paths:
            raise InputError(f"{pattern} asks for {name}, which is not there: give the range that you have, or a glob")
    return tuple(path for _, paths in shards for path in paths)
