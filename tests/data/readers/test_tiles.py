"""Tiles: what a caption says is what the picture shows, and training never shows what the test split asks."""

from pathlib import Path

import numpy as np
import pytest
import torch

from antiphase.config import InputError
from antiphase.data.catalog import load
from antiphase.data.pair_catalog import load_pairs
from antiphase.data.readers.tiles import KINDS, compositions, load_tile_pairs, load_tile_statements

HERE = Path()


@pytest.fixture(scope="module")
def splits():
    return {split: load_tile_pairs("tiles-digits", split, HERE, 2_000) for split in ("train", "test")}


def test_no_scene_of_the_test_split_is_in_training_but_one_object_alone():
    for kind in KINDS:
        train, test = (set(compositions(kind, 10, split)) for split in ("train", "test"))
        assert test
        assert train == test if kind == "one" else not train & test, kind
    pairs = [set(compositions("beside", 10, split)) for split in ("train", "test")]
    assert all({(b, a) for a, b in each} == each for each in pairs)  # both orders are in the same split
    assert len(pairs[0] | pairs[1]) == 90


def test_captions_say_which_digit_stands_where(splits):
    for pairs in splits.values():
        digits = load("digits", pairs.split)
        label = dict(zip(digits.ids.tolist(), digits.labels.tolist()))
        for row in range(0, len(pairs), 7):
            shown = [
                None if hidden else digits.class_names[label[int(image)]]
                for image, hidden in zip(pairs.source.rows[row], pairs.source.clutter[row])
            ]
            caption = pairs.captions[row][0]
            if " to the left of " in caption:
                left, right = (words.split()[-1] for words in caption.split(" to the left of "))
                assert (left, right) in {(shown[0], shown[1]), (shown[2], shown[3])}
            elif ", above " in caption:
                assert [word for word in caption.replace(",", "").split() if word in digits.class_names] == shown
            elif " above " in caption:
                top, bottom = (words.split()[-1] for words in caption.split(" above "))
                assert (top, bottom) in {(shown[0], shown[2]), (shown[1], shown[3])}
            else:
                assert all(name is None or name in caption or name in ("six",) for name in shown)


def test_no_two_test_pictures_have_a_caption_in_common(splits):
    every = [text for texts in splits["test"].captions for text in texts]
    assert len(every) == len(set(every))


def test_a_picture_is_four_cells_and_clutter_is_an_image_with_its_pixels_shuffled(splits):
    pairs, digits = splits["train"], load("digits", "train")
    pixels = pairs.pixels(np.arange(40))
    assert pixels.shape == (40, 1, 16, 16)
    for picture, rows, hidden in zip(pixels, pairs.source.rows, pairs.source.clutter):
        cells = picture.reshape(1, 2, 8, 2, 8).permute(1, 3, 0, 2, 4).reshape(4, 1, 8, 8)
        for cell, image, clutter in zip(cells, digits.source.read(rows), hidden):
            assert torch.equal(cell, image) != clutter
            assert torch.equal(cell.flatten().sort().values, image.flatten().sort().values)


def test_a_picture_does_not_depend_on_how_many_there_are(splits):
    fewer = load_tile_pairs("tiles-digits", "train", HERE, 100)
    assert fewer.captions == splits["train"].captions[:100]
    assert torch.equal(fewer.pixels(np.arange(100)), splits["train"].pixels(np.arange(100)))


def test_the_box_of_a_labelled_tile_holds_its_digit_and_follows_it_into_a_subset():
    tiles, digits = load("tiles-digits", "test").subset(30), load("digits", "test")
    images = {int(i): digits.source.read(np.array([digits.ids[i]]))[0] for i in tiles.ids}
    for picture, label, i, (box,) in zip(tiles.all.pixels, tiles.labels, tiles.ids, tiles.boxes):
        top, left, bottom, right = (box * 16).astype(int)
        assert (bottom - top, right - left) == (8, 8)
        assert torch.equal(picture[:, top:bottom, left:right], images[int(i)])
        assert label == digits.labels[i]


def test_statements_are_of_the_same_images_and_differ_in_one_thing():
    statements = load_tile_statements("tiles-digits", HERE, 20)
    source, texts = statements.images.source, [text for (text,) in statements.images.captions]
    assert len(texts) == 2 * len(statements.categories) == 160
    for pair, category in enumerate(statements.categories):
        one, other = texts[2 * pair : 2 * pair + 2]
        rows, hidden = source.rows[2 * pair : 2 * pair + 2], source.clutter[2 * pair : 2 * pair + 2]
        assert one != other
        if category in ("left or right", "above or below"):
            assert sorted(one.split()) == sorted(other.split())  # only the order of the words differs
            assert sorted(rows[0]) == sorted(rows[1])
            assert (hidden[0] == hidden[1]).all()
        if category == "which object":
            assert (rows[0] != rows[1]).sum() == 1
        if category == "how many":
            assert (hidden[0] != hidden[1]).sum() == 1


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: load_pairs("tiles-digits", "val"), "it takes train or test"),
        (lambda: load_pairs("tiles-digits", "train", image_size=32), "tiles-digits images are 16 x 16"),
        (lambda: load("tiles-digits", "test", image_size=8), "tiles-digits images are 16 x 16"),
    ],
)
def test_what_tiles_do_not_have_is_refused(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()
