"""From encoded images to pixels: one decoder for every set, and the source that reads image files as they are needed."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torchvision.transforms import v2

from antiphase import console, files
from antiphase.config import InputError
from antiphase.data import cache
from antiphase.data.imageset import ArraySource, PixelSource

BROKEN = (  # what PIL raises for files that are no whole images, or absurdly large ones
    UnidentifiedImageError,
    Image.DecompressionBombError,
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
    zlib.error,
)
IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".ppm", ".tif", ".tiff"}


def decode(encoded: bytes | Path, where: str, size: int | None = None) -> NDArray[np.uint8]:
    """(3, H, W) RGB; with `size`, the short side is scaled to it (bilinear) and the centre square kept."""
    try:
        with Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded) as image:
            rgb = image.convert("RGB")
    except BROKEN as error:
        raise InputError(f"{where} cannot be decoded as an image ({error})") from None
    if size is not None:
        rgb = v2.functional.center_crop(v2.functional.resize(rgb, [size]), [size, size])
    return np.ascontiguousarray(np.asarray(rgb).transpose(2, 0, 1))


class EncodedSource:
    """Images that are decoded when they are read, several at a time: memory does not grow with the number of images."""

    size: int

    def __len__(self) -> int:
        raise NotImplementedError

    def decode(self, row: int) -> NDArray[np.uint8]:
        """(3, size, size)"""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, int, int]:
        return 3, self.size, self.size

    def read(self, rows: NDArray[np.int64]) -> Tensor:
        with ThreadPoolExecutor(max_workers=4) as pool:  # PIL lets go of the interpreter lock while it decodes
            images = list(pool.map(self.decode, rows.tolist()))
        return torch.from_numpy(np.stack(images)).to(torch.float32).div_(255)


@dataclass(frozen=True)
class FileSource(EncodedSource):
    """One file per image."""

    paths: tuple[Path, ...]
    size: int

    def __len__(self) -> int:
        return len(self.paths)

    def decode(self, row: int) -> NDArray[np.uint8]:
        return decode(self.paths[row], str(self.paths[row]), self.size)


def file_pixels(paths: tuple[Path, ...], size: int, label: str) -> tuple[PixelSource, str]:
    """A source for these files and the digest of what they are."""
    return decoded_once(FileSource(paths, size), stamp(paths), label)


def decoded_once(source: EncodedSource, content: str, label: str) -> tuple[PixelSource, str]:
    """The source decoded once if it is small, streamed if it is large, and its digest.

    The digest is of the decoded pixels; of a streamed set it is `content`, which says what it was read from (to read every
    byte of a large set would take longer than to use it).
    """
    shape = (len(source), *source.shape)
    if np.prod(shape) > cache.CACHE_LIMIT:
        return source, content

    def images() -> Iterator[NDArray[np.uint8]]:
        with ThreadPoolExecutor(max_workers=4) as pool:
            for start in range(0, len(source), 256):
                yield from pool.map(source.decode, range(start, min(start + 256, len(source))))

    array, digest = cache.decoded(content, shape, images, label)
    return ArraySource(array), digest


def undecodable(source: EncodedSource, content: str, label: str) -> set[int]:
    """The rows that are no whole images. Every one is decoded to know; the answer is kept beside the decoded copies."""
    path = (
        cache.cache_root() / f"undecodable-{hashlib.sha256(f'{content}/{len(source)}'.encode()).hexdigest()[:24]}.json"
    )
    if (kept := files.read_kept(path, "rows")) is None:
        with ThreadPoolExecutor(max_workers=4) as pool, console.progress(f"looking at {label}", len(source)) as advance:
            broken = []
            for row, bad in enumerate(pool.map(lambda row: _is_broken(source, row), range(len(source)))):
                broken += [row] if bad else []
                advance(1, "")
        kept = {"rows": broken, "of": label}
        files.write_json(path, kept)
    return set(kept["rows"])


def stamp(paths: Sequence[Path]) -> str:
    """A digest of names, sizes and modification times."""
    stats = [_stat(path) for path in paths]
    lines = [f"{'/'.join(p.parts[-3:])} {s.st_size} {s.st_mtime_ns}" for p, s in zip(paths, stats)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def native_side(folders: Iterable[Path], at_most: int) -> int | None:
    """The side of all images below these folders, from the heads of their files, if all are squares of one side of at most so
    many pixels. A file that cannot be read has no say here: it is refused by name when it is decoded."""
    sides: set[int] = set()
    for path in _image_files(folders):
        try:
            with Image.open(path) as image:
                sides.update(image.size)
        except BROKEN:
            continue
        if len(sides) > 1 or max(sides) > at_most:
            return None
    return next(iter(sides), None)


def _image_files(folders: Iterable[Path]) -> Iterator[Path]:
    entered = set()
    for folder in folders:
        for parent, below, names in os.walk(folder, followlinks=True):
            if (real := Path(parent).resolve()) in entered:  # by a link that leads back
                below.clear()
                continue
            entered.add(real)
            below[:] = [name for name in below if not name.startswith(".")]
            paths = (Path(parent, name) for name in names)
            yield from (p for p in paths if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file())  # a pipe never ends


def _is_broken(source: EncodedSource, row: int) -> bool:
    try:
        source.decode(row)
    except InputError:
        return True
    return False


def _stat(path: Path) -> os.stat_result:
    """Of a file that can be read to its end, and whose name can be written down."""
    files.require_text(path)
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is not a regular file: it is a folder, a pipe or a device; move it away")
    return status
