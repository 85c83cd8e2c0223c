"""Recall in both directions is what brute force finds."""

import numpy as np
import pytest
import torch

from antiphase.evals.retrieval import retrieval_rows
from antiphase.rates import wilson
from tests.evals.small_models import by_name, unit


@pytest.mark.parametrize("captions", [[5] * 30, [1] * 30, [1, 2, 7, 3, 5] * 6])
def test_recall_is_what_brute_force_finds_in_both_directions(captions):
    draw = np.random.default_rng(0)
    images, owner = draw.normal(size=(30, 6)), np.repeat(np.arange(30), captions)
    texts = images[owner] + 1.2 * draw.normal(size=(len(owner), 6))
    found = by_name(retrieval_rows(torch.from_numpy(images), torch.from_numpy(texts), captions, "images"))
    cosine = unit(texts) @ unit(images).T
    for k in (1, 5, 10):
        nearest_images = np.argsort(-cosine, axis=1)[:, :k]
        hits = [owner[j] in nearest_images[j] for j in range(len(owner))]
        assert found[f"image retrieval R@{k}"].value == pytest.approx(np.mean(hits))
        assert found[f"image retrieval R@{k}"].n == len(owner)
        nearest_texts = np.argsort(-cosine.T, axis=1)[:, :k]
        hits = [i in owner[nearest_texts[i]] for i in range(30)]
        assert found[f"text retrieval R@{k}"].value == pytest.approx(np.mean(hits))
        assert found[f"text retrieval R@{k}"].interval == pytest.approx(wilson(np.mean(hits), 30))
    assert 0 < found["image retrieval R@1"].value < 1


def test_collapsed_embeddings_retrieve_nothing():
    rows = retrieval_rows(torch.ones(30, 4), torch.ones(150, 4), [5] * 30, "images")
    assert [row.value for row in rows] == [0] * 6


def test_captions_of_one_image_are_not_counted_as_independent():
    images = torch.eye(20)
    alike = retrieval_rows(images, images.repeat_interleave(5, 0)[:, torch.randperm(20)], [5] * 20, "images")
    low, high = by_name(alike)["image retrieval R@1"].interval
    assert high - low > 0.9 * np.subtract(*wilson(alike[0].value, 20)[::-1])  # as wide as that of 20 trials, not of 100
