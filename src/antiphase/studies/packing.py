"""Maps and pixels in few bytes, for a page. Eight bits a value: a map is off by at most 1/510 of the largest entry of its row,
over the states that share a scale.

The bytes are laid end to end in the order in which they are added, deflated and written as base64; a reader finds them again
by shapes alone. N tokens: class token first, if there is one, then the patches row by row.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LEVELS = 255
ROOM = 12_000_000  # bytes of maps that one model may bring to a page, before they are deflated to about half
WIDEST = 112  # pixels across which an image is shown; larger ones are shrunk


@dataclass
class Packed:
    """Bytes end to end."""

    parts: list[bytes] = field(default_factory=list)

    def add(self, array: NDArray[Any]) -> None:
        self.parts.append(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())

    def text(self) -> str:
        return base64.b64encode(zlib.compress(b"".join(self.parts), 9)).decode("ascii")


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def quantised(maps: Array) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Entries >= 0 as whole numbers 0..255 of the largest of their row in any state, and those: (states, ..., N, M) -> the
    same and (..., N). Each state but the first is written as its difference from the one before, modulo 256: deflates to half.
    """
    top = maps.max(axis=(0, -1))
    share = np.divide(maps, top[..., None], out=np.zeros_like(maps), where=top[..., None] > 0)
    levels = np.rint(LEVELS * share).astype(np.uint8)
    return np.concatenate([levels[:1], levels[1:] - levels[:-1]]), top.astype(np.float32)


def restored(steps: NDArray[np.uint8], top: NDArray[np.float32]) -> Array:
    """The inverse of `quantised`, but for rounding."""
    levels = np.cumsum(steps, axis=0, dtype=np.uint8).astype(np.float64)
    return levels / LEVELS * top[..., None]


def signed_bytes(delta: Array, eps: float) -> NDArray[np.int8]:
    """Changes within +-eps as whole numbers -127..127 of it"""
    return np.rint(127 * np.clip(delta / eps, -1, 1)).astype(np.int8)


def grid_of(tokens: int) -> tuple[int, int]:
    """Patches along a side, and how many tokens (a class token) come before them"""
    side = int(tokens**0.5)
    return side, tokens - side * side


def factor_for(tokens: int, maps: int) -> int:
    """By how much patches are pooled along each side so that so many maps fit the room: 1, or a divisor of the side"""
    side, before = grid_of(tokens)
    for factor in (f for f in range(1, side + 1) if side % f == 0):
        if maps * ((side // factor) ** 2 + before) ** 2 <= ROOM:
            return factor
    return side


def pooled(maps: Array, factor: int) -> Array:
    """Neighbouring patches as one: the mean over those that look, the sum over those looked at. Rows sum to what they did."""
    side, before = grid_of(maps.shape[-1])
    if factor == 1:
        return maps
    row, column = np.divmod(np.arange(side * side), side)
    cell = (row // factor) * (side // factor) + column // factor
    of = np.concatenate([np.arange(before), before + cell])  # token -> where it goes
    member = (of == np.arange(of.max() + 1)[:, None]).astype(np.float64)  # (cells, N)
    joined: Array = (member / member.sum(axis=1, keepdims=True)) @ maps @ member.T
    return joined


def shrunk(pixels: Array, side: int) -> Array:
    """Means over squares of pixels, so that no side is above the widest: (..., H, W) with H = W = side"""
    factor = next(f for f in range(1, side + 1) if side % f == 0 and side // f <= WIDEST)
    small = side // factor
    means: Array = pixels.reshape(*pixels.shape[:-2], small, factor, small, factor).mean(axis=(-3, -1))
    return means
