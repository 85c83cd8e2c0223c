"""Subsets, ids and fingerprints of an ImageSet."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphase.config import InputError
from antiphase.data import load


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 360), st.integers(0, 5))
def test_subsets_are_balanced_seeded_and_nested(n, seed):
    whole = load("digits", "test")
    few = whole.subset(n, seed)
    counts = np.bincount(few.labels, minlength=10)
    room = np.bincount(whole.labels, minlength=10)
    assert len(few) == n
    for a in range(10):  # no class gets two more than another unless that other has run out
        assert all(counts[a] <= counts[b] + 1 or counts[b] == room[b] for b in range(10))
    assert np.array_equal(few.ids, whole.subset(n, seed).ids)
    assert set(few.ids) <= set(whole.subset(min(n + 7, 360), seed).ids)
    assert torch.equal(few.all.pixels, whole.source.read(few.ids))


def test_a_subset_larger_than_the_set_is_refused():
    with pytest.raises(InputError, match="holds 360 images: cannot take 361"):
        load("digits", "test").subset(361)


def test_fingerprints_follow_the_choice_of_images():
    whole = load("digits", "test")
    prints = {whole.fingerprint, whole.subset(50).fingerprint, whole.subset(50, seed=1).fingerprint}
    assert len(prints) == 3


def test_other_pixels_stay_with_their_images_through_a_subset():
    images = load("digits", "test").subset(20)
    inverted = images.with_pixels(1 - images.all.pixels)
    rows = np.array([7, 3, 11])
    assert torch.equal(inverted.take(rows).all.pixels, 1 - images.take(rows).all.pixels)
    assert np.array_equal(inverted.take(rows).labels, images.take(rows).labels)
