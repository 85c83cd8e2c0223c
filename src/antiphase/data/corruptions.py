"""The standard corruptions of images as functions, and image sets under them (data/corruption_table.py has their numbers).

Written from the published definitions. Three things differ from the published files. Values stay fractions, where those were
cut to 8 bits between steps. Draws come from each image's own stream, so a corrupted image depends on the seed and on its id
and on nothing else. Images may be grey.

Pixels are (H, W, C) in [0,1], float64, H = W; C is 1 or 3.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from torch import Tensor

from antiphase import runtime
from antiphase.config import InputError, checked_arguments
from antiphase.data.corruption_table import CORRUPTIONS, check_corruption, check_severity
from antiphase.data.imageset import ImageSet, PixelSource

Pixels = NDArray[np.float64]


# ------------------------------------------------------------------------------------------------- noise
def gaussian_noise(pixels: Pixels, draw: Generator, deviation: float) -> Pixels:
    return pixels + draw.normal(0, deviation, pixels.shape)


def shot_noise(pixels: Pixels, draw: Generator, photons: float) -> Pixels:
    """So many photons arrive at a white pixel, and proportionally fewer at a darker one."""
    return draw.poisson(pixels * photons) / photons


def impulse_noise(pixels: Pixels, draw: Generator, share: float) -> Pixels:
    """This share of all values becomes 0 or 1, either with the same chance."""
    chance = draw.random(pixels.shape)
    return np.where(chance < share / 2, 0.0, np.where(chance >= 1 - share / 2, 1.0, pixels))


def speckle_noise(pixels: Pixels, draw: Generator, deviation: float) -> Pixels:
    return pixels + pixels * draw.normal(0, deviation, pixels.shape)


# ------------------------------------------------------------------------------------------------- blur
def gaussian_blur(pixels: Pixels, _: Generator, sigma: float) -> Pixels:
    return _smooth(pixels, sigma)


def defocus_blur(pixels: Pixels, _: Generator, radius: float, alias: float) -> Pixels:
    """The mean over a disk whose edge is softened."""
    half = math.ceil(radius) + 2
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    disk = (x**2 + y**2 <= radius**2).astype(np.float64)
    reach = 1 if radius <= 8 else 2
    bell = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * alias**2))
    soft = ndimage.convolve(disk / disk.sum(), np.outer(bell, bell) / bell.sum() ** 2, mode="constant")
    blurred: Pixels = ndimage.correlate(pixels, soft[..., None], mode="mirror")
    return blurred


def glass_blur(pixels: Pixels, draw: Generator, sigma: float, reach: int, rounds: int) -> Pixels:
    """Every pixel becomes one of its neighbours, one after the other, between two blurs. (The published code means to swap the
    two and, for colour images, copies one onto the other: numpy's rows are views. Its files are copies, and so are these.)"""
    smooth, side = _smooth(pixels, sigma), len(pixels)
    places = range(side - reach, reach, -1)
    came_from = np.arange(side * side).tolist()
    for _ in range(rounds):
        shifts = iter(draw.integers(-reach, reach, (len(places) ** 2, 2)).tolist())
        for row in places:
            for column in places:
                right, down = next(shifts)
                came_from[row * side + column] = came_from[(row + down) * side + column + right]
    return _smooth(smooth.reshape(side * side, -1)[came_from].reshape(pixels.shape), sigma)


def motion_blur(pixels: Pixels, draw: Generator, radius: int, sigma: float) -> Pixels:
    return _streak(pixels, radius, sigma, draw.uniform(-45, 45))


def zoom_blur(pixels: Pixels, _: Generator, largest: float, step: float) -> Pixels:
    """The mean of the image and of what a lens sees that zooms in on its centre."""
    factors = np.arange(1, largest, step)
    zoomed = [_zoomed(pixels, factor) for factor in factors]
    mean: Pixels = (pixels + np.sum(zoomed, axis=0)) / (len(factors) + 1)
    return mean


# ------------------------------------------------------------------------------------------------- weather
def snow(
    pixels: Pixels,
    draw: Generator,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    kept: float,
) -> Pixels:
    """Flakes are noise above a threshold, streaked; the image itself gets paler."""
    layer = _zoomed(draw.normal(mean, deviation, (*pixels.shape[:2], 1)), zoom)
    flakes = np.where(layer < threshold, 0, np.clip(layer, 0, 1))
    flakes = _streak(flakes, radius, sigma, draw.uniform(-135, -45))
    grey = pixels @ np.array([0.299, 0.587, 0.114])[:, None] if pixels.shape[-1] == 3 else pixels
    pale = kept * pixels + (1 - kept) * np.maximum(pixels, 1.5 * grey + 0.5)
    return pale + flakes + np.rot90(flakes, 2)


def fog(pixels: Pixels, draw: Generator, thickness: float, decay: float) -> Pixels:
    brightest = float(pixels.max())
    layer = _plasma(draw, len(pixels), decay)[..., None]
    return (pixels + thickness * layer) * brightest / (brightest + thickness)


def brightness(pixels: Pixels, _: Generator, more: float) -> Pixels:
    """The V of HSV is raised: all channels grow by the same factor, up to where the largest is 1; black becomes grey."""
    value = pixels.max(axis=-1, keepdims=True)
    raised = np.minimum(value + more, 1)
    brighter: Pixels = np.where(value > 0, pixels * raised / np.where(value > 0, value, 1), raised)
    return brighter


# ------------------------------------------------------------------------------------------------- digital
def contrast(pixels: Pixels, _: Generator, kept: float) -> Pixels:
    mean = pixels.mean(axis=(0, 1), keepdims=True)
    paler: Pixels = mean + kept * (pixels - mean)
    return paler


def saturate(pixels: Pixels, _: Generator, factor: float, more: float) -> Pixels:
    """The S of HSV is multiplied and raised. Grey has no hue: it counts as red, as in the published code."""
    value, least = pixels.max(axis=-1, keepdims=True), pixels.min(axis=-1, keepdims=True)
    spread = value - least
    saturation = np.divide(spread, value, out=np.zeros_like(value), where=value > 0)
    wanted = np.clip(factor * saturation + more, 0, 1)
    below = np.divide(
        value - pixels, spread, out=np.broadcast_to([0.0, 1.0, 1.0], pixels.shape).copy(), where=spread > 0
    )
    result: Pixels = value * (1 - wanted * below)  # `below`: 0 in the largest channel, 1 in the smallest
    return result


def elastic_transform(pixels: Pixels, draw: Generator, strength: float, sigma: float, corners: float) -> Pixels:
    """Three points of the image are moved, and with them everything; then every pixel by a smooth field of its own. All lengths
    are shares of the side."""
    side = len(pixels)
    middle, third = side // 2, side // 3
    before = middle + third * np.array([[1, 1], [1, -1], [-1, -1]], dtype=np.float64)  # (x, y)
    after = before + draw.uniform(-corners * side, corners * side, before.shape)
    inverse = np.linalg.solve(np.column_stack([after, np.ones(3)]), before)  # (3, 2): [x y 1] of the new -> of the old
    y, x = np.mgrid[:side, :side].astype(np.float64)
    old = np.stack([x, y, np.ones_like(x)], axis=-1) @ inverse
    moved = _sampled(pixels, old[..., 1], old[..., 0], "mirror")
    fields = draw.uniform(-1, 1, (2, side, side))
    right, down = (
        ndimage.gaussian_filter(f, sigma * side, mode="reflect", truncate=3) * strength * side for f in fields
    )
    return _sampled(moved, y + down, x + right, "reflect")


def pixelate(pixels: Pixels, _: Generator, share: float) -> Pixels:
    """Made smaller and larger again, each new pixel a mean over its box."""
    side = len(pixels)
    fewer = int(side * share)
    channels = (Image.fromarray(channel.astype(np.float32)) for channel in np.moveaxis(pixels, -1, 0))
    boxes = (
        c.resize((fewer, fewer), Image.Resampling.BOX).resize((side, side), Image.Resampling.BOX) for c in channels
    )
    return np.stack([np.asarray(box, dtype=np.float64) for box in boxes], axis=-1)


def jpeg_compression(pixels: Pixels, _: Generator, quality: int) -> Pixels:
    return through_jpeg(np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8), quality)


