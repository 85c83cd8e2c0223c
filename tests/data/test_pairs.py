"""PairSet: captions belong to their images, fingerprints to captions and images."""

import numpy as np
import pytest
import torch

from antiphase.config import InputError
from antiphase.data.pair_catalog import load_pairs
from antiphase.data.pairs import held_out, of_classes
from tests.data.shards import sample, write_shard


def test_no_more_than_a_thousand_images_are_held_out():
    keys = [f"{i}" for i in range(7000)]
    train, test = (held_out(keys, split, "x") for split in ("train", "test"))
    assert (len(train), len(test)) == (6000, 1000)
    assert sorted(train + test) == sorted(keys)
    assert set(held_out(keys[::-1], "test", "x")) == set(test)


def test_classes_become_captions(digits):
    words = [[f"the digit {name}", f"a {name}"] for name in digits[0].class_names]
    pairs = of_classes(digits[0], words)
    assert [pairs.captions[i][0] for i in range(20)] == [
        f"the digit {digits[0].class_names[label]}" for label in digits[0].labels[:20]
    ]
    assert torch.equal(pairs.pixels(np.arange(5)), digits[0].batch(np.arange(5)).pixels)
    with pytest.raises(InputError, match="words for 9"):
        of_classes(digits[0], words[:9])


def test_the_caption_of_an_epoch_belongs_to_the_image(data_root):
    pairs = load_pairs("flickr8k", "all", root=data_root, image_size=16)
    rows = np.arange(50)
    chosen = pairs.choose(rows, (0, "caption", 3))
    alone = [pairs.choose(rows[i : i + 1], (0, "caption", 3))[0] for i in rows]
    assert chosen == alone
    assert all(text in pairs.captions[i] for i, text in zip(rows, chosen))
    assert chosen != pairs.choose(rows, (0, "caption", 4))
    part = pairs.subset(30)
    place = {i: k for k, i in enumerate(pairs.ids)}
    same = pairs.choose(np.array([place[i] for i in part.ids]), (0, "caption", 3))
    assert part.choose(np.arange(30), (0, "caption", 3)) == same


def test_a_fingerprint_changes_with_captions_images_and_subsets(shards, tmp_path):
    pairs = load_pairs(str(shards), "all", image_size=8)
    seen = {pairs.fingerprint, pairs.subset(7).fingerprint, pairs.subset(7, seed=1).fingerprint}
    seen.add(load_pairs(str(shards), "all", image_size=9).fingerprint)
    write_shard(tmp_path / "cd" / "00000.tar", [sample(i, txt=b"other words") for i in range(10)])
    write_shard(tmp_path / "cd" / "00001.tar", [sample(10 + i) for i in range(10)])
    seen.add(load_pairs(str(tmp_path / "cd"), "all", image_size=8).fingerprint)
    assert len(seen) == 5
    assert set(pairs.subset(5).ids) <= set(pairs.subset(7).ids)


def test_batches_give_every_image_once_with_its_first_caption(shards):
    pairs = load_pairs(str(shards), "all", image_size=8)
    batches = list(pairs.batches(8))
    assert [len(b.captions) for b in batches] == [8, 8, 4]
    assert [c for b in batches for c in b.captions] == [c[0] for c in pairs.captions]
