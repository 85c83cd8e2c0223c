"""A tiny tree in each published layout of the downstream sets and the variants of ImageNet is read; defects are named."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from antiphase.config import InputError
from antiphase.data import load
from antiphase.data.catalog import CATALOG
from tests.data.trees import TREES, dtd, lines, picture


@pytest.fixture(autouse=True)
def any_digest(monkeypatch):
    """torchvision knows the digests of Flowers' two tables, which a tiny tree cannot have."""
    from torchvision.datasets import flowers102

    monkeypatch.setattr(flowers102, "check_integrity", lambda path, _: Path(path).is_file())


EXPECTED = {  # classes, images of each split, two class names, labels of the test split
    "caltech101": (2, {"train": 60, "test": 4}, ("Faces_easy", "accordion"), [0, 0, 1, 1]),
    "dtd": (2, {"train": 4, "val": 4, "test": 4}, ("banded", "zigzagged"), [0, 0, 1, 1]),
    "pets": (2, {"train": 4, "test": 4}, ("Abyssinian", "American Bulldog"), [0, 0, 1, 1]),
    "flowers": (102, {"train": 2, "val": 2, "test": 2}, ("pink primrose", "blackberry lily"), [1, 101]),
    "sun397": (2, {"train": 14, "test": 10}, ("abbey", "outdoor apartment_building"), None),
    "aircraft": (2, {"train": 2, "val": 2, "test": 2}, ("707-320", "A330-200"), [0, 1]),
    "food101": (2, {"train": 4, "test": 4}, ("apple_pie", "waffles"), [0, 0, 1, 1]),
    "imagenet-v2": (1000, {"test": 4}, ("tench", "toilet paper"), [0, 2, 10, 999]),
    "imagenet-a": (200, {"test": 4}, ("stingray", "acorn"), [0, 0, 199, 199]),
    "imagenet-r": (200, {"test": 4}, ("goldfish", "acorn"), [0, 0, 199, 199]),
    "imagenet-sketch": (1000, {"test": 4}, ("tench", "toilet paper"), [0, 0, 999, 999]),
}


@pytest.mark.parametrize("name", TREES)
def test_every_published_layout_is_read(name, tmp_path):
    TREES[name](tmp_path)
    classes, splits, (first, last), labels = EXPECTED[name]
    assert set(CATALOG[name].splits) == set(splits)
    seen = []
    for split, n in splits.items():
        images = load(name, split, root=tmp_path, image_size=8)
        assert (len(images), images.classes, images.shape, images.split) == (n, classes, (3, 8, 8), split)
        assert (images.class_names[0], images.class_names[-1]) == (first, last)
        pixels = images.all.pixels.flatten(1)
        assert 0 <= pixels.min() < pixels.max() <= 1
        seen += [row.numpy().tobytes() for row in pixels]
    assert len(set(seen)) == len(seen)  # the splits share no image
    if labels is not None:
        assert images.labels.tolist() == labels


def test_a_label_goes_with_its_own_picture(tmp_path):
    TREES["food101"](tmp_path)
    images = load("food101", "test", root=tmp_path, image_size=12)
    own = Image.open(tmp_path / "food-101/images/waffles/2.jpg").crop((2, 0, 14, 12))
    at = int(np.flatnonzero(images.labels == 1)[0])
    assert np.array_equal((images.all.pixels[at] * 255).round().byte().permute(1, 2, 0), np.asarray(own))


def test_dtd_may_lie_as_its_archive_unpacks(tmp_path):
    dtd(tmp_path, "dtd")
    assert len(load("dtd", "val", root=tmp_path)) == 4


def test_sun397_takes_the_published_partition_where_it_is_there(tmp_path):
    TREES["sun397"](tmp_path)
    lines(tmp_path / "SUN397/Partitions/Testing_01.txt", ["/a/abbey/sun_03.jpg"])
    lines(tmp_path / "SUN397/Partitions/Training_01.txt", ["/a/abbey/sun_04.jpg", "/a/abbey/sun_05.jpg"])
    assert [len(load("sun397", split, root=tmp_path)) for split in ("train", "test")] == [2, 1]
    lines(tmp_path / "SUN397/Partitions/Testing_01.txt", ["/a/abbey/sun_99.jpg"])
    with pytest.raises(InputError, match=r"sun_99\.jpg is missing: Testing_01\.txt lists it"):
        load("sun397", "test", root=tmp_path)


