"""The sets on which models are judged: a tiny tree in each published layout is read, and what is wrong with one is named."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from antiphase.config import InputError
from antiphase.data import load
from antiphase.data.catalog import CATALOG
from antiphase.data.readers.imagenet_variants import class_wnids
from antiphase.data.readers.mmvp import load_mmvp
from tests.data.trees import TREES, dtd, lines, mmvp, picture


@pytest.fixture(autouse=True)
def whatever_the_digest(monkeypatch):
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


def test_the_folders_of_v2_are_numbers_and_not_words(tmp_path):
    """Sorted as words, 10 comes before 2."""
    TREES["imagenet-v2"](tmp_path)
    images = load("imagenet-v2", "test", root=tmp_path, image_size=8)
    assert [images.class_names[label] for label in images.labels][1:3] == ["great white shark", "brambling"]


def test_a_and_r_have_two_hundred_classes_each_and_share_some():
    a, r, every = (set(class_wnids(f"imagenet_{t}synsets")) for t in ("a_", "r_", ""))
    assert (len(a), len(r), len(every)) == (200, 200, 1000)
    assert a < every
    assert r < every
    assert 0 < len(a & r) < 200


def test_a_variant_of_imagenet_is_not_taken_for_imagenet(tmp_path):
    TREES["imagenet-a"](tmp_path)
    with pytest.raises(InputError, match="imagenet is not below"):
        load("imagenet", "test", root=tmp_path)
    picture(tmp_path / "imagenet-val-subset" / "val" / "n01440764" / "1.JPEG")
    assert len(load("imagenet", "test", root=tmp_path)) == 1


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


def test_a_test_set_has_no_training_images(tmp_path):
    with pytest.raises(InputError, match="the split of imagenet-r is 'train': it takes 'test'"):
        load("imagenet-r", "train", root=tmp_path)


# ------------------------------------------------------------------------------------------------- MMVP


@pytest.mark.parametrize("photographs", ["MLLM_VLM Images", "MMVP_VLM_Images"])
def test_mmvp_is_read_in_pairs(photographs, tmp_path):
    mmvp(tmp_path, photographs)
    found = load_mmvp(root=tmp_path, image_size=8)
    assert found.categories == ("Orientation and Direction",) * 2 + ("Texts",) * 2
    assert len(found.images) == 8
    assert found.images.captions[3] == ("a thing, seen in way 3",)
    assert found.images.shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (["1,Texts,a cat"], "lists 1 images: they come in pairs"),
        (["1,Texts,a cat", "2,Color,a dog"], "line 3: a pair is of one category, and this is Texts and Color"),
        (["one,Texts,a cat", "2,Texts,a dog"], "line 2: expected the number of an image"),
        (["1,Texts,", "2,Texts,a dog"], "line 2: expected the number of an image, its category and its statement"),
        (["91,Texts,a cat", "2,Texts,a dog"], r"91\.jpg cannot be read"),
    ],
)
def test_a_table_of_statements_that_is_wrong_is_named(rows, sentence, tmp_path):
    mmvp(tmp_path)
    lines(tmp_path / "MMVP_VLM/Questions.csv", ["Question ID,Type,Statement", *rows])
    with pytest.raises(InputError, match=sentence):
        load_mmvp(root=tmp_path)


def test_mmvp_without_its_pictures_or_its_table_is_named(tmp_path):
    with pytest.raises(InputError, match=r"mmvp is not below .*: expected a folder named MMVP_VLM"):
        load_mmvp(root=tmp_path)
    mmvp(tmp_path)
    shutil.rmtree(tmp_path / "MMVP_VLM" / "MLLM_VLM Images")
    with pytest.raises(InputError, match="MLLM_VLM Images is missing"):
        load_mmvp(root=tmp_path)
    (tmp_path / "MMVP_VLM" / "Questions.csv").unlink()
    with pytest.raises(InputError, match=r"Questions\.csv is missing: it is the list of statements"):
        load_mmvp(root=tmp_path)
