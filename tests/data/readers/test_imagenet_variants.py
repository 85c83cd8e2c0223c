"""ImageNet-V2, -A, -R and Sketch."""

from antiphase.data import load
from antiphase.data.readers.imagenet_variants import class_wnids
from tests.data.trees import TREES


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
