"""Augmentation that belongs to the example: what happens to an image in an epoch depends on (seed, epoch, id) alone."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from antiphase import runtime


def crop_flip(pixels: Tensor, ids: NDArray[np.int64], *, seed: int, epoch: int) -> Tensor:
    """Shift by up to an eighth of the side (zeros enter at the border) and mirror half of the images. (B, C, H, W)"""
    batch, _, height, width = pixels.shape
    margin = max(1, height // 8)
    draws = runtime.uniform(("augment", seed, epoch), ids, (3,))  # (B, 3)
    down, right = (torch.from_numpy((draws[:, i] * (2 * margin + 1)).astype(np.int64)) for i in (0, 1))
    mirror = torch.from_numpy(draws[:, 2] < 0.5)
    columns = torch.where(mirror[:, None], torch.arange(width).flip(0), torch.arange(width)) + right[:, None]  # (B, W)
    rows = torch.arange(height) + down[:, None]  # (B, H)
    padded = F.pad(pixels, (margin,) * 4)
    return (
        padded[torch.arange(batch)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        .permute(0, 3, 1, 2)
        .contiguous()
    )


def resized_crop(
    pixels: Tensor, ids: NDArray[np.int64], *, seed: int, epoch: int, area: tuple[float, float] = (0.5, 1.0)
) -> Tensor:
    """A random rectangle of each image, resized to the whole image's size (bilinear); its area is a share within `area`, its
    sides are 3:4 to 4:3."""
    draws = runtime.uniform(("resized crop", seed, epoch), ids, (4,))  # (B, 4)
    share = area[0] + (area[1] - area[0]) * draws[:, 0]
    ratio = np.exp(np.log(4 / 3) * (2 * draws[:, 1] - 1))
    width, height = (np.minimum(np.sqrt(share * r), 1.0) for r in (ratio, 1 / ratio))  # as shares of the image's
    right, down = (1 - width) * (2 * draws[:, 2] - 1), (1 - height) * (2 * draws[:, 3] - 1)  # its centre, -1 to 1
    zero = np.zeros_like(width)
    affine = np.stack([np.stack([width, zero, right], 1), np.stack([zero, height, down], 1)], 1)  # (B, 2, 3)
    grid = F.affine_grid(torch.from_numpy(affine).to(pixels.dtype), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False)


def noisy(pixels: Tensor, ids: NDArray[np.int64], sd: float, *, seed: int, epoch: int) -> Tensor:
    """Gaussian noise on every pixel, inside [0,1]; the images themselves where `sd` is 0."""
    if not sd:
        return pixels
    draws = runtime.normal(("noise", seed, epoch), ids, tuple(pixels.shape[1:]))
    return (pixels + sd * torch.from_numpy(draws).to(pixels)).clamp(0, 1)


def augment(pixels: Tensor, ids: NDArray[np.int64], kind: str, *, seed: int, epoch: int) -> Tensor:
    """The images as they are trained on in an epoch: `kind` is none, crop-flip or resized-crop."""
    if kind == "none":
        return pixels
    return (crop_flip if kind == "crop-flip" else resized_crop)(pixels, ids, seed=seed, epoch=epoch)
