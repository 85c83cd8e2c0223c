"""COCO as a classification set: an image's label is the category that covers the largest area of it; all are kept."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from antiphase import files
from antiphase.config import InputError
from antiphase.data.decode import file_pixels
from antiphase.data.imageset import ImageSet


def load_coco(split: str, folder: Path, size: int) -> ImageSet:
    """`{val,train}20xx/*.jpg` with `annotations/instances_{val,train}20xx.json`; images without annotations are left out."""
    part = "val" if split == "test" else "train"
    photographs = sorted(p for p in folder.glob(f"{part}20*") if p.is_dir())
    if not photographs:
        raise InputError(f"{folder} has no {split} split: expected a folder such as {folder / (part + '2017')}")
    images_dir = photographs[-1]
    table = folder / "annotations" / f"instances_{images_dir.name}.json"
    if not table.is_file():
        raise InputError(f"{table} is missing: it holds the categories of the images in {images_dir}")
    raw = files.read_json(table)
    index = {c["id"]: i for i, c in enumerate(sorted(raw["categories"], key=lambda c: c["id"]))}
    areas: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for annotation in raw["annotations"]:
        if annotation["category_id"] not in index:
            raise InputError(
                f"{table}: category {annotation['category_id']} of annotation {annotation['id']} is out of range"
            )
        areas[annotation["image_id"]][index[annotation["category_id"]]] += annotation["area"]
    images = [image for image in sorted(raw["images"], key=lambda image: image["id"]) if areas.get(image["id"])]
    paths = tuple(images_dir / image["file_name"] for image in images)
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path} is missing: {table.name} lists it")
    if not paths:
        raise InputError(f"{table} annotates none of the images in {images_dir}")
    source, content = file_pixels(paths, size, f"coco {split}")
    by_image = [areas[image["id"]] for image in images]
    return ImageSet(
        name="coco",
        split=split,
        class_names=tuple(c["name"] for c in sorted(raw["categories"], key=lambda c: c["id"])),
        labels=np.array([max(sorted(area), key=area.__getitem__) for area in by_image], dtype=np.int64),
        ids=np.arange(len(images)),
        source=source,
        content=content + files.sha256(table),
        categories=tuple(frozenset(area) for area in by_image),
    )
