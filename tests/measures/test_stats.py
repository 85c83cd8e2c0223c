"""Rates, intervals and paired tests against known answers."""

import numpy as np
import pytest
from scipy.stats import binomtest

from antiphase.measures.stats import (
    holm,
    least_p,
    mcnemar,
    mean_interval,
    paired,
    quantile_interval,
    ranked_alike,
    spearman,
)
from antiphase.rates import rate, wilson


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (3, 10), (10, 10), (57, 100), (1, 1)])
def test_wilson_is_scipys(hits, n):
    theirs = binomtest(hits, n).proportion_ci(method="wilson")
    assert wilson(hits / n, n) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def width(r):
    return r.interval[1] - r.interval[0]


def test_trials_that_stand_or_fall_together_count_once():
    images = np.arange(100) < 30
    together = rate(np.repeat(images[:, None], 5, axis=1))
    assert (together.hits, together.n) == (150, 500)
    assert together.interval == pytest.approx(rate(images).interval, abs=5e-3)
    assert width(rate(np.random.default_rng(0).random((100, 5)) < 0.3)) <= width(together)


def test_clustered_intervals_cover_what_they_say():
    """Heads of one image agree for the most part; 95 % intervals of the rate should hold the truth about as often."""
    rng = np.random.default_rng(1)
    hit = 0
    for _ in range(400):
        p = rng.beta(0.6, 1.4, size=(60, 1))  # mean 0.3, strongly clustered
        low, high = rate(rng.random((60, 4)) < p).interval
        hit += low <= 0.3 <= high
    assert hit / 400 >= 0.94  # wider than need be, where heads agree less: never more trials than images are claimed


def test_a_rate_counts_only_what_is_selected():
    flags, where = np.array([[1, 1], [0, 1]], bool), np.array([[1, 0], [1, 1]], bool)
    assert (rate(flags, where=where).hits, rate(flags, where=where).n) == (2, 3)
    assert rate(flags, where=np.zeros((2, 2), bool)).plain()["value"] is None


def test_mcnemar_looks_only_at_the_images_that_differ():
    first, second = np.array([1, 1, 1, 1, 1, 1, 0, 1], bool), np.array([1, 0, 0, 0, 0, 0, 0, 1], bool)
    expected = {"first": 7, "second": 2, "only_first": 5, "only_second": 0, "n": 8, "p": pytest.approx(2 / 32)}
    assert mcnemar(first, second) == expected
    assert mcnemar(first, first)["p"] == 1


def test_holm_is_the_textbook_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_a_paired_difference_by_hand():
    first, second = np.array([1.0, 2, 3, np.nan]), np.array([0.0, 0, 0, 5])
    found = paired(first, second)
    assert found["difference"]["value"] == 2
    assert found["difference"]["n"] == 3
    assert found["difference"]["interval"] == pytest.approx([2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5])
    assert (found["above"], found["below"], found["p_sign"]) == (3, 0, 0.25)
    assert mean_interval(np.array([np.nan])) == {"value": None, "interval": None, "n": 0}
    assert paired(first, first)["p_wilcoxon"] == 1


def test_the_interval_of_the_median_holds_it_as_often_as_it_says():
    draw = np.random.default_rng(0)
    trials = [quantile_interval(draw.exponential(size=31), 0.5)["interval"] for _ in range(400)]
    held = np.mean([low <= np.log(2) <= high for low, high in trials])
    assert 0.94 < held <= 1
    assert quantile_interval(np.array([1.0, 2.0]), 0.9)["interval"] == [1.0, None]  # too few to say how far


# ------------------------------------------------------------------------------------------------- ranks over layers


def test_layers_are_ranked_by_spearmans_correlation():
    layers = np.array([[1.0], [2.0], [3.0]])
    assert ranked_alike([(layers, layers[::-1])])["rho"] == pytest.approx(-1)
    assert ranked_alike([(np.ones((3, 1)), layers)])["rho"] == 0  # nothing to rank
    assert ranked_alike([(np.array([[1.0], [1.0], [2.0]]), layers)])["rho"] == pytest.approx(0.75**0.5)
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(2, 9, 1))
    assert ranked_alike([(x, y)])["rho"] == pytest.approx(spearman(x[:, 0], y[:, 0])["rho"])


def test_the_chance_of_a_rank_correlation_counts_orders_of_the_layers_not_seeds():
    rising = np.tile(np.arange(4.0)[:, None], (1, 10))  # ten seeds that rank their layers alike are one observation
    test = ranked_alike([(rising, rising)])
    assert (test["rho"], test["p_above"]) == (pytest.approx(1), pytest.approx(1 / 24))
    assert (least_p([4]), least_p([4, 3]), least_p([4], ["a", "a", "b", "b"])) == (1 / 24, 1 / 144, 1 / 4)
    assert ranked_alike([(rising, -rising)])["p_below"] == pytest.approx(1 / 24)
    two = ranked_alike([(rising, rising), (rising[:3], rising[:3])])
    assert (two["p_above"], two["models"]) == (pytest.approx(1 / 144), 20)


def test_within_clusters_only_their_members_change_places():
    rising = np.arange(4.0)[:, None]
    pairs = ["a", "b", "a", "b"]
    assert ranked_alike([(rising, rising)], pairs)["p_above"] == pytest.approx(1 / 4)  # of 2! * 2! orders
    clusters, alike = [name for name in "abcd" for _ in range(4)], np.repeat(np.arange(4.0), 4)[:, None]
    assert ranked_alike([(alike, alike)])["p_above"] < 0.001
    assert ranked_alike([(alike, alike)], clusters)["p_above"] == 1  # what clusters share is no evidence
