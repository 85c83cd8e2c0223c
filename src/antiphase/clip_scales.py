"""What each scale means for the training of a CLIP; the rest is in scales.py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from antiphase.scales import ScaleName


@dataclass(frozen=True, kw_only=True)
class ClipScale:
    """What a scale fixes for the training of a CLIP."""

    pairs: str | None  # None: the user's own
    prompts: str  # for pairs made of classes
    image: int
    patch: int
    width: int
    depth: int
    heads: int
    text_width: int
    text_depth: int
    text_heads: int
    context: int
    tokenizer: Literal["clip", "bytes"]
    joint: int
    epochs: int
    batch_size: int
    micro_batch: int | None
    lr: float
    weight_decay: float
    augment: Literal["none", "crop-flip", "resized-crop"]
    train_images: int | None = None  # None: all, or as many as the scale has of everything


CLIP_SCALES: dict[ScaleName, ClipScale] = {
    "smoke": ClipScale(
        pairs="digits",
        prompts="digit",
        image=8,
        patch=2,
        width=32,
        depth=1,
        heads=4,
        text_width=32,
        text_depth=1,
        text_heads=4,
        context=32,
        tokenizer="bytes",
        joint=32,
        epochs=8,
        batch_size=64,
        micro_batch=None,
        lr=2e-3,
        weight_decay=0.1,
        augment="none",
    ),
    "cpu": ClipScale(
        pairs="cifar10",
        prompts="a",
        image=32,
        patch=8,
        width=96,
        depth=3,
        heads=4,
        text_width=64,
        text_depth=2,
        text_heads=4,
        context=64,
        tokenizer="bytes",
        joint=64,
        epochs=20,
        batch_size=250,
        micro_batch=None,
        lr=2e-3,
        weight_decay=0.1,
        augment="crop-flip",
    ),
    "desk": ClipScale(
        pairs="cifar10",
        prompts="imagenet80",
        image=32,
        patch=4,
        width=128,
        depth=4,
        heads=4,
        text_width=128,
        text_depth=4,
        text_heads=4,
        context=77,
        tokenizer="bytes",
        joint=128,
        epochs=40,
        batch_size=500,
        micro_batch=None,
        lr=1e-3,
        weight_decay=0.1,
        augment="crop-flip",
    ),
    "paper": ClipScale(
        pairs=None,
        prompts="a",
        image=224,
        patch=16,
        width=768,
        depth=12,
        heads=12,
        text_width=512,
        text_depth=12,
        text_heads=8,
        context=77,
        tokenizer="clip",
        joint=512,
        epochs=40,
        batch_size=4096,
        micro_batch=256,
        lr=5e-4,
        weight_decay=0.5,
        augment="resized-crop",
    ),
}


# ------------------------------------------------------------------------------------------------- tiles

TILES = {"tiles": (64, 8), "tiles-digits": (16, 4)}  # sides of a picture and of a patch, in pixels
_DIGITS = ClipScale(
    pairs="tiles-digits",
    prompts="a",
    image=16,
    patch=4,
    width=32,
    depth=2,
    heads=4,
    text_width=32,
    text_depth=1,
    text_heads=4,
    context=32,
    tokenizer="clip",
    joint=32,
    epochs=3,
    batch_size=100,
    micro_batch=None,
    lr=3e-3,
    weight_decay=0.1,
    augment="none",
    train_images=3_000,
)
_PICTURES = replace(
    _DIGITS,
    pairs="tiles",
    image=64,
    patch=8,
    width=96,
    depth=3,
    text_width=64,
    text_depth=2,
    joint=64,
    epochs=5,
    lr=1e-3,
    train_images=12_000,
)
_LONGER = replace(_PICTURES, width=128, depth=4, text_width=128, joint=128, epochs=20, train_images=50_000)
TILE_SCALES: dict[ScaleName, ClipScale] = {  # of a CLIP that learns from tiles: by words, for bytes take far longer
    "smoke": _DIGITS,
    "cpu": _PICTURES,
    "desk": _LONGER,
    "paper": replace(_LONGER, width=192, depth=6, heads=6, epochs=40, train_images=100_000),
}


def clip_scale(scale: ScaleName, pairs: str | None = None) -> ClipScale:
    """What a scale fixes where a CLIP learns from these pairs; None: from those of the scale."""
    if pairs not in TILES:
        return CLIP_SCALES[scale]
    image, patch = TILES[pairs]
    return replace(TILE_SCALES[scale], pairs=pairs, image=image, patch=patch)
