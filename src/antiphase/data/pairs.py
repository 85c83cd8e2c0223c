"""PairSet: images, each with one or more captions. The captions are in memory, the pixels are read when they are needed.

n images, C channels, H x W pixels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from antiphase import runtime
from antiphase.config import InputError
from antiphase.data.imageset import ImageSet, PixelSource

HELD_OUT = 1000  # images at most, of a set that comes without a test split of its own; a fifth of a small one


class Pairs(NamedTuple):
    """Some images, each with one caption, and their ids."""

    pixels: Tensor  # (B, C, H, W) float32 in [0,1]
    captions: list[str]  # one per image
    ids: NDArray[np.int64]  # (B,) the keys of the examples' random streams


@dataclass(frozen=True)
class PairSet:
    """One split of one set of captioned images, or a subset of it."""

    name: str
    split: str  # "train", "test", or "all"
    captions: tuple[tuple[str, ...], ...]  # of each image, at least one
    ids: NDArray[np.int64]  # (n,) rows of the source; they stay with an image through every subset
    source: PixelSource
    content: str  # digest of what the pixels were read from
    origin: str = ""  # the name or path under which `load_pairs` finds it again
    skipped: tuple[tuple[str, int], ...] = ()  # what the user allowed to be left out, and how many of it
    class_names: tuple[str, ...] = ()  # of the image set of the same name, where the captions speak of its classes
    templates: tuple[str, ...] = ()  # how they word a class on its own

    def __post_init__(self) -> None:
        if not len(self.captions):
            raise InputError(f"the {self.split} split of {self.name} is empty")
        if len(self.captions) != len(self.ids):
            raise InputError(f"{self.name}: captions of {len(self.captions)} images for {len(self.ids)} images")
        for row, texts in enumerate(self.captions):
            if not texts or not all(text.strip() for text in texts):
                raise InputError(f"{self.name}: image {self.ids[row]} has no caption, or an empty one")

    def __len__(self) -> int:
        return len(self.captions)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.source.shape

    @property
    def fingerprint(self) -> str:
        """Changes with the source, the choice of images or any caption."""
        digest = hashlib.sha256(f"{self.name}/{self.split}/{self.shape}/{self.content}".encode())
        digest.update(self.ids.tobytes())
        for texts in self.captions:
            digest.update(f"{len(texts)}".encode())
            for text in texts:
                encoded = text.encode()
                digest.update(f"/{len(encoded)}/".encode() + encoded)
        return digest.hexdigest()[:16]

    def take(self, rows: NDArray[np.int64]) -> PairSet:
        """The images at these positions, in this order."""
        return replace(self, captions=tuple(self.captions[i] for i in rows), ids=self.ids[rows])

    def subset(self, n: int | None, seed: int = 0) -> PairSet:
        """n images; a larger subset of the same seed contains a smaller one."""
        if n is None or n == len(self):
            return self
        if not 0 < n <= len(self):
            raise InputError(f"the {self.split} split of {self.name} holds {len(self)} images: cannot take {n} of them")
        return self.take(np.sort(np.random.default_rng([seed, 0]).permutation(len(self))[:n]))

    def pixels(self, rows: NDArray[np.int64]) -> Tensor:
        """(B, C, H, W) of the images at these positions of this (sub)set"""
        return self.source.read(self.ids[rows])

    def choose(self, rows: NDArray[np.int64], key: tuple[int | str, ...]) -> list[str]:
        """One caption of each of these images, from the image's own stream under `key`; reads no pixels."""
        draws = runtime.uniform(key, self.ids[rows], ())
        return [self.captions[row][int(draw * len(self.captions[row]))] for row, draw in zip(rows, draws)]

    def batches(self, size: int) -> Iterator[Pairs]:
        """Every image once, in order, with its first caption."""
        for start in range(0, len(self), size):
            rows = np.arange(start, min(start + size, len(self)))
            yield Pairs(self.pixels(rows), [self.captions[i][0] for i in rows], self.ids[rows])


@dataclass(frozen=True)
class Captions:
    """Texts of their own, for what is asked of a text tower."""

    name: str
    split: str
    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.texts:
            raise InputError(f"{self.name} holds no captions")

    @classmethod
    def of(cls, pairs: PairSet, n: int | None = None, seed: int = 0) -> Captions:
        """The first caption of each image, of n images at most."""
        some = pairs.subset(min(n or len(pairs), len(pairs)), seed)
        return cls(pairs.name, pairs.split, tuple(texts[0] for texts in some.captions))

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of their images: there are none."""
        return 0, 0, 0

    @property
    def fingerprint(self) -> str:
        """Changes with any text."""
        joined = "\n".join(f"{len(text)} {text}" for text in self.texts)
        return hashlib.sha256(f"{self.name}/{self.split}/{joined}".encode()).hexdigest()[:16]


def of_classes(images: ImageSet, words: Sequence[Sequence[str]]) -> PairSet:
    """Images whose captions are the words of their class: every image of a class has the same ones."""
    if len(words) != images.classes:
        raise InputError(f"{images.name} has {images.classes} classes, and there are words for {len(words)}")
    texts = [tuple(of_class) for of_class in words]
    return PairSet(
        name=images.name,
        split=images.split,
        captions=tuple(texts[label] for label in images.labels),
        ids=images.ids,
        source=images.source,
        content=images.content,
        origin=images.origin,
    )


def held_out(keys: Sequence[str], split: str, name: str) -> list[str]:
    """The keys of one split of a set that has none: by the hash of each key, so that their order decides nothing."""
    if split not in ("train", "test"):
        raise InputError(f"{name} comes without a {split} split of its own: it takes train, test or all")
    ranked = sorted(keys, key=lambda key: hashlib.sha256(key.encode()).digest())
    test = set(ranked[: min(HELD_OUT, len(ranked) // 5)])
    return [key for key in keys if (key in test) == (split == "test")]
