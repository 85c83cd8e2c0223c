"""Defects of captioned images are refused by name, or left out and counted where the user allows it."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from antiphase.config import InputError
from antiphase.data.pair_catalog import load_pairs
from tests.data.flickr import LINES, flickr
from tests.data.shards import picture, sample, write_shard


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
def test_a_defect_is_refused_in_one_sentence_or_counted_where_its_kind_is_allowed(tmp_path, spoil, how):
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
