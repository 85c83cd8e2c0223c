"""Captioned images in the layouts people have; what is wrong with them is one sentence, or counted where that is allowed."""

import json
import struct
import tarfile
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from antiphase.config import InputError
from antiphase.data import cache
from antiphase.data.pair_catalog import is_captioned, load_pairs
from antiphase.data.pairs import held_out, of_classes
from tests.data.shards import picture, sample, write_shard


@pytest.fixture
def shards(tmp_path):
    """Two shards of ten, as img2dataset writes them."""
    for shard in (0, 1):
        write_shard(tmp_path / "cc" / f"{shard:05d}.tar", [sample(10 * shard + i) for i in range(10)])
    return tmp_path / "cc"


def brightness(pixels: torch.Tensor) -> list[int]:
    return [round(float(p.mean()) * 255) for p in pixels]


# ------------------------------------------------------------------------------------------------- layouts


def test_flickr8k_as_it_is(data_root):
    parts = {split: load_pairs("flickr8k", split, root=data_root, image_size=16) for split in ("train", "test", "all")}
    assert [len(p) for p in parts.values()] == [480, 120, 600]
    assert all(len(texts) == 5 for texts in parts["all"].captions)
    assert set(parts["train"].captions).isdisjoint(parts["test"].captions)
    assert parts["all"].captions[0][1] == "A blond woman is on the street hailing a taxi ."
    assert parts["all"].shape == (3, 16, 16)
    assert parts["all"].origin == "flickr8k"


