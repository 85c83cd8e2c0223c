"""The shapes that the Square attack moves about within L2: two bumps of opposite sign, side by side, of norm 1.

B examples, C channels, windows of s x s pixels.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from antiphase.attacks.corners import corner, signs


def grid(shape: torch.Size) -> tuple[int, list[tuple[int, int]]]:
    """The side of the windows of the first proposal, five along the height, and their corners."""
    *_, h, w = shape
    side = max(h // 5, 1)
    edge = max(h - 5 * side, 0) // 2
    tops, lefts = (range(edge, n - side + 1, side) for n in (h, w))
    return side, [(top, left) for top in tops for left in lefts]


def first(draw: Tensor, shape: torch.Size) -> Tensor:
    """(B, C, H, W): a window of bumps at every place of the grid, each lying or standing, its channels up or down.

    The draws are (B, windows * (1 + C)) uniform numbers.
    """
    side, places = grid(shape)
    delta = torch.zeros(shape, dtype=draw.dtype)
    for (top, left), some in zip(places, draw.reshape(len(draw), len(places), -1).unbind(1)):
        delta[:, :, top : top + side, left : left + side] = _turned(side, some)
    return delta


def shifted(delta: Tensor, side: Tensor, draw: Tensor, eps: float) -> Tensor:
    """A perturbation whose energy in one random window is given up for new bumps in another, at norm eps.

    The draws are (B, 5 + C): the two corners, lying or standing, the channels' signs.
    """
    delta = delta.clone()
    for s in sorted(set(side.tolist())):
        here = side == s
        delta[here] = _shifted(delta[here], s, draw[here].to(delta), eps)
    return delta / _norm(delta, (1, 2, 3)) * eps


def _shifted(delta: Tensor, side: int, draw: Tensor, eps: float) -> Tensor:
    sides = torch.full((len(delta),), side, device=delta.device)
    into, gone = (_window(corner(d, sides, delta.shape), side, delta) for d in (draw[:, :2], draw[:, 2:4]))
    either = torch.zeros_like(delta)
    either[into] = either[gone] = 1.0
    there = delta[into]  # (B, C, s, s)
    bumps = _turned(side, draw[:, 4:]) + there / _norm(there, (2, 3))
    unused = (eps**2 - delta.square().sum(dim=(1, 2, 3), keepdim=True)).clamp_min(0) / delta.shape[1]
    energy = unused + (delta * either).square().sum(dim=(2, 3), keepdim=True)  # (B, C, 1, 1)
    delta = delta.clone()
    delta[gone] = 0.0
    delta[into] = bumps / _norm(bumps, (2, 3)) * energy.sqrt()
    return delta


def _window(at: Tensor, side: int, like: Tensor) -> tuple[Tensor, ...]:
    """What indexes the window with its corner `at`, (B, 2), in a (B, C, H, W) tensor."""
    along = torch.arange(side, device=like.device)
    example, channel = (torch.arange(n, device=like.device) for n in like.shape[:2])
    rows, columns = at[:, :1] + along, at[:, 1:] + along  # (B, s)
    return example[:, None, None, None], channel[None, :, None, None], rows[:, None, :, None], columns[:, None, None, :]


def _turned(side: int, draw: Tensor) -> Tensor:
    """(B, C, s, s) bumps: the first of (B, 1 + C) draws turns them, the others give the channels their signs."""
    shape = pair(side).to(draw)
    stands = draw[:, :1, None, None] < 0.5
    return torch.where(stands, shape, shape.T) * signs(draw[:, 1:])[:, :, None, None]


@cache
def pair(side: int) -> Tensor:
    """(s, s): a bump above its negative, together of norm 1."""
    both = torch.cat([_bump(side // 2, side), -_bump(side - side // 2, side)])
    return both / both.square().sum().sqrt()


def _bump(height: int, width: int) -> Tensor:
    """Highest in the middle, by 1/k^2 for every ring of pixels k further in; of norm 1."""
    rows, columns = ((torch.arange(n) - n // 2).abs() for n in (height, width))
    ring = torch.maximum(rows[:, None], columns[None, :])  # (h, w)
    gain = 1.0 / torch.arange(1, max(height, width) // 2 + 2, dtype=torch.float64).square()
    hill = gain.flip(0).cumsum(0).flip(0)[ring]
    return hill / hill.square().sum().sqrt().clamp_min(1e-12)


def _norm(delta: Tensor, dims: tuple[int, ...]) -> Tensor:
    return delta.square().sum(dim=dims, keepdim=True).sqrt().clamp_min(1e-12)
