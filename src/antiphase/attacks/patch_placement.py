"""Where the patch of a patch attack goes: (n, 1, H, W) masks of ones where pixels may change."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase.attacks.threat_model import Patch, ThreatModel
from antiphase.models.taps import taps


def patch_masks(
    classifier: nn.Module,
    x: Tensor,
    ids: NDArray[np.int64],
    within: ThreatModel,
    seed: int,
    batch_size: int,
    device: torch.device,
) -> Tensor | None:
    """The square of each example, or None where the whole image is free."""
    if not isinstance(within, Patch):
        return None
    n, _, height, width = x.shape
    if within.place == "attention":
        parts = [most_attended(classifier, part.to(device), within.width).cpu() for part in torch.split(x, batch_size)]
        corners = torch.cat(parts)
    else:
        corners = torch.from_numpy(within.corners((seed,), ids, (x.shape[1], height, width)))
    top, left = corners[:, 0, None], corners[:, 1, None]
    rows, columns = torch.arange(height)[None], torch.arange(width)[None]
    tall = (rows >= top) & (rows < top + within.width)  # (n, H)
    wide = (columns >= left) & (columns < left + within.width)  # (n, W)
    return (tall[:, :, None] & wide[:, None, :]).reshape(n, 1, height, width).to(x.dtype)


def most_attended(classifier: nn.Module, x: Tensor, width: int) -> Tensor:
    """(B, 2): top and left of the square that the class token attends to most, over all layers and heads.

    Negative weights of a differential map count by their size: they steer the output as much as positive ones do.
    """
    with torch.no_grad(), taps(classifier) as record:
        classifier(x)
    by_layer = [maps.combined[:, :, 0, 1:].abs().mean(dim=1) for maps in record.values()]
    attention = torch.stack(by_layer).mean(dim=0)  # (B, N-1)
    side = round(attention.shape[1] ** 0.5)
    heat = F.interpolate(attention.reshape(-1, 1, side, side), size=x.shape[-2:], mode="bilinear", align_corners=False)
    mass = F.avg_pool2d(heat, width, stride=1)[:, 0]  # (B, H-w+1, W-w+1)
    best = mass.flatten(1).argmax(dim=1)
    return torch.stack([best // mass.shape[2], best % mass.shape[2]], dim=1)