def flickr(folder, lines: list[str], lists: dict[str, list[str]] | None = None, images: int = 4):
    (folder / "Flicker8k_Dataset").mkdir(parents=True)
    for i in range(images):
        (folder / "Flicker8k_Dataset" / f"{i}.jpg").write_bytes(picture(i))
    (folder / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    for name, names in (lists or {}).items():
        (folder / f"Flickr_8k.{name}Images.txt").write_text("\n".join(names) + "\n")
    return folder


LINES = [f"{i}.jpg#{j}\tcaption {j} of {i}" for i in range(4) for j in range(2)]


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


def test_shards_are_read_by_offset_in_any_order(shards):
    pairs = load_pairs(str(shards), "all", image_size=8)
    assert len(pairs) == 20
    rows = np.array([17, 3, 11])
    assert brightness(pairs.pixels(rows)) == [170, 30, 110]
    assert [pairs.captions[i][0] for i in rows] == [f"picture number {i}" for i in rows]
    by_glob = load_pairs(f"{shards}/*.tar", "all", image_size=8)
    assert by_glob.captions == pairs.captions


def test_a_range_of_shards_is_every_one_of_them(shards):
    names = sorted(p.name for p in shards.glob("*.tar"))
    stem, last = names[0].removesuffix("0.tar"), len(names) - 1
    assert names == [f"{stem}{i}.tar" for i in range(len(names))]
    by_range = load_pairs(f"{shards}/{stem}{{0..{last}}}.tar", "all", image_size=8)
    assert by_range.captions == load_pairs(str(shards), "all", image_size=8).captions
    with pytest.raises(InputError, match=f"{stem}{last + 1}.tar, which is not there"):
        load_pairs(f"{shards}/{stem}{{0..{last + 1}}}.tar", "all", image_size=8)


def test_a_large_set_of_shards_streams_and_says_the_same(shards, monkeypatch):
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


def test_val_is_what_is_published_as_val_and_never_train_or_test(tmp_path, shards):
    for folder in (shards, flickr(tmp_path / "f", LINES)):
        with pytest.raises(InputError, match="without a val split of its own: it takes train, test or all"):
            load_pairs(str(folder), "val", image_size=8)
    split = tmp_path / "split"
    write_shard(split / "train" / "0.tar", [sample(i) for i in range(3)])
    write_shard(split / "test" / "0.tar", [sample(3)])
    with pytest.raises(InputError, match="no val split"):
        load_pairs(str(split), "val", image_size=8)
    write_shard(split / "val" / "0.tar", [sample(i) for i in range(4, 6)])
    found = {name: load_pairs(str(split), name, image_size=8).captions for name in ("val", "test")}
    assert found == {"val": (("picture number 4",), ("picture number 5",)), "test": (("picture number 3",),)}


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


# ------------------------------------------------------------------------------------------------- what a PairSet promises


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


# ------------------------------------------------------------------------------------------------- what is wrong


def spoil_flickr(tmp_path, how):
    lines = list(LINES)
    if how == "empty":
        lines[3] = "1.jpg#1\t "
    folder = flickr(tmp_path / "f", lines)
    if how == "missing":
        (folder / "Flicker8k_Dataset" / "2.jpg").unlink()
    if how == "broken":
        (folder / "Flicker8k_Dataset" / "2.jpg").write_bytes(picture(2, side=64)[:300])
    return folder


def spoil_shards(tmp_path, how):
    bad = {"missing": sample(3, jpg=None), "empty": sample(3, txt=b" \n"), "broken": sample(3, jpg=b"no image")}
    write_shard(tmp_path / "s" / "00000.tar", [bad[how] if i == 3 else sample(i) for i in range(6)])
    return tmp_path / "s"


@pytest.mark.parametrize("spoil", [spoil_flickr, spoil_shards])
@pytest.mark.parametrize("how", ["missing", "empty", "broken"])
def test_what_is_wrong_is_one_sentence_and_is_left_out_and_counted_only_where_that_is_allowed(tmp_path, spoil, how):
    folder = spoil(tmp_path, how)
    with pytest.raises(InputError) as refusal:
        load_pairs(str(folder), "all", image_size=8)
    named = {spoil_flickr: "line 4" if how == "empty" else "2.jpg", spoil_shards: "00000.tar, sample 00003"}
    assert named[spoil] in str(refusal.value)
    assert "\n" not in str(refusal.value)
    others = {"missing", "empty", "broken"} - {how}
    with pytest.raises(InputError):
        load_pairs(str(folder), "all", image_size=8, allow=others)
    pairs = load_pairs(str(folder), "all", image_size=8, allow=[how])
    whole = 4 if spoil is spoil_flickr else 6
    assert pairs.skipped == ((how, 1),)
    assert len(pairs) == (
        whole if (spoil, how) == (spoil_flickr, "empty") else whole - 1
    )  # of one image a caption is left
    assert pairs.pixels(np.arange(len(pairs))).shape[0] == len(pairs)


@pytest.mark.parametrize("error", [Image.DecompressionBombError, struct.error, EOFError, zlib.error])
def test_whatever_pil_raises_is_a_broken_image(tmp_path, monkeypatch, error):
    folder, convert = flickr(tmp_path / "f", LINES), Image.Image.convert

    def failing(image, mode):
        if image.getpixel((0, 0))[0] == 20:
            raise error("too much of it")
        return convert(image, mode)

    monkeypatch.setattr(Image.Image, "convert", failing)
    with pytest.raises(InputError, match=r"2\.jpg cannot be decoded as an image \(too much of it\)"):
        load_pairs(str(folder), "all", image_size=8)
    assert load_pairs(str(folder), "all", image_size=8, allow=["broken"]).skipped == (("broken", 1),)


def test_a_caption_ends_with_its_line_and_not_with_another_kind_of_space(tmp_path):
    lines = [*LINES[:-1], "3.jpg#1\tone\u2028two\x0cthree"]
    assert load_pairs(str(flickr(tmp_path / "f", lines)), "all", image_size=8).captions[3][1] == "one two three"


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


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda _: load_pairs("flickr9k", "train"), "no captioned images 'flickr9k'"),
        (lambda _: load_pairs("flickr8k", "half"), "split is 'half'"),
        (lambda _: load_pairs("flickr8k", "train", image_size=0), "image_size=0"),
        (lambda tmp: load_pairs("flickr30k", "train", root=tmp), "flickr30k is not below"),
        (lambda tmp: load_pairs(str(flickr(tmp / "f", LINES)), "all", allow=["lies"]), "'lies' is not known"),
        (lambda tmp: load_pairs(str(flickr(tmp / "f", ["0.jpg caption"])), "all"), "line 1: expected image.jpg#0"),
        (lambda tmp: load_pairs(str(flickr(tmp / "f", LINES, {"test": ["9.jpg"]})), "test"), "lists 9.jpg"),
        (lambda tmp: load_pairs(str(flickr(tmp / "f", LINES, {"test": ["1.jpg"]})), "train"), "no train split"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path, ask, said):
    with pytest.raises(InputError) as refusal:
        ask(tmp_path)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_is_no_tar_is_refused(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "0.tar").write_bytes(b"words" * 300)
    with pytest.raises(InputError, match=r"0\.tar is not a tar file"):
        load_pairs(str(tmp_path / "t"), "all", image_size=8)


def test_a_folder_of_classes_is_no_set_of_captions(tmp_path, shards):
    (tmp_path / "classes" / "cat").mkdir(parents=True)
    assert not is_captioned(str(tmp_path / "classes"))
    assert not is_captioned("cifar10")
    assert is_captioned(str(shards))
