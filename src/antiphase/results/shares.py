"""Images measured in shares, one for each process that `torchrun` started, and put together as if one had measured all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from antiphase import processes
from antiphase.data.imageset import ImageSet

T = TypeVar("T")
BLOCK = 128  # neighbours that stay together: no measure takes more images at once, so every process sees whole batches of one
Rows = NDArray[np.int64]


def in_shares(images: ImageSet, compute: Callable[[ImageSet], T]) -> T:
    """What `compute` says of all images, each process having computed its share; of measures that take images one by one."""
    world = processes.current()
    if world.size == 1 or len(images) < world.size:
        return compute(images)
    shares = world.shares(len(images), BLOCK)
    value: T = whole(world.each(lambda: compute(images.take(shares[world.rank]))), shares)
    return value


def whole(parts: Sequence[Any], shares: Sequence[Rows]) -> Any:
    """Parts of equal form as one: arrays with a row per image in the order of the images, everything else as each part has it."""
    first = parts[0]
    if isinstance(first, np.ndarray):
        return _rows(parts, shares)
    if isinstance(first, list | tuple):
        return type(first)(whole(each, shares) for each in zip(*parts, strict=True))
    if isinstance(first, dict):
        return {key: whole([part[key] for part in parts], shares) for key in first}
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in dataclasses.fields(first)]
        return dataclasses.replace(first, **{name: whole([getattr(p, name) for p in parts], shares) for name in names})
    if any(part != first for part in parts):
        raise AssertionError(f"processes disagree: {first!r} and {parts[1]!r}")
    return first


def _rows(parts: Sequence[NDArray[Any]], shares: Sequence[Rows]) -> NDArray[Any]:
    if any(part.ndim == 0 or len(part) != len(share) for part, share in zip(parts, shares)):
        if any(not np.array_equal(part, parts[0], equal_nan=True) for part in parts):
            raise AssertionError("processes disagree about an array that has no row per image")
        return parts[0]
    widths = {part.shape[1:] for part in parts}
    shape = (sum(map(len, shares)), *(max(sizes) for sizes in zip(*widths)))
    joined = np.empty_like(parts[0], shape=shape)
    if len(widths) > 1:  # images of one share took more probes: NaN where an image took fewer, as inside a share
        joined[:] = np.nan
    for part, share in zip(parts, shares):
        within: tuple[Any, ...] = (share, *(slice(0, size) for size in part.shape[1:]))
        joined[within] = part
    return joined
