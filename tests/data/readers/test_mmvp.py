"""MMVP: pairs of images with a statement each."""

import shutil

import pytest

from antiphase.config import InputError
from antiphase.data.readers.mmvp import load_mmvp
from tests.data.trees import lines, mmvp


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