def through_jpeg(image: NDArray[np.uint8], quality: int) -> Pixels:
    """(H, W, C) 8 bits -> (H, W, C) in [0,1]"""
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(file, "JPEG", quality=quality)
    decoded: Pixels = np.asarray(Image.open(file)).reshape(image.shape) / 255.0
    return decoded


# ------------------------------------------------------------------------------------------------- what they are made of
def _smooth(pixels: Pixels, sigma: float) -> Pixels:
    blurred: Pixels = ndimage.gaussian_filter(pixels, (sigma, sigma, 0), mode="nearest")
    return blurred


def _streak(pixels: Pixels, radius: int, sigma: float, degrees: float) -> Pixels:
    """ImageMagick's motion blur: a one-sided bell of 2 radius + 1 pixels along a direction, edges continued."""
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    side, angle = len(pixels), math.radians(degrees)
    right, down = (np.ceil(steps * f(angle) - 0.5).astype(int) for f in (math.cos, math.sin))
    place = np.arange(side)
    rows, columns = ((place + shift[:, None]).clip(0, side - 1) for shift in (down, right))  # (steps, side)
    shifted = pixels[rows[:, :, None], columns[:, None, :]]  # (steps, H, W, C)
    streaked: Pixels = np.tensordot(weights / weights.sum(), shifted, axes=1)
    return streaked


