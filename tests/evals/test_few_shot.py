"""Few-shot episodes are nearest centroids by cosine."""

import math
from dataclasses import replace

import numpy as np
import pytest

from antiphase.config import InputError
from antiphase.evals.config import EvalConfig
from antiphase.evals.few_shot import episodes, few_shot_rows
from tests.evals.small_models import clusters, unit


def test_the_accuracy_of_an_episode_is_that_computed_by_hand():
    """Two classes of two training images: the centroids are (1, 0) and (0, 1) and every query can be read off."""
    train = np.array([[3, 0], [1, 0], [0, 1], [0, 5]], np.float32)
    test = np.array([[2, 1], [1, 2], [1, 9], [9, 1]], np.float32)
    config = EvalConfig(ways=2, shots=2, queries=2)
    found = episodes(train, np.array([0, 0, 1, 1]), test, np.array([0, 0, 1, 1]), config)
    assert len(found) == 1000
    assert set(found) == {0.5}  # (2, 1) and (1, 9) are right, (1, 2) and (9, 1) are not


def test_episodes_are_nearest_centroids_by_cosine_and_depend_on_their_number():
    train, test = clusters(200, classes=8, noise=2, seed=1), clusters(200, classes=8, noise=2, seed=2)
    config = EvalConfig(episodes=1000)
    parts = train.features, train.labels, test.features, test.labels
    found = episodes(*parts, config)
    assert np.array_equal(found, episodes(*parts, replace(config, episodes=1500))[:1000])
    assert not np.array_equal(found, episodes(*parts, replace(config, seed=1)))
    for i in (0, 7):
        draw = np.random.default_rng([0, i])
        classes = draw.choice(8, 5, replace=False)
        shown = [draw.choice(np.flatnonzero(train.labels == c), 5, replace=False) for c in classes]
        asked = [draw.permutation(np.flatnonzero(test.labels == c))[:6] for c in classes]
        centroids = [unit(np.mean([unit(train.features[r]) for r in rows], axis=0)) for rows in shown]
        right = [
            int(np.argmax([unit(test.features[r]) @ centre for centre in centroids])) == place
            for place, rows in enumerate(asked)
            for r in rows
        ]
        assert found[i] == pytest.approx(np.mean(right))
    (row,) = few_shot_rows(*parts, config, "images")
    assert row.value == pytest.approx(found.mean())
    half = 1.96234 * found.std(ddof=1) / math.sqrt(1000)  # Student's t with 999 degrees of freedom
    assert row.interval == pytest.approx((row.value - half, row.value + half), abs=1e-6)
    assert row.chance == 0.2


def test_centering_removes_what_all_features_share():
    train, test = clusters(200, classes=8, seed=1), clusters(200, classes=8, seed=2)
    values = {}
    for center in (False, True):
        for offset in (0, 8):
            parts = train.features + offset, train.labels, test.features + offset, test.labels
            (row,) = few_shot_rows(*parts, EvalConfig(center=center), "images")
            values[center, offset] = row.value
    assert values[True, 0] == pytest.approx(values[True, 8], abs=0.001)
    assert values[False, 0] != pytest.approx(values[False, 8], abs=0.01)
    assert "centered" in row.of


def test_too_few_classes_for_an_episode_are_refused():
    few = clusters(40, classes=4)
    with pytest.raises(
        InputError, match="4 classes have 5 training images and a test image: episodes of 5 classes need as many"
    ):
        episodes(few.features, few.labels, few.features, few.labels, EvalConfig())
