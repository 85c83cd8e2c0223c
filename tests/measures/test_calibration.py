"""The expected calibration error, on examples whose value is known."""

import numpy as np
import pytest

from antiphase.measures.calibration import BINS, ece, mean_ece


def test_a_model_that_is_as_often_right_as_it_is_sure_has_no_error():
    confidence = np.repeat([0.25, 0.75], 100)
    correct = np.r_[np.arange(100) < 25, np.arange(100) < 75]
    assert ece(confidence, correct) == pytest.approx(0)


def test_a_model_that_is_always_sure_and_right_half_the_time_is_off_by_a_half():
    assert ece(np.ones(10), np.arange(10) < 5) == pytest.approx(0.5)


def test_errors_of_two_bins_add_up_by_their_shares():
    confidence = np.array([0.9, 0.9, 0.9, 0.3])
    correct = np.array([True, True, False, False])
    assert ece(confidence, correct) == pytest.approx(3 / 4 * (0.9 - 2 / 3) + 1 / 4 * 0.3)


def test_inside_a_bin_too_much_and_too_little_confidence_cancel_and_in_two_bins_they_do_not():
    edge = 3 / BINS
    within, apart = np.array([edge - 0.02, edge - 0.01]), np.array([edge - 0.01, edge + 0.01])
    correct = np.array([True, False])
    assert ece(within, correct) == pytest.approx(0.5 - within.mean())
    assert ece(apart, correct) == pytest.approx((1 - apart[0]) / 2 + apart[1] / 2)


def test_the_interval_of_the_error_covers_what_is_true():
    """Right with the stated confidence minus a tenth: the true error is 0.1."""
    covered, worlds, draw = 0, 40, np.random.default_rng(1)
    for seed in range(worlds):
        confidence = draw.uniform(0.4, 1, 1_000)
        correct = draw.random(1_000) < confidence - 0.1
        low, high = mean_ece([(confidence, correct)], seed)["interval"]
        covered += low <= 0.1 <= high
    assert covered >= 0.85 * worlds


def test_conditions_count_the_same_and_an_interval_lies_in_0_to_1():
    sure, correct = np.ones(20), np.arange(20) < 10
    estimate = mean_ece([(sure, correct), (sure * 0.5, correct)])
    assert estimate["value"] == pytest.approx((0.5 + 0) / 2)
    assert 0 <= estimate["interval"][0] <= estimate["interval"][1] <= 1
    assert estimate["n"] == 20
