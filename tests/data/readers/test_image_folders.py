"""Images in class folders: a user's own, Tiny ImageNet's and ImageNet's."""

import os
import shutil

import numpy as np
import pytest

from antiphase.config import InputError
from antiphase.data import load
from antiphase.data.readers.image_folders import is_test, own_side
from tests.data.image_files import png


def test_imagenet_classes_are_the_names_clip_is_prompted_with(data_root):
    images = load("imagenet", "test", root=data_root, image_size=64)
    assert images.class_names[0] == "tench"
    assert images.shape == (3, 64, 64)


def test_any_image_folder_is_a_data_set_with_a_fixed_split(own_folder):
    train, test = (load(str(own_folder), split, image_size=16) for split in ("train", "test"))
    assert train.class_names == test.class_names == ("cat", "dog")
    assert len(train) + len(test) == 60
    assert 4 <= len(test) <= 24
    assert train.shape == (3, 16, 16)
    assert np.array_equal(load(str(own_folder), "test", image_size=16).ids, test.ids)


def test_a_folder_with_its_own_split_keeps_it(own_folder, tmp_path):
    whole = tmp_path / "split"
    shutil.copytree(own_folder, whole / "train")
    shutil.copytree(own_folder / "cat", whole / "val" / "cat")
    shutil.copytree(own_folder / "dog", whole / "val" / "dog")
    assert len(load(str(whole), "train")) == len(load(str(whole), "test")) == 60


def test_test_classes_are_the_training_classes(own_folder, tmp_path):
    whole = tmp_path / "split"
    shutil.copytree(own_folder, whole / "train")
    shutil.copytree(own_folder / "dog", whole / "val" / "dog")
    test = load(str(whole), "test")
    assert test.class_names == ("cat", "dog")
    assert set(test.labels) == {1}
    shutil.copytree(own_folder / "dog", whole / "val" / "wolf")
    with pytest.raises(InputError, match="the training split has no class 'wolf'"):
        load(str(whole), "test")


def test_the_fingerprint_of_files_follows_their_pixels(own_folder):
    before = load(str(own_folder), "train", image_size=8)
    for path in own_folder.rglob("*.png"):
        path.write_bytes(png(200, side=40))
    assert load(str(own_folder), "train", image_size=8).fingerprint != before.fingerprint


def test_a_damaged_photograph_is_named(own_folder):
    broken = own_folder / "cat" / "7.png"
    broken.write_bytes(broken.read_bytes()[:60])
    split = "test" if is_test(broken.relative_to(own_folder)) else "train"
    with pytest.raises(InputError, match=r"cat/7\.png cannot be decoded"):
        load(str(own_folder), split, image_size=12)


def test_empty_folders_and_missing_annotations_are_named(tmp_path, data_root):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty is empty: expected one folder of images for each class"):
        load(str(tmp_path / "empty"), "train")
    (tmp_path / "empty" / "cat").mkdir()
    with pytest.raises(InputError, match=r"cat is empty: expected image files"):
        load(str(tmp_path / "empty"), "train")
    tiny = tmp_path / "tiny-imagenet"
    shutil.copytree(
        data_root / "tiny-imagenet-subset", tiny, ignore=shutil.ignore_patterns("train", "val_annotations.txt")
    )
    with pytest.raises(InputError, match=r"val_annotations\.txt is missing"):
        load("tiny-imagenet", "test", root=tmp_path)
    (tiny / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn99999999\t0\t0\t1\t1\n")
    with pytest.raises(InputError, match=r"val_annotations\.txt, line 1: n99999999 is out of range"):
        load("tiny-imagenet", "test", root=tmp_path)
    coco = tmp_path / "coco"
    shutil.copytree(data_root / "coco-tiny" / "val2017", coco / "val2017")
    with pytest.raises(InputError, match=r"instances_val2017\.json is missing"):
        load("coco", "test", root=tmp_path)


def folder_of(path, *sides):
    """A class folder for each of two classes, with images of these sides in turn."""
    for name in ("cat", "dog"):
        (path / name).mkdir(parents=True)
        for i in range(30):
            (path / name / f"{i}.png").write_bytes(png(8 * i, side=sides[i % len(sides)]))
    return path


@pytest.mark.parametrize("side", [8, 32, 64])
def test_small_squares_of_one_size_keep_it_to_the_last_bit(tmp_path, side, capsys):
    folder = folder_of(tmp_path / "own", side)
    for split in ("train", "test"):
        images = load(str(folder), split)
        assert images.shape == (3, side, side)
        assert images.fingerprint == load(str(folder), split, image_size=side).fingerprint
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("sides", [(32, 40), (96,), (32, 300)])
def test_a_mixed_or_large_folder_is_brought_to_64_pixels_and_says_so_once(tmp_path, sides, capsys):
    folder = folder_of(tmp_path / "own", *sides)
    whole = load(str(folder), "train")
    assert whole.shape == load(str(folder), "test").shape == (3, 64, 64)
    assert whole.fingerprint == load(str(folder), "train", image_size=64).fingerprint
    said = capsys.readouterr().err
    assert said.count("brought to 64 x 64") == 1
    assert "--image-size" in said
    load(str(folder), "train", image_size=48)
    assert capsys.readouterr().err == ""


def test_the_size_of_a_folder_is_that_of_all_its_splits_and_of_nothing_beside_them(tmp_path, capsys):
    folder_of(tmp_path / "own" / "train", 32)
    folder_of(tmp_path / "own" / "val", 32)
    (tmp_path / "own" / "plot.png").write_bytes(png(0, side=500))
    assert load(str(tmp_path / "own"), "train").shape == (3, 32, 32)
    (tmp_path / "own" / "val" / "cat" / "large.png").write_bytes(png(0, side=200))
    assert load(str(tmp_path / "own"), "train").shape == load(str(tmp_path / "own"), "test").shape == (3, 64, 64)
    assert "brought to 64 x 64" in capsys.readouterr().err


def test_links_that_lead_back_pipes_and_broken_files_do_not_decide_the_size(tmp_path):
    folder = folder_of(tmp_path / "own", 16)
    (folder / "cat" / "again").symlink_to(folder, target_is_directory=True)
    os.mkfifo(folder / "dog" / "pipe.png")
    (folder / "dog" / "broken.png").write_bytes(b"no image")
    assert own_side(folder, 64) == 16
    shutil.move(folder / "dog", tmp_path / "elsewhere")
    (folder / "dog").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere" / "large.png").write_bytes(png(0, side=20))
    assert own_side(folder, 64) is None