def _zoomed(pixels: Pixels, factor: float) -> Pixels:
    """The centre, enlarged to the size of the whole."""
    enlarge = _enlarging(len(pixels), float(factor))
    zoomed: Pixels = np.einsum("ij,jkc,lk->ilc", enlarge, pixels, enlarge, optimize=True)
    return zoomed


@lru_cache(maxsize=200)
def _enlarging(side: int, factor: float) -> Pixels:
    """(side, side): what linear interpolation along one axis does, as a matrix"""
    part = math.ceil(side / factor)
    start = (side - part) // 2
    larger: Pixels = ndimage.zoom(np.eye(side)[start : start + part], (factor, 1), order=1)
    trim = (len(larger) - side) // 2
    return larger[trim : trim + side]


def _plasma(draw: Generator, side: int, decay: float) -> Pixels:
    """A cloud in [0,1] by the diamond-square rule on a torus: a middle is the mean of its four neighbours and a draw, whose
    size falls by `decay` (and with it the square of it) as the grid gets finer."""
    size = 2 ** max(math.ceil(math.log2(side)), 1)
    cloud, step, rough = np.zeros((size, size)), size, 100.0

    def middle_of(four: Pixels) -> Pixels:
        return four / 4 + rough * draw.uniform(-rough, rough, four.shape)

    while step >= 2:
        half = step // 2
        corners = cloud[::step, ::step]
        rows = corners + np.roll(corners, -1, axis=0)
        cloud[half::step, half::step] = middle_of(rows + np.roll(rows, -1, axis=1))
        centres = cloud[half::step, half::step]
        for axis, places in ((0, np.s_[::step, half::step]), (1, np.s_[half::step, ::step])):
            cloud[places] = middle_of(
                centres + np.roll(centres, 1, axis=axis) + corners + np.roll(corners, -1, axis=1 - axis)
            )
        step, rough = half, rough / decay
    cloud -= cloud.min()
    whole: Pixels = (cloud / cloud.max())[:side, :side]
    return whole


def _sampled(pixels: Pixels, y: Pixels, x: Pixels, beyond: str) -> Pixels:
    """Bilinear, at any points."""
    channels = np.moveaxis(pixels, -1, 0)
    return np.stack([ndimage.map_coordinates(c, [y, x], order=1, mode=beyond) for c in channels], axis=-1)


# ------------------------------------------------------------------------------------------------- images under them
MAKE: Mapping[str, Callable[..., Pixels]] = MappingProxyType(
    {
        make.__name__: make
        for make in (
            gaussian_noise,
            shot_noise,
            impulse_noise,
            speckle_noise,
            gaussian_blur,
            defocus_blur,
            glass_blur,
            motion_blur,
            zoom_blur,
            snow,
            fog,
            brightness,
            contrast,
            elastic_transform,
            pixelate,
            jpeg_compression,
            saturate,
        )
    }
)


def corrupt(pixels: Pixels, name: str, severity: int, draw: Generator) -> Pixels:
    """(H, W, C) in [0,1] -> the same shape in [0,1]; all that is random comes from `draw`."""
    arguments = CORRUPTIONS[name].arguments(len(pixels), severity)
    return np.clip(MAKE[name](pixels, draw, *arguments), 0, 1)


@dataclass(frozen=True)
class Corrupted:
    """Another source under one corruption, on reading; every image by its own stream."""

    source: PixelSource
    name: str
    severity: int
    seed: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.source.shape

    def read(self, rows: NDArray[np.int64]) -> Tensor:
        clean = self.source.read(rows)
        words = runtime.bits((self.seed, "corruption", self.name, self.severity), np.asarray(rows), (4,))
        images = clean.permute(0, 2, 3, 1).double().numpy()
        each = [corrupt(x, self.name, self.severity, np.random.default_rng(own)) for x, own in zip(images, words)]
        return torch.from_numpy(np.stack(each)).permute(0, 3, 1, 2).to(clean)


@checked_arguments(seed=0)
def corrupted(images: ImageSet, name: str, severity: int, seed: int = 0) -> ImageSet:
    """The same images by id and label, under one corruption."""
    check_corruption(name)
    check_severity(severity)
    if why := CORRUPTIONS[name].refuses(images.shape):
        raise InputError(f"{name} makes no sense for {images.name}: {why}")
    content = f"{images.content}/{name}/{severity}/{seed}"
    return replace(images, source=Corrupted(images.source, name, severity, seed), content=content)
