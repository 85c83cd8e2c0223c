"""From uniform numbers to places and signs, for the Square attack. S examples."""

from __future__ import annotations

import torch
from torch import Tensor


def signs(draw: Tensor) -> Tensor:
    """-1 or 1, each as likely."""
    return torch.where(draw < 0.5, -1.0, 1.0).to(draw)


def corner(draw: Tensor, side: Tensor, shape: torch.Size) -> Tensor:
    """(S, 2): top and left of a square of this side anywhere in the image, from two numbers an example."""
    room = torch.tensor(shape[-2:], device=side.device) - side[:, None] + 1
    return torch.minimum((draw * room).long(), room - 1)  # float32 may round a draw up to one


def inside(draw: Tensor, side: Tensor, shape: torch.Size) -> Tensor:
    """(S, 1, H, W) bool: in a random square."""
    at = corner(draw, side, shape)
    along = [torch.arange(n, device=side.device) for n in shape[-2:]]
    tall, wide = ((a >= start[:, None]) & (a < (start + side)[:, None]) for a, start in zip(along, at.T))
    both: Tensor = tall[:, :, None] & wide[:, None, :]
    return both[:, None]
