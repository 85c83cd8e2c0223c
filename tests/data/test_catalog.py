"""Name -> ImageSet; what cannot be found is refused by name."""

import pytest
import torch

from antiphase.config import InputError
from antiphase.data import load
from tests.data.trees import TREES, picture


@pytest.mark.parametrize(
    ("name", "split", "n", "classes", "shape"),
    [
        ("digits", "train", 1437, 10, (1, 8, 8)),
        ("digits", "test", 360, 10, (1, 8, 8)),
        ("cifar10", "train", 50_000, 10, (3, 32, 32)),
        ("cifar10", "test", 10_000, 10, (3, 32, 32)),
        ("cifar100", "train", 10_000, 100, (3, 32, 32)),
        ("cifar100", "test", 2_000, 100, (3, 32, 32)),
        ("tiny-imagenet", "train", 6_000, 200, (3, 64, 64)),
        ("tiny-imagenet", "test", 1_000, 200, (3, 64, 64)),
        ("imagenet", "test", 1_000, 1000, (3, 224, 224)),
        ("coco", "test", 80, 80, (3, 224, 224)),
    ],
)
def test_every_set_gives_pixels_labels_and_names(name, split, n, classes, shape, data_root):
    images = load(name, split, root=data_root)
    assert (len(images), images.classes, images.shape) == (n, classes, shape)
    assert len(set(images.class_names)) >= classes - 2  # ImageNet has two pairs of classes with one name in some lists
    assert all(images.class_names)
    batch = images.subset(20).all
    assert batch.pixels.dtype == torch.float32
    assert batch.pixels.shape == (20, *shape)
    assert 0 <= batch.pixels.min() < batch.pixels.max() <= 1
    assert batch.labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda root: load("cifra10", "test", root=root), "did you mean 'cifar10'"),
        (lambda _: load("digits", "validation"), "'validation': it takes 'train' or 'test'"),
        (lambda _: load("digits", "test", image_size=16), "image_size=16 cannot be used"),
        (lambda root: load("cifar10", "test", root=root), "cifar10 is not below"),
        (lambda root: load("cifar10", "test", root=root / "none"), "none is not a folder"),
        (lambda root: load("coco", "test", root=root, download=True), "coco cannot be downloaded"),
    ],
)
def test_what_cannot_be_loaded_is_refused_by_name(call, named, tmp_path):
    with pytest.raises(InputError, match=named):
        call(tmp_path)


def test_without_a_data_root_the_variable_is_named(monkeypatch):
    monkeypatch.delenv("ANTIPHASE_DATA", raising=False)
    with pytest.raises(InputError, match="--data-root or the variable ANTIPHASE_DATA"):
        load("cifar10", "test")


def test_a_variant_of_imagenet_is_not_taken_for_imagenet(tmp_path):
    TREES["imagenet-a"](tmp_path)
    with pytest.raises(InputError, match="imagenet is not below"):
        load("imagenet", "test", root=tmp_path)
    picture(tmp_path / "imagenet-val-subset" / "val" / "n01440764" / "1.JPEG")
    assert len(load("imagenet", "test", root=tmp_path)) == 1


def test_a_test_set_has_no_training_images(tmp_path):
    with pytest.raises(InputError, match="the split of imagenet-r is 'train': it takes 'test'"):
        load("imagenet-r", "train", root=tmp_path)
