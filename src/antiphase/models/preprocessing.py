"""A model's own preprocessing as part of the seam: differentiable, so that budgets are in pixels of the image that is given.

B batch, C channels, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.models.foreign_config import Preprocessing

Transform = Callable[[Image.Image], Tensor]  # what a library does with one image: (C, h, w)
LARGEST_MEAN = 1 / 255  # mean difference of pixels from the library's own transform above which ours is wrong


class Preprocessed(nn.Module):
    """A model behind its preprocessing: (B, C, H, W) pixels in [0,1] of any size -> what the model returns."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, preprocessing: Preprocessing, channels: int | None = None) -> None:
        super().__init__()
        self.model, self.preprocessing, self.channels = model, preprocessing, channels
        for name in ("mean", "std"):  # constants of the config, so they are not in the state_dict
            value = torch.as_tensor(getattr(preprocessing, name), dtype=torch.float32).reshape(-1, 1, 1)
            self.register_buffer(name, value, persistent=False)

    def prepare(self, pixels: Tensor) -> Tensor:
        """What the model itself is called with. A grey image is given to a model of colour images in every channel."""
        if pixels.shape[1] == 1 and (self.channels or 1) > 1:
            pixels = pixels.expand(-1, self.channels or 1, -1, -1)
        return (resized(pixels, self.preprocessing) - self.mean) / self.std

    def forward(self, pixels: Tensor) -> Any:
        return self.model(self.prepare(pixels))


def resized(pixels: Tensor, how: Preprocessing) -> Tensor:
    """Resized and cropped, in [0,1] as PIL's pixels are: bicubic interpolation overshoots."""
    size = target_size(pixels.shape[-2:], how)
    if size != tuple(pixels.shape[-2:]) and how.interpolation == "nearest":
        rows, columns = (_nearest(has, wanted).to(pixels.device) for has, wanted in zip(pixels.shape[-2:], size))
        pixels = pixels[..., rows, :][..., columns]
    elif size != tuple(pixels.shape[-2:]):
        smooth: dict[str, Any] = {"align_corners": False, "antialias": how.antialias}
        pixels = F.interpolate(pixels, size, mode=how.interpolation, **smooth).clamp(0, 1)
    if how.crop is not None:
        pixels = centre(pixels, how.crop if isinstance(how.crop, tuple) else (how.crop, how.crop))
    return pixels


def _nearest(has: int, wanted: int) -> Tensor:
    """For each new row the old one in which its centre lies; summed step by step as PIL does, which decides ties."""
    step = has / wanted
    places = np.cumsum(np.concatenate([[step / 2], np.full(wanted - 1, step)]))
    return torch.from_numpy(places.astype(np.int64)).clamp(max=has - 1)


def target_size(given: Any, how: Preprocessing) -> tuple[int, int]:
    """Height and width after resizing: the shorter side as said and the other in proportion, or both as said."""
    height, width = given
    if how.resize is None:
        return height, width
    if isinstance(how.resize, tuple):
        return how.resize
    if height <= width:
        return how.resize, int(how.resize * width / height)
    return int(how.resize * height / width), how.resize


def centre(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """The middle of an image; one that is too small gets a black border first."""
    missing = [max(0, wanted - has) for wanted, has in zip(size, pixels.shape[-2:])]
    if any(missing):
        top, left = (gap // 2 for gap in missing)
        pixels = F.pad(pixels, (left, missing[1] - left, top, missing[0] - top))
    top, left = (round((has - wanted) / 2) for wanted, has in zip(size, pixels.shape[-2:]))
    return pixels[..., top : top + size[0], left : left + size[1]]


class Agreement(NamedTuple):
    """How the seam's pixels and predictions compare with those by the library's own transform."""

    images: int
    mean: float  # difference of pixels in [0,1], over all
    largest: float
    same_predictions: int

    def __str__(self) -> str:
        return (
            f"preprocessing against the library's own on {self.images} images: pixels differ by {255 * self.mean:.2f}/255 "
            f"on average and {255 * self.largest:.1f}/255 at most, {self.same_predictions} of {self.images} predictions are "
            "the same"
        )


def compare_with(
    transform: Transform, seam: Preprocessed, logits: Callable[[Tensor], Tensor], images: Tensor
) -> Agreement:
    """Hold the seam against the library's transform on images (B, C, H, W); a mean difference above 1/255 is refused.

    `logits` continues from what the model itself is called with.
    """
    levels = torch.round(255 * images).to(torch.uint8)
    pictures = [_picture(image) for image in levels]
    theirs = torch.stack([transform(picture) for picture in pictures]).to(images)
    ours = seam.prepare(levels.to(images) / 255)
    if ours.shape != theirs.shape:
        raise InputError(
            f"the preprocessing gives images of {tuple(ours.shape[1:])} and the library's own transform "
            f"{tuple(theirs.shape[1:])}: state it by --preprocessing"
        )
    apart = (ours - theirs).abs() * seam.std  # in pixels again
    mean, largest = float(apart.mean()), float(apart.max())
    if mean > LARGEST_MEAN:
        raise InputError(
            f"the preprocessing differs from the library's own transform by {255 * mean:.1f}/255 on average, more than 1/255: "
            "state it by --preprocessing"
        )
    with torch.no_grad():
        same = int((logits(ours).argmax(dim=1) == logits(theirs).argmax(dim=1)).sum())
    return Agreement(len(images), mean, largest, same)


def _picture(image: Tensor) -> Image.Image:
    """(C, H, W) bytes as PIL has them, in colour."""
    array = image.expand(3, -1, -1) if len(image) == 1 else image
    return Image.fromarray(np.ascontiguousarray(array.permute(1, 2, 0).cpu().numpy()))
