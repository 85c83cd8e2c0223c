"""Name -> PairSet; what cannot be found or read is refused in one sentence."""

import pytest

from antiphase.config import InputError
from antiphase.data.pair_catalog import is_captioned, load_pairs
from tests.data.flickr import LINES, flickr
from tests.data.shards import sample, write_shard


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


def test_a_folder_of_classes_is_no_set_of_captions(tmp_path, shards):
    (tmp_path / "classes" / "cat").mkdir(parents=True)
    assert not is_captioned(str(tmp_path / "classes"))
    assert not is_captioned("cifar10")
    assert is_captioned(str(shards))


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
