"""Augmentation belongs to the example and invents no pixels."""

import numpy as np
import torch

from antiphase.training.augment import crop_flip, resized_crop


def test_a_resized_crop_depends_on_the_example_alone_and_stays_within_the_image():
    pixels, ids = torch.rand(64, 3, 16, 16), np.arange(64)
    cropped = resized_crop(pixels, ids, seed=0, epoch=1)
    alone = torch.cat([resized_crop(pixels[i : i + 1], ids[i : i + 1], seed=0, epoch=1) for i in range(64)])
    assert torch.equal(cropped, alone)
    assert not torch.equal(cropped, resized_crop(pixels, ids, seed=0, epoch=2))
    assert cropped.min() >= 0
    assert cropped.max() <= 1
    slope = torch.linspace(0, 1, 33).repeat(400, 1, 33, 1)
    seen = resized_crop(slope, np.arange(400), seed=0, epoch=0)
    width = seen[:, 0, 16, -1] - seen[:, 0, 16, 0]
    assert width.min() > 0.58  # sqrt(0.5 * 3 / 4) of the side is the narrowest
    assert width.max() <= 1.0


def test_augmentation_depends_on_the_example_and_not_on_its_batch():
    pixels = torch.rand(6, 3, 32, 32)
    ids = np.arange(100, 106)
    whole = crop_flip(pixels, ids, seed=0, epoch=3)
    alone = torch.cat([crop_flip(pixels[i : i + 1], ids[i : i + 1], seed=0, epoch=3) for i in range(6)])
    assert torch.equal(whole, alone)
    assert not torch.equal(whole, crop_flip(pixels, ids, seed=0, epoch=4))


def test_augmentation_shifts_and_mirrors_and_adds_only_zeros():
    image = torch.arange(1.0, 65.0).reshape(1, 1, 8, 8).repeat(400, 1, 1, 1)
    moved = crop_flip(image, np.arange(400), seed=0, epoch=0)
    kept = [set(m.unique().tolist()) - {0.0} for m in moved]
    assert all(k <= set(range(1, 65)) and len(k) >= 49 for k in kept)  # a shift of one loses at most a row and a column
    mirrored = sum(bool((m[0, 4, 3] > m[0, 4, 4]) and m[0, 4, 3] > 0) for m in moved)
    assert 150 < mirrored < 250
