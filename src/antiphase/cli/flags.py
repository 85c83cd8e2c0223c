"""Flags that several commands share, each meaning the same everywhere. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from antiphase.config import InputError
from antiphase.data.catalog import check_name, load

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


def at_least(least: int, **values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < least:
            raise InputError(f"{name}={value} must be at least {least}")
