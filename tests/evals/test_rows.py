"""Means of rows have the interval of independent parts."""

import numpy as np
import pytest

from antiphase.measures.stats import mean_of
from antiphase.rates import wilson


def test_the_mean_of_sets_has_the_interval_of_independent_parts():
    value, (low, high) = mean_of([(0.5, wilson(0.5, 1000)), (0.7, wilson(0.7, 1000))])
    assert value == pytest.approx(0.6)
    draw = np.random.default_rng(0)
    means = (draw.binomial(1000, 0.5, 20000) + draw.binomial(1000, 0.7, 20000)) / 2000
    assert (low, high) == pytest.approx(tuple(np.quantile(means, (0.025, 0.975))), abs=0.002)
    one = mean_of([(0.3, wilson(0.3, 50))])
    assert one[1] == pytest.approx(wilson(0.3, 50))