BROKEN = {  # what is taken away from a tree, and the one sentence
    "caltech101": ("caltech101/101_ObjectCategories", "101_ObjectCategories is missing: expected one folder of images"),
    "dtd": ("dtd/dtd/labels/test1.txt", "test1.txt is missing: it is the list of test images"),
    "pets": ("oxford-iiit-pet/annotations", "trainval.txt is missing: it is the list of train images"),
    "flowers": ("flowers-102/setid.mat", "flowers-102 is not a whole copy of flowers: expected jpg/image_00001.jpg"),
    "sun397": ("SUN397/ClassName.txt", "SUN397 is not a whole copy of sun397: expected ClassName.txt"),
    "aircraft": ("fgvc-aircraft-2013b/data/variants.txt", "not a whole copy of aircraft: expected data/images"),
    "food101": ("food-101/meta", "food-101 is not a whole copy of food101: expected images/<class>"),
    "imagenet-v2": ("imagenetv2-matched-frequency-format-val/10/10.jpeg", "10 is empty: expected image files in it"),
    "imagenet-a": ("imagenet-a", "imagenet-a is not below .*: expected a folder named imagenet-a"),
    "imagenet-r": ("imagenet-r", "imagenet-r is not below .*: expected a folder named imagenet-r"),
    "imagenet-sketch": ("sketch", "imagenet-sketch is not below .*: expected a folder named imagenet-sketch or sketch"),
}


@pytest.mark.parametrize("name", TREES)
def test_what_is_missing_from_a_tree_is_named(name, tmp_path):
    TREES[name](tmp_path)
    part, sentence = BROKEN[name]
    gone = tmp_path / part
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    with pytest.raises(InputError, match=sentence) as refusal:
        load(name, "test", root=tmp_path)
    assert "\n" not in str(refusal.value)


def test_a_listed_image_that_is_not_there_is_named(tmp_path):
    for name, image in (
        ("dtd", "dtd/dtd/images/banded/banded_0004.jpg"),
        ("aircraft", "fgvc-aircraft-2013b/data/images/0000004.jpg"),
    ):
        TREES[name](tmp_path)
        (tmp_path / image).unlink()
        with pytest.raises(InputError, match=rf"{image.split('/')[-1]} cannot be read"):
            load(name, "test", root=tmp_path)


@pytest.mark.parametrize(
    ("spoil", "name", "sentence"),
    [
        (
            lambda root: lines(root / "dtd/dtd/labels/test1.txt", ["plaid/1.jpg"]),
            "dtd",
            "line 1: 'plaid' is out of range",
        ),
        (
            lambda root: lines(root / "oxford-iiit-pet/annotations/test.txt", ["Abyssinian_3"]),
            "pets",
            "line 1: expected the name",
        ),
        (
            lambda root: picture(root / "imagenet-a/n00000000/1.jpg"),
            "imagenet-a",
            "n00000000 is out of range: it is none of the 200",
        ),
        (
            lambda root: picture(root / "imagenetv2-matched-frequency-format-val/1000/1.jpg"),
            "imagenet-v2",
            "1000 is out of range: the folders of imagenet-v2 are 0 to 999",
        ),
        (
            lambda root: lines(root / "fgvc-aircraft-2013b/data/images_variant_test.txt", ["0000004 Zeppelin"]),
            "aircraft",
            r"not a whole copy of aircraft: .*Zeppelin",
        ),
    ],
)
def test_what_does_not_fit_a_layout_is_named(spoil, name, sentence, tmp_path):
    TREES[name](tmp_path)
    spoil(tmp_path)
    with pytest.raises(InputError, match=sentence):
        load(name, "test", root=tmp_path)


def test_real_pets_are_read_as_torchvision_reads_them(data_root):
    """The copy lies below its root as torchvision lays it out: oxford-iiit-pet-subset/oxford-iiit-pet/images."""
    from torchvision.datasets import OxfordIIITPet

    for split, theirs, each in (("train", "trainval", 20), ("test", "test", 10)):
        images = load("pets", split, root=data_root, image_size=16)
        raw = OxfordIIITPet(str(data_root / "oxford-iiit-pet-subset"), split=theirs)
        assert images.labels.tolist() == raw._labels
        assert images.class_names == tuple(raw.classes)
        assert images.shape == (3, 16, 16)
        assert np.bincount(images.labels).tolist() == [each] * 37
    photograph = np.asarray(raw[7][0].convert("RGB"), dtype=np.float32) / 255
    small = images.batch(np.array([7])).pixels[0]
    assert np.abs(photograph.mean() - small.mean().item()) < 0.1  # the same photograph, its centre square made small
