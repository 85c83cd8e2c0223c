"""Tiny copies of data sets in their published layouts: the names are the real ones, the pictures are noise."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from antiphase.data.readers.imagenet_variants import class_wnids


def picture(path: Path) -> None:
    """Noise that belongs to the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(list("/".join(path.parts[-3:]).encode())).integers(
        0, 256, (12, 16, 3), dtype=np.uint8
    )
    Image.fromarray(pixels).save(path)


def lines(path: Path, rows: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows))


def caltech101(root: Path) -> None:
    for name in ("BACKGROUND_Google", "Faces_easy", "accordion"):
        for i in range(32):
            picture(root / "caltech101/101_ObjectCategories" / name / f"image_{i + 1:04d}.jpg")


def dtd(root: Path, inner: str = "dtd/dtd") -> None:
    for split, first in (("train", 0), ("val", 2), ("test", 4)):
        names = [f"{c}/{c}_{i:04d}.jpg" for c in ("banded", "zigzagged") for i in (first, first + 1)]
        lines(root / inner / "labels" / f"{split}1.txt", names)
        for name in names:
            picture(root / inner / "images" / name)


def pets(root: Path) -> None:
    base = root / "oxford-iiit-pet"
    for split, first in (("trainval", 1), ("test", 3)):
        rows = [(f"{n}_{i}", c) for n, c in (("Abyssinian", 1), ("american_bulldog", 2)) for i in (first, first + 1)]
        lines(base / "annotations" / f"{split}.txt", [f"{name} {c} 1 1" for name, c in rows])
        for name, _ in rows:
            picture(base / "images" / f"{name}.jpg")


def flowers(root: Path) -> None:
    from scipy.io import savemat

    base = root / "flowers-102"
    for i in range(6):
        picture(base / "jpg" / f"image_{i + 1:05d}.jpg")
    savemat(base / "imagelabels.mat", {"labels": np.array([1, 2, 1, 2, 102, 2])})
    savemat(base / "setid.mat", {"trnid": np.array([1, 2]), "valid": np.array([3, 4]), "tstid": np.array([6, 5])})


def sun397(root: Path) -> None:
    base = root / "SUN397"
    lines(base / "ClassName.txt", ["/a/abbey", "/a/apartment_building/outdoor"])
    for folder in ("a/abbey", "a/apartment_building/outdoor"):
        for i in range(12):
            picture(base / folder / f"sun_{i:02d}.jpg")


def aircraft(root: Path) -> None:
    base = root / "fgvc-aircraft-2013b/data"
    lines(base / "variants.txt", ["707-320", "A330-200"])
    for split, first in (("train", 0), ("val", 2), ("test", 4)):
        lines(base / f"images_variant_{split}.txt", [f"{first:07d} 707-320", f"{first + 1:07d} A330-200"])
        for i in (first, first + 1):
            picture(base / "images" / f"{i:07d}.jpg")


def food101(root: Path) -> None:
    for split, first in (("train", 0), ("test", 2)):
        listed = {c: [f"{c}/{i}" for i in (first, first + 1)] for c in ("apple_pie", "waffles")}
        lines(root / "food-101/meta" / f"{split}.json", [json.dumps(listed)])
        for name in (name for names in listed.values() for name in names):
            picture(root / "food-101/images" / f"{name}.jpg")


def by_wnid(folder: str, table: str) -> Callable[[Path], None]:
    def build(root: Path) -> None:
        for wnid in (class_wnids(table)[0], class_wnids(table)[-1]):
            for i in range(2):
                picture(root / folder / wnid / f"{i}.jpg")

    return build


def imagenet_v2(root: Path) -> None:
    for label in (0, 2, 10, 999):
        picture(root / "imagenetv2-matched-frequency-format-val" / str(label) / f"{label}.jpeg")


TREES: dict[str, Callable[[Path], None]] = {
    "caltech101": caltech101,
    "dtd": dtd,
    "pets": pets,
    "flowers": flowers,
    "sun397": sun397,
    "aircraft": aircraft,
    "food101": food101,
    "imagenet-v2": imagenet_v2,
    "imagenet-a": by_wnid("imagenet-a", "imagenet_a_synsets"),
    "imagenet-r": by_wnid("imagenet-r", "imagenet_r_synsets"),
    "imagenet-sketch": by_wnid("sketch", "imagenet_synsets"),
}


def mmvp(root: Path, photographs: str = "MLLM_VLM Images") -> None:
    kinds = ("Orientation and Direction", "Texts")
    lines(
        root / "MMVP_VLM/Questions.csv",
        ["Question ID,Type,Statement", *(f'{i + 1},{kinds[i // 4]},"a thing, seen in way {i}"' for i in range(8))],
    )
    for i in range(8):
        picture(root / "MMVP_VLM" / photographs / kinds[i // 4] / f"{i + 1}.jpg")
