"""Flags that several commands share, each meaning the same everywhere. No torch."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Suppress

from antiphase.config import InputError, check_fields
from antiphase.data.catalog import CATALOG, check_name, entry_of, load
from antiphase.models.prompts import check_prompts
from antiphase.scales import SCALES, ScaleName

if TYPE_CHECKING:
    from antiphase.data.imageset import ImageSet


@dataclass(frozen=True, kw_only=True)
class DataFlags:
    """Which images."""

    data: str | None = None  # digits, cifar10, imagenet, ... (docs/data.md), or a folder of images
    data_root: Path | None = None  # where data sets lie; $ANTIPHASE_DATA when not given
    image_size: int | None = None  # side to which photographs are brought
    download: bool = False  # fetch the data set if it is not there and can be fetched

    def __post_init__(self) -> None:
        check_fields(self, image_size=1)
        if self.data is not None:
            check_name(self.data)

    def load(self, split: str) -> ImageSet:
        if self.data is None:
            raise InputError("no data set is named: give --data")
        images = load(self.data, split, root=self.data_root, image_size=self.image_size, download=self.download)
        from antiphase.runtime import use_threads_that_pay

        use_threads_that_pay(images.shape)
        return images

    def of_run(self, about: dict[str, Any]) -> DataFlags:
        """The data a run was trained on, where the flags do not name another."""
        if about["model"].get("kind") == "ForeignConfig":
            return self._of_foreign(about)
        vision = about["model"].get("vision")
        if vision is not None:
            data = self.data or (about["data"].get("origin") if about["data"].get("class_names") else None)
            if data is None:  # a CLIP that was converted, or trained on captions
                raise InputError("this CLIP has no classes of its own: name images with --data")
            resizable = entry_of(data).resizable
            return replace(self, data=data, image_size=self.image_size or (vision["image"] if resizable else None))
        side = about["data"]["shape"][-1]
        if self.data is not None:  # a folder is read in the size that the run takes
            return self if self.data in CATALOG else replace(self, image_size=self.image_size or side)
        origin = about["data"]["origin"]
        return replace(self, data=origin, image_size=self.image_size or (side if entry_of(origin).resizable else None))

    def _of_foreign(self, about: dict[str, Any]) -> DataFlags:
        """Of a model that was made elsewhere: photographs in the size to which it would resize them, so that a budget is in
        pixels that it sees; small images as they are, and the model enlarges them."""
        if self.data is None:
            raise InputError(f"it is not known on what {about['title']} was trained: name images with --data")
        return replace(self, image_size=self.image_size or self._side_for(about["source"]["side"]))

    def _side_for(self, side: int) -> int | None:
        """In which these images are read for a model that would resize them to `side`; None: as they are."""
        assert self.data is not None
        if self.data in CATALOG:
            entry = entry_of(self.data)
            return side if entry.resizable and entry.size >= PHOTOGRAPH else None
        from antiphase.data.readers.image_folders import own_side

        return own_side(Path(self.data), side) or side


PHOTOGRAPH = 224  # side from which on a data set is one of photographs, which have sizes of their own


@dataclass(frozen=True, kw_only=True)
class TestImages(DataFlags):
    """Which test images; of the data set that the run was trained on, where --data does not name another."""

    images: int | None = None  # at most so many, a class-balanced subset; None: all
    prompts: str | None = None  # of a CLIP: paper, a, digit, imagenet80, a file; None: its own, or the fallback paper

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, images=1)
        if self.prompts is not None:
            check_prompts(self.prompts)

    @classmethod
    def at(cls, scale: ScaleName) -> TestImages:
        return cls(images=SCALES[scale].eval_images)

    def choose(self, about: dict[str, Any], seed: int) -> ImageSet:
        return self.of_run(about).load("test").at_most(self.images, seed)


@dataclass(frozen=True, kw_only=True)
class OfRuns:
    """What every command about trained runs takes."""

    scale: ScaleName = "smoke"  # sizes of everything here, where a flag does not say otherwise
    source: TestImages = TestImages()
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    json: bool = False  # print the result as JSON on stdout


def fields_of(config: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a command and of the configs in it that are arguments, with their values."""
    suppressed = marked(type(config), Suppress)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from fields_of(value)
        elif field.name not in suppressed:
            yield field.name, value


def marked(kind: type, marker: Any) -> set[str]:
    """Fields with a marker of tyro's; `Suppress`: the command asks for them in another way, as a list, or once for all its
    questions."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name for name, hint in hints.items() if marker in getattr(hint, "__metadata__", ())}
