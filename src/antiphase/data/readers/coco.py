"""COCO as a classification set: an image's label is the category that covers the largest area of it; all are kept."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    raw = files.read_json(table, "images", "annotations", "categories")
    try:
        index, areas = _areas(raw)
        images = sorted(
            (image for image in raw["images"] if areas.get(image["id"])), key=lambda image: int(image["id"])
        )
        names = [str(image["file_name"]) for image in images]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{table} is not a COCO instances file ({error!r} is missing or of another kind)") from None
    except IndexError as error:
        raise InputError(f"{table}: {error}") from None
    paths = tuple(images_dir / name for name in names)
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path} is missing: {table.name} lists it")
    if not paths:
        raise InputError(f"{table} annotates none of the images in {images_dir}")
    source, content = file_pixels(paths, size, f"coco {split}")
    by_image = [areas[image["id"]] for image in images]
    labels = np.array([max(sorted(area), key=area.__getitem__) for area in by_image], dtype=np.int64)
    return ImageSet(
        name="coco",
        split=split,
        class_names=tuple(index),
        labels=labels,
        ids=np.arange(len(images)),
        source=source,
        content=content + files.sha256(table),
        categories=tuple(frozenset(area) for area in by_image),
        boxes=_boxes(raw, images, index, labels),
    )


def _boxes(
    raw: dict[str, Any], images: list[dict[str, Any]], index: dict[str, int], labels: NDArray[np.int64]
) -> tuple[NDArray[np.float64], ...] | None:
    """Around the objects of each image's label, as shares of the centre square that is kept; None where the file lacks them.

    What lies outside of the square is cut off: an image may be left without a box.
    """
    place = {c["id"]: index[str(c["name"])] for c in raw["categories"]}
    of_image: dict[int, list[tuple[int, list[float]]]] = defaultdict(list)
    for annotation in raw["annotations"]:
        if "bbox" not in annotation:
            return None
        of_image[annotation["image_id"]].append((place[annotation["category_id"]], annotation["bbox"]))
    if not all("width" in image and "height" in image for image in images):
        return None
    each = []
    for image, label in zip(images, labels):
        own = [box for category, box in of_image[image["id"]] if category == label]
        x, y, width, height = np.array(own, dtype=np.float64).T
        side = min(image["width"], image["height"])
        left, top = x - (image["width"] - side) / 2, y - (image["height"] - side) / 2
        boxes = np.stack([top, left, top + height, left + width], axis=1).clip(0, side) / side
        each.append(boxes[(boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])])
    return tuple(each)


def _areas(raw: dict[str, Any]) -> tuple[dict[str, int], dict[int, dict[int, float]]]:
    """Class names in the order of their ids, and for each image the total area of each of its classes."""
    categories = sorted(raw["categories"], key=lambda c: int(c["id"]))
    place = {c["id"]: i for i, c in enumerate(categories)}
    areas: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for annotation in raw["annotations"]:
        if annotation["category_id"] not in place:
            raise IndexError(f"category {annotation['category_id']} of annotation {annotation['id']} is out of range")
        areas[annotation["image_id"]][place[annotation["category_id"]]] += annotation["area"]
    return {str(c["name"]): i for i, c in enumerate(categories)}, areas
