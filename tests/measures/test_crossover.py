"""The depth at which two architectures change places."""

import numpy as np
import pytest

from antiphase.measures.crossover import crossing, crossover
from antiphase.measures.seed_intervals import PerImage, PerSeed, difference


@pytest.mark.parametrize(
    ("gaps", "depth", "direction", "changes"),
    [
        ([0.2, -0.2, -0.3], 2**0.5, "falls below", 1),
        ([-0.2, 0.2, 0.3], 2**0.5, "rises above", 1),  # the opposite of the paper
        ([0.3, 0.1, 0.05], None, None, 0),  # falling, but never extrapolated
        ([0.1, -0.1, 0.1], 2**0.5, "falls below", 2),
        ([0.1, 0.0, 0.0], None, None, 0),  # equal is on no side
        ([0.1, 0.0, -0.1], 2.0, "falls below", 1),
    ],
)
def test_the_crossover_depth_is_interpolated_in_log_depth(gaps, depth, direction, changes):
    where, way, count = crossing([1, 2, 4], gaps)
    assert where == (None if depth is None else pytest.approx(depth))
    assert (way, count) == (direction, changes)


def gaps_of(means, seed_sd, draw, seeds=3, images=300):
    ones = np.ones((seeds, images))
    return [
        PerSeed.of(
            [
                PerImage(draw.normal(mean, 0.5, ones.shape) + draw.normal(0, seed_sd, (seeds, 1)), ones, "x"),
                PerImage(0 * ones, ones, "x"),
            ],
            difference,
        )
        for mean in means
    ]


def test_a_clear_crossing_has_an_interval_and_its_probability():
    result = crossover([1, 2, 4], gaps_of((0.2, 0.02, -0.2), 0.0, np.random.default_rng(1), seeds=10))
    low, high = result["interval"]
    assert low < result["depth"] < high
    assert 1 < low < high < 4
    assert result["direction"] == "falls below"
    assert result["falls below"] > 0.95


def test_a_sample_that_does_not_cross_has_no_crossover_depth_whatever_the_draws_do():
    result = crossover([1, 2, 4], gaps_of((0.3, 0.1, 0.1), 0.03, np.random.default_rng(2)))
    assert (result["depth"], result["direction"], result["interval"]) == (None, None, None)
    assert 0 < result["falls below"] < 1


def test_robust_first_and_fragile_later_is_not_the_papers_direction():
    result = crossover([1, 2, 4], gaps_of((-0.2, -0.1, 0.2), 0.0, np.random.default_rng(3), seeds=5))
    assert result["direction"] == "rises above"
    assert result["falls below"] < 0.05 < 0.9 < result["rises above"]
