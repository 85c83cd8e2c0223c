"""Adversarial images that survive being saved: pixels on the grid of whole 255ths, inside the set."""

from __future__ import annotations

from torch import Tensor

from antiphase.attacks.threat_model import L2, ThreatModel


def to_eight_bits(adv: Tensor, x: Tensor, within: ThreatModel) -> Tensor:
    """The nearest grid point inside the set. ThreatModel L2 every pixel goes to the next 255th on its way back to the original,
    so that the distance cannot grow.

    Where originals lie between 255ths (digits) and the budget is small there may be no grid point in the set at all;
    whether the returned one is inside is for the caller to judge.
    """
    if isinstance(within, L2):
        grid = (adv * 255).round()
        there = (grid / 255 - adv).abs() < 1e-6  # already on the grid, but for the rounding of float32
        back = (adv * 255).floor().where(adv > x, (adv * 255).ceil())
        return (grid.where(there, back) / 255).clamp(0, 1)
    hair = 1e-3  # of a 255th: x + eps is a grid point where x and eps are, whatever float32 makes of it
    low, high = ((x - within.eps) * 255 - hair).ceil(), ((x + within.eps) * 255 + hair).floor()
    return ((adv * 255).round().clamp(min=low).clamp(max=high) / 255).clamp(0, 1)


def to_bytes(pixels: Tensor) -> Tensor:
    """uint8, exact for pixels on the grid."""
    return (pixels * 255).round().byte()
