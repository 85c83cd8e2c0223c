"""The embedded set: scikit-learn's 1,797 real handwritten digits, 8 x 8, one channel. No download, one fixed split."""

from __future__ import annotations

import hashlib

import numpy as np

from antiphase.data.imageset import ArraySource, ImageSet

TEST_IMAGES = 360  # a fifth, the rest is for training
SPLIT_SEED = 0


def load_digits(split: str, *_: object) -> ImageSet:
    """It needs no folder and has one size."""
    from sklearn import datasets

    bunch = datasets.load_digits()
    pixels = bunch.images.astype(np.uint8)[:, None]  # (1797, 1, 8, 8), whole numbers 0..16
    labels = bunch.target.astype(np.int64)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    rows = np.sort(order[:TEST_IMAGES] if split == "test" else order[TEST_IMAGES:])
    return ImageSet(
        name="digits",
        split=split,
        class_names=("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
        labels=labels[rows],
        ids=rows,
        source=ArraySource(pixels, levels=16),
        content=hashlib.sha256(pixels.tobytes()).hexdigest(),
    )
