"""The depth at which two architectures change places."""

import numpy as np
import pytest

from antiphase.measures.bootstrap import PerImage
from antiphase.measures.crossover import crossing, crossover


@pytest.mark.parametrize(
    ("gaps", "depth", "changes"),
    [
        ([0.2, -0.2, -0.3], 2**0.5, 1),
        ([0.3, 0.1, 0.05], None, 0),  # falling, but never extrapolated
        ([0.1, -0.1, 0.1], 2**0.5, 2),
        ([0.1, 0.0, 0.0], 2.0, 1),
    ],
)
def test_the_crossover_depth_is_interpolated_in_log_depth(gaps, depth, changes):
    found, count = crossing([1, 2, 4], gaps)
    assert found == (None if depth is None else pytest.approx(depth))
    assert count == changes


def test_the_crossover_has_an_interval_and_the_share_without_one():
    draw = np.random.default_rng(1)
    ones = np.ones((3, 300))
    pairs = [
        (PerImage(draw.normal(gap, 0.5, (3, 300)), ones, "x"), PerImage(0 * ones, ones, "x"))
        for gap in (0.2, 0.02, -0.2)
    ]
    found = crossover([1, 2, 4], pairs)
    low, high = found["interval"]
    assert low < found["median"] < high
    assert 1 < low < high < 4
    assert found["none"] < 0.05
