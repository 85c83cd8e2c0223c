"""The bootstrap over seeds and images: paired, with ratios, quantiles and ranks."""

import numpy as np
import pytest

from antiphase.measures.bootstrap import PerImage, difference, interval, rank_correlation, ranked_alike


def test_pairing_makes_the_interval_of_a_difference_narrow():
    draw = np.random.default_rng(0)
    hard = draw.random((1, 400))
    first, second = (np.repeat(hard + shift, 3, axis=0) for shift in (0.1, 0.0))
    ones = np.ones_like(first)
    together = interval([PerImage(first, ones, "a"), PerImage(second, ones, "a")], difference)
    apart = interval([PerImage(first, ones, "a"), PerImage(second, ones, "b")], difference)
    assert together["value"] == pytest.approx(0.1)
    width = [i["interval"][1] - i["interval"][0] for i in (together, apart)]
    assert width[0] < 1e-9 < 0.05 < width[1]


def test_the_interval_covers_the_spread_over_seeds_as_well_as_images():
    ones = np.ones((3, 500))
    seeds = PerImage(np.array([[0.1], [0.2], [0.3]]) * ones, ones, "same")
    low, high = interval([seeds])["interval"]
    assert (low, high) == (pytest.approx(0.1), pytest.approx(0.3))
    images = PerImage(np.tile(np.arange(500) % 2, (3, 1)).astype(float), ones, "same")
    low, high = interval([images])["interval"]
    assert (low, high) == (pytest.approx(0.456, abs=0.01), pytest.approx(0.544, abs=0.01))


def test_a_quantile_and_a_ratio_leave_out_what_does_not_count():
    values, counted = np.array([[5.0, 1.0, 3.0, 100.0]]), np.array([[1.0, 1.0, 1.0, 0.0]])
    assert interval([PerImage(values * counted, counted)])["value"] == 3.0
    assert interval([PerImage(values, counted, quantile=0.5)])["value"] == 3.0
    assert interval([PerImage(values, counted, quantile=1.0)])["value"] == 5.0
    assert interval([PerImage(values, 0 * counted)]) == {"value": None, "interval": None}


def test_rank_correlation_is_spearman_over_layers():
    layers = [np.array([[v]]) for v in (1.0, 2.0, 3.0)]
    assert rank_correlation(*layers, *layers).item() == pytest.approx(1)
    assert rank_correlation(*layers, *reversed(layers)).item() == pytest.approx(-1)
    assert np.isnan(rank_correlation(*[np.ones((1, 1))] * 3, *layers).item())  # nothing to rank
    tied = [np.array([[v]]) for v in (1.0, 1.0, 2.0)]
    assert rank_correlation(*tied, *layers).item() == pytest.approx(0.75**0.5)


def test_the_chance_of_a_rank_correlation_counts_orders_of_the_layers():
    rising = np.arange(4.0)
    assert ranked_alike(rising, rising) == (pytest.approx(1), pytest.approx(1 / 24))
    assert ranked_alike(rising, -rising) == (pytest.approx(-1), pytest.approx(1))
