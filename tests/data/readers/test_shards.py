"""Webdataset shards are read by offset."""

import json
import tarfile

import numpy as np
import pytest
import torch

from antiphase.config import InputError
from antiphase.data import cache
from antiphase.data.pair_catalog import load_pairs
from tests.data.flickr import brightness
from tests.data.shards import picture, sample, write_shard


def test_shards_are_read_by_offset_in_any_order(shards):
    pairs = load_pairs(str(shards), "all", image_size=8)
    assert len(pairs) == 20
    rows = np.array([17, 3, 11])
    assert brightness(pairs.pixels(rows)) == [170, 30, 110]
    assert [pairs.captions[i][0] for i in rows] == [f"picture number {i}" for i in rows]
    by_glob = load_pairs(f"{shards}/*.tar", "all", image_size=8)
    assert by_glob.captions == pairs.captions


def test_a_range_of_shards_needs_every_one_of_them(shards):
    names = sorted(p.name for p in shards.glob("*.tar"))
    stem, last = names[0].removesuffix("0.tar"), len(names) - 1
    assert names == [f"{stem}{i}.tar" for i in range(len(names))]
    by_range = load_pairs(f"{shards}/{stem}{{0..{last}}}.tar", "all", image_size=8)
    assert by_range.captions == load_pairs(str(shards), "all", image_size=8).captions
    with pytest.raises(InputError, match=f"{stem}{last + 1}.tar, which is not there"):
        load_pairs(f"{shards}/{stem}{{0..{last + 1}}}.tar", "all", image_size=8)


def test_streamed_and_cached_shards_give_the_same_pixels(shards, monkeypatch):
    cached = load_pairs(str(shards), "all", image_size=8)
    monkeypatch.setattr(cache, "CACHE_LIMIT", 0)
    streamed = load_pairs(str(shards), "all", image_size=8)
    assert type(streamed.source) is not type(cached.source)
    assert torch.equal(streamed.pixels(np.arange(20)), cached.pixels(np.arange(20)))


def test_a_shard_is_walked_once(shards, monkeypatch):
    load_pairs(str(shards), "all", image_size=8)
    monkeypatch.setattr(tarfile, "open", lambda *_: pytest.fail("walked again"))
    load_pairs(str(shards), "test", image_size=8)


def test_shards_below_train_and_val_keep_that_split_and_others_hold_out_a_fifth(tmp_path, shards):
    train, test = (load_pairs(str(shards), split, image_size=8) for split in ("train", "test"))
    assert (len(train), len(test)) == (16, 4)
    assert set(train.captions).isdisjoint(test.captions)
    write_shard(tmp_path / "split" / "train" / "0.tar", [sample(i) for i in range(3)])
    write_shard(tmp_path / "split" / "val" / "0.tar", [sample(i) for i in range(3, 5)])
    kept = [len(load_pairs(str(tmp_path / "split"), split, image_size=8)) for split in ("train", "test", "all")]
    assert kept == [3, 2, 5]


def test_captions_come_from_txt_or_from_json_and_images_in_several_formats(tmp_path):
    described = json.dumps({"caption": "by  json", "url": "x"}).encode()
    samples = [
        sample(1, json=json.dumps({"caption": "not this"}).encode()),
        sample(2, txt=None, json=described),
        sample(3, jpg=None, png=picture(3, "PNG")),
        sample(4, jpg=None, webp=picture(4, "WEBP")),
    ]
    write_shard(tmp_path / "x" / "0.tar", samples)
    pairs = load_pairs(str(tmp_path / "x"), "all", image_size=8)
    texts = ["picture number 1", "by json", "picture number 3", "picture number 4"]
    assert [c[0] for c in pairs.captions] == texts


@pytest.mark.parametrize("cut", ["in an image", "in a text", "in a header", "between members"])
def test_a_shard_cut_off_in_the_middle_is_named_with_its_sample_or_counted(tmp_path, cut):
    write_shard(tmp_path / "s" / "00000.tar", [sample(i) for i in range(6)])
    write_shard(tmp_path / "s" / "00001.tar", [sample(i) for i in range(6, 8)])
    path = tmp_path / "s" / "00000.tar"
    with tarfile.open(path) as tar:
        image, text = (tar.getmember(f"00004.{suffix}") for suffix in ("jpg", "txt"))
    end = {
        "in an image": image.offset_data + 100,
        "in a text": text.offset_data + 3,
        "in a header": text.offset + 77,
        "between members": text.offset,
    }[cut]
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(InputError, match=r"00000\.tar is truncated: it ends in sample 00004"):
        load_pairs(str(tmp_path / "s"), "all", image_size=8)
    pairs = load_pairs(str(tmp_path / "s"), "all", image_size=8, allow=["broken"])
    assert [c[0][-1] for c in pairs.captions] == list("012367")
    assert pairs.skipped == (("broken", 1),)


def test_a_file_that_is_no_tar_is_refused(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "0.tar").write_bytes(b"words" * 300)
    with pytest.raises(InputError, match=r"0\.tar is not a tar file"):
        load_pairs(str(tmp_path / "t"), "all", image_size=8)
