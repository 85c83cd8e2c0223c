"""Features of images and texts, cached on disk by weights and data, so that a second evaluation only reads them.

They are written in parts, so that an interrupted computation goes on where it was.
n examples, D width of the vision tower, E width of the joint space.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console, files, processes
from antiphase.config import InputError, fingerprint
from antiphase.data.cache import cache_root
from antiphase.data.imageset import PixelSource
from antiphase.files import Damaged
from antiphase.models.classifier import Normalized
from antiphase.models.clip import CLIP, VisionTower
from antiphase.models.fast_path import fast_path
from antiphase.models.forwards import replaced
from antiphase.models.run import Run
from antiphase.runtime import frozen
from antiphase.tensors import read_tensors, write_tensors

FORMAT = 1  # raised when the same model would give other features of the same data
FILE_ROWS = 2048  # examples in a file
ENCODED_AT_ONCE = 64  # examples


class Images(Protocol):
    """An ImageSet or a PairSet."""

    @property
    def name(self) -> str: ...
    @property
    def ids(self) -> NDArray[np.int64]: ...
    @property
    def source(self) -> PixelSource: ...
    @property
    def fingerprint(self) -> str: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Encoder:
    """A run's model with a cache of its features."""

    run: Run
    device: torch.device | str = "cpu"
    keep: bool = True  # read and write features on disk

    @cached_property
    def model(self) -> nn.Module:
        return self.run.model(self.device)

    @property
    def clip(self) -> CLIP:
        if not isinstance(self.model, CLIP):
            raise InputError(
                f"{self.run.folder} is a {self.run.config.title}, which has no text tower: it reads no texts"
            )
        return self.model

    def class_tokens(self, images: Images) -> Tensor:
        """(n, D): the class token after the last norm, before the head of a ViT or the projection of a CLIP"""

        def encode(rows: range) -> Tensor:
            pixels = images.source.read(images.ids[rows.start : rows.stop])
            return class_token(self.model, pixels.to(self.device))

        return self._cached("class token", images.fingerprint, len(images), encode, f"features of {images.name}")

    def embeddings(self, images: Images) -> Tensor:
        """(n, E): images in the joint space, not normalised"""
        tower = self.clip.visual.model
        assert isinstance(tower, VisionTower)
        return self.class_tokens(images) @ tower.projection.detach().cpu()

    def texts(self, texts: Sequence[str]) -> Tensor:
        """(n, E): texts in the joint space, not normalised"""
        digest = hashlib.sha256("\n".join(f"{len(text)} {text}" for text in texts).encode()).hexdigest()

        def encode(rows: range) -> Tensor:
            return self.clip.encode_text(self.clip.tokenize(texts[rows.start : rows.stop]))

        return self._cached("text", digest, len(texts), encode, "captions")

    def _cached(self, kind: str, data: str, n: int, encode: Callable[[range], Tensor], label: str) -> Tensor:
        """(n, ...) features by `encode` of ranges of rows, read from the cache where they are there; shared by all processes."""
        depends = {"format": FORMAT, "kind": kind, "data": data}
        key = fingerprint({**depends, "model": self.run.config, "weights": self.run.weights_digest})
        parts, world = [], processes.current()
        with console.progress(label, n) as advance:
            for start in range(0, n, FILE_ROWS):
                rows = range(start, min(start + FILE_ROWS, n))
                path = cache_root() / "features" / key / f"{start}.safetensors"
                features = world.once(partial(_read, path, len(rows))) if self.keep else None
                if features is None:
                    features = self._encode(rows, encode, advance)
                    if self.keep and world.is_main:
                        _write(path, features)
                else:
                    advance(len(rows), "")
                parts.append(features)
        return torch.cat(parts)

    def _encode(self, rows: range, encode: Callable[[range], Tensor], advance: Callable[[int, str], None]) -> Tensor:
        world, starts = processes.current(), range(rows.start, rows.stop, ENCODED_AT_ONCE)

        def own() -> list[Tensor]:
            features = []
            with frozen(self.model), torch.no_grad(), fast_path(self.model):
                for start in starts[world.rank :: world.size]:
                    some = range(start, min(start + ENCODED_AT_ONCE, rows.stop))
                    features.append(encode(some).float().cpu())
                    advance(len(some), "")
            return features

        by_process = world.each(own)
        return torch.cat([by_process[i % world.size][i // world.size] for i in range(len(starts))])


def class_token(model: nn.Module, pixels: Tensor) -> Tensor:
    """(B, D) of (B, C, H, W) pixels in [0,1]"""
    visual = model.visual if isinstance(model, CLIP) else model
    assert isinstance(visual, Normalized)
    vit: Any = visual.model.vit if isinstance(visual.model, VisionTower) else visual.model
    with replaced({vit.head: _as_it_is}):  # the ViT itself is called, of which the fast path knows what it reads
        features: Tensor = vit(visual.normalize(pixels))
    return features


def _as_it_is(features: Tensor) -> Tensor:
    return features


def _write(path: Path, features: Tensor) -> None:
    write_tensors(path, {"features": features})


def _read(path: Path, n: int) -> Tensor | None:
    """The features that were kept, or None if they are missing or damaged."""
    files.sweep_once(path.parent)
    if not path.exists():
        return None
    try:
        features = read_tensors(path)["features"]
        if len(features) == n:
            return features
    except Damaged:
        pass
    console.say(f"the kept features at {path} are damaged: computing them again")
    return None
