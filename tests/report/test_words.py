"""Words in place of the keys that stored results use."""

import pytest

from antiphase.paper.catalog import studies
from antiphase.paper.grid import Grid
from antiphase.report.words import label_words, reading_words, told_apart


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("DiffViT - ViT, cifar100, eps 0.5/255", "DiffViT − ViT, CIFAR-100, ε 0.5/255"),
        ("cifar10 in place of coco", "CIFAR-10 in place of COCO"),
        (
            "tiny-imagenet, lambda_init 0.8, control: shuffled",
            "Tiny ImageNet, λ_init 0.8, control: A2 of the next head",
        ),
        ("A1 - lambda A2", "A1 − λ A2"),
        (
            "runs/cifar10/mine, cifar10-grey, epsilon",
            "runs/cifar10/mine, cifar10-grey, epsilon",
        ),  # names of the user's own
    ],
)
def test_a_label_names_data_sets_controls_and_letters_as_they_are_read(label, words):
    assert label_words(label) == words


def test_no_reading_of_any_study_is_shown_as_its_key():
    readings = {line.reading for study in studies().values() for line in study.lines(Grid.at("cpu"))}
    words = " ".join(map(reading_words, readings))
    for key in ("asr_", "_accuracy", "union_", "lambda", "L-sample", "R1:", "R3:", "quantile 0"):
        assert key not in words.replace("rank correlation of λ", ""), key


def test_names_are_told_apart_by_what_they_do_not_share():
    common, rest = told_apart([["gap", "CIFAR-10", "1/255"], ["gap", "CIFAR-100", "1/255"]])
    assert common == ["gap", "1/255"]
    assert rest == ["CIFAR-10", "CIFAR-100"]
