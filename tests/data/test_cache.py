"""Sets are decoded once; large ones stream from their files."""

import shutil
import subprocess
import sys

import pytest
import torch

from antiphase.data import cache, load
from tests.conftest import HIGH_WATER


def test_streamed_and_cached_pixels_are_the_same(own_folder, monkeypatch):
    cached = load(str(own_folder), "train", image_size=24).all.pixels
    monkeypatch.setattr(cache, "CACHE_LIMIT", 0)
    assert torch.equal(load(str(own_folder), "train", image_size=24).all.pixels, cached)


def test_a_damaged_cache_is_made_again(own_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_CACHE", str(tmp_path / "cache"))
    good = load(str(own_folder), "train", image_size=20).all.pixels
    (stored,) = (tmp_path / "cache").glob("*.npy")
    raw = bytearray(stored.read_bytes())
    raw[-1] ^= 255
    stored.write_bytes(raw)
    assert torch.equal(load(str(own_folder), "train", image_size=20).all.pixels, good)


STREAM = f"""
import sys
import numpy as np
from antiphase.data import cache, load
cache.CACHE_LIMIT = 0
images = load(sys.argv[1], "test", image_size=64)
for batch in images.batches(32):
    batch.pixels.mean()
print(len(images), {HIGH_WATER})
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_a_streamed_set(data_root, tmp_path):
    """300 and 3,000 real photographs: 37 MB and 369 MB as float32, were they held."""
    photographs = sorted((data_root / "tiny-imagenet-subset/train").rglob("*.JPEG"))[:3000]
    peaks = []
    for n in (300, 3000):
        folder = tmp_path / str(n) / "test" / "one"
        folder.mkdir(parents=True)
        for path in photographs[:n]:
            shutil.copy(path, folder / path.name)
        argv = [sys.executable, "-c", STREAM, str(tmp_path / str(n))]
        count, peak = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
        assert int(count) == n
        peaks.append(int(peak))
    assert peaks[1] < 1.05 * peaks[0]
