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
