"""Decode once: a small set becomes one uint8 array on disk, memory-mapped afterwards and checked against its digest."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from antiphase import console, files

CACHE_LIMIT = 2 * 2**30  # bytes decoded; above this a set streams from its files instead


def cache_root() -> Path:
    """$ANTIPHASE_CACHE, or antiphase/ in the user's cache folder."""
    if configured := os.environ.get("ANTIPHASE_CACHE"):
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "antiphase"


def decoded(
    key: str, shape: tuple[int, int, int, int], images: Callable[[], Iterator[NDArray[np.uint8]]], label: str
) -> tuple[NDArray[np.uint8], str]:
    """The decoded set for `key`, read-only, and its digest; `images()` yields (C, H, W) arrays if it has to be decoded first.

    Written image by image, so making it needs no more memory than one image.
    """
    name = hashlib.sha256(f"v1/{key}/{shape}".encode()).hexdigest()[:24]
    path, note = cache_root() / f"{name}.npy", cache_root() / f"{name}.json"
    if path.exists() and note.exists():
        digest = files.sha256(path)
        if (about := files.read_kept(note, "sha256")) is not None and about["sha256"] == digest:
            return np.load(path, mmap_mode="r"), digest
        console.say(f"the cached copy of {label} at {path} is damaged: decoding it again")

    def write(temporary: Path) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.uint8)), "fortran_order": False, "shape": shape}
        with temporary.open("wb") as file, console.progress(f"decoding {label}", total=shape[0]) as advance:
            np.lib.format.write_array_header_1_0(file, header)
            file.flush()
            os.posix_fallocate(file.fileno(), 0, file.tell() + math.prod(shape))  # a full disk is noticed now
            for i, image in enumerate(images()):
                file.write(np.ascontiguousarray(image, dtype=np.uint8).reshape(shape[1:]).tobytes())
                if i % 100 == 99:
                    advance(100, "")

    files.write_whole(path, write)
    digest = files.sha256(path)
    files.write_json(note, {"sha256": digest, "of": label, "shape": list(shape)})
    return np.load(path, mmap_mode="r"), digest
