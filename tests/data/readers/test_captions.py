"""Captions in the layouts of Flickr, Karpathy and COCO."""

import json

import numpy as np
import pytest

from antiphase.data import load
from antiphase.data.pair_catalog import load_pairs
from tests.data.flickr import LINES, brightness, flickr
from tests.data.shards import picture


def test_flickr8k_is_read_from_its_published_files(data_root):
    parts = {split: load_pairs("flickr8k", split, root=data_root, image_size=16) for split in ("train", "test", "all")}
    assert [len(p) for p in parts.values()] == [480, 120, 600]
    assert all(len(texts) == 5 for texts in parts["all"].captions)
    assert set(parts["train"].captions).isdisjoint(parts["test"].captions)
    assert parts["all"].captions[0][1] == "A blond woman is on the street hailing a taxi ."
    assert parts["all"].shape == (3, 16, 16)
    assert parts["all"].origin == "flickr8k"


def test_flickr_keeps_the_published_splits(tmp_path):
    lists = {"train": ["2.jpg", "0.jpg"], "dev": ["3.jpg"], "test": ["1.jpg"]}
    folder = flickr(tmp_path / "flickr8k", LINES, lists)
    train, val, test = (
        load_pairs("flickr8k", split, root=tmp_path, image_size=8) for split in ("train", "val", "test")
    )
    assert train.captions == (("caption 0 of 2", "caption 1 of 2"), ("caption 0 of 0", "caption 1 of 0"))
    assert brightness(train.pixels(np.arange(2))) == [20, 0]
    assert (val.captions[0][0], test.captions[0][0]) == ("caption 0 of 3", "caption 0 of 1")
    assert load_pairs(str(folder), "test", image_size=8).captions == test.captions  # by path too


def test_karpathys_list_carries_splits_of_its_own(tmp_path):
    folder = flickr(tmp_path / "flickr30k", LINES)
    rows = [("0.jpg", "train"), ("1.jpg", "restval"), ("2.jpg", "val"), ("3.jpg", "test")]
    images = [{"filename": f, "split": s, "sentences": [{"raw": f"of {f}"}]} for f, s in rows]
    (folder / "dataset_flickr30k.json").write_text(json.dumps({"images": images}))
    found = {split: load_pairs("flickr30k", split, root=tmp_path, image_size=8) for split in ("train", "val", "test")}
    assert {split: pairs.captions for split, pairs in found.items()} == {
        "train": (("of 0.jpg",), ("of 1.jpg",)),
        "val": (("of 2.jpg",),),
        "test": (("of 3.jpg",),),
    }


@pytest.mark.parametrize("year", ["2014", "2017"])
def test_coco_captions(tmp_path, year):
    folder = tmp_path / "coco"
    for part in ("train", "val"):
        (folder / f"{part}{year}").mkdir(parents=True)
        (folder / "annotations").mkdir(exist_ok=True)
        for i in (7, 3):
            (folder / f"{part}{year}" / f"{i}.jpg").write_bytes(picture(i))
        table = {
            "images": [{"id": i, "file_name": f"{i}.jpg"} for i in (7, 3)],
            "annotations": [{"id": 9 - k, "image_id": i, "caption": f"{part} {i} {k}"} for k in (0, 1) for i in (7, 3)],
        }
        (folder / "annotations" / f"captions_{part}{year}.json").write_text(json.dumps(table))
    train, test = (load_pairs("coco", split, root=tmp_path, image_size=8) for split in ("train", "test"))
    assert train.captions == (("train 3 1", "train 3 0"), ("train 7 1", "train 7 0"))  # by their ids
    assert test.captions[1][0] == "val 7 1"
    assert brightness(test.pixels(np.arange(2))) == [30, 70]
    everything = load_pairs("coco", "all", root=tmp_path, image_size=8)
    assert everything.captions == train.captions + test.captions
    assert brightness(everything.pixels(np.arange(4))) == [30, 70, 30, 70]


def test_a_caption_ends_with_its_line_and_not_with_another_kind_of_space(tmp_path):
    lines = [*LINES[:-1], "3.jpg#1\tone\u2028two\x0cthree"]
    assert load_pairs(str(flickr(tmp_path / "f", lines)), "all", image_size=8).captions[3][1] == "one two three"


def test_real_coco_captions_are_those_of_the_published_file(data_root):
    """A folder kept for its captions is found by the name coco, and by its path."""
    folder = data_root / "coco-captions-mini"
    for split, part, count in (("train", "train2017", 80), ("test", "val2017", 79)):
        raw = json.loads((folder / "annotations" / f"captions_{part}.json").read_text())
        pairs = load_pairs("coco", split, root=data_root, image_size=16)
        assert len(pairs) == len(raw["images"]) == count
        first = min(raw["images"], key=lambda image: image["id"])
        own = sorted(
            (a["id"], " ".join(a["caption"].split())) for a in raw["annotations"] if a["image_id"] == first["id"]
        )
        assert list(pairs.captions[0]) == [caption for _, caption in own]
        assert {len(captions) for captions in pairs.captions} <= {5, 6, 7}
        assert load_pairs(str(folder), split, image_size=16).captions == pairs.captions
    assert len(load_pairs("coco", "all", root=data_root, image_size=16)) == 159


def test_a_folder_of_captions_with_instances_serves_for_classification_where_there_is_no_other(data_root, tmp_path):
    (tmp_path / "coco-captions-mini").symlink_to(data_root / "coco-captions-mini")
    alone = load("coco", "test", root=tmp_path, image_size=16)
    both = load("coco", "test", root=data_root, image_size=16)  # beside coco-tiny, which is kept for that
    raw = json.loads((data_root / "coco-captions-mini/annotations/instances_val2017.json").read_text())
    assert len(alone) == len({annotation["image_id"] for annotation in raw["annotations"]})
    assert alone.fingerprint != both.fingerprint
