"""Folders of images and shards of captioned images, written for the tests."""

import pytest

from tests.data.image_files import png
from tests.data.shards import sample, write_shard


@pytest.fixture
def own_folder(tmp_path):
    for c, name in enumerate(("cat", "dog")):
        for i in range(30):
            path = tmp_path / "pets" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(100 * c + i, side=40 + i))
    return tmp_path / "pets"


@pytest.fixture
def shards(tmp_path):
    """Two shards of ten, as img2dataset writes them."""
    for shard in (0, 1):
        write_shard(tmp_path / "cc" / f"{shard:05d}.tar", [sample(10 * shard + i) for i in range(10)])
    return tmp_path / "cc"
