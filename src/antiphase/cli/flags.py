"""Flags that several commands share, each meaning the same everywhere. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from antiphase.config import InputError
from antiphase.data.catalog import check_name, load
from antiphase.scales import SCALES, ScaleName

if TYPE_CHECKING:
    from antiphase.data.imageset import ImageSet


@dataclass(frozen=True, kw_only=True)
class DataFlags:
    """Which images."""

    data: str = "digits"  # digits, cifar10, cifar100, tiny-imagenet, imagenet, coco, or the path of a folder of images
    data_root: Path | None = None  # where data sets lie; $ANTIPHASE_DATA when not given
    image_size: int | None = None  # side to which photographs are brought
    download: bool = False  # fetch the data set if it is not there and can be fetched

    def __post_init__(self) -> None:
        check_name(self.data)

    def load(self, split: str) -> ImageSet:
        return load(self.data, split, root=self.data_root, image_size=self.image_size, download=self.download)


@dataclass(frozen=True, kw_only=True)
class TestImages(DataFlags):
    """Which test images."""

    images: int | None = None  # at most so many, a class-balanced subset; None: all

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, images=self.images)

    @classmethod
    def at(cls, scale: ScaleName) -> TestImages:
        return cls(data=SCALES[scale].data, images=SCALES[scale].eval_images)

    def choose(self, seed: int) -> ImageSet:
        whole = self.load("test")
        return whole.subset(min(self.images or len(whole), len(whole)), seed)


def at_least(least: int, **values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < least:
            raise InputError(f"{name}={value} must be at least {least}")


def existing_run(folder: Path) -> Path:
    """Refuse a folder that is no run before the slow imports."""
    if not (folder / "run.json").is_file():
        raise InputError(f"{folder} is not a run: it has no run.json (make one with antiphase train --out {folder})")
    return folder
