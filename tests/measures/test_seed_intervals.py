"""Intervals over few seeds and many images: paired, with ratios and quantiles, never degenerate, and as wide as they must be."""

import numpy as np
import pytest
from scipy.stats import norm, t

from antiphase.measures.seed_intervals import (
    PerImage,
    PerSeed,
    Plan,
    combined,
    difference,
    difference_of_gaps,
    estimated,
    line_weights,
    log_ratio,
)


def ones(seeds, images):
    return np.ones((seeds, images))


def test_pairing_makes_the_interval_of_a_difference_narrow():
    draw = np.random.default_rng(0)
    hard = draw.random((1, 400))
    first, second = (np.repeat(hard + shift, 3, axis=0) for shift in (0.1, 0.0))
    together = estimated([PerImage(first, ones(3, 400), "a"), PerImage(second, ones(3, 400), "a")], difference)
    apart = estimated([PerImage(first, ones(3, 400), "a"), PerImage(second, ones(3, 400), "b")], difference)
    assert together.value == pytest.approx(0.1)
    assert together.half_width() < 1e-9 < 0.03 < apart.half_width()


def test_seeds_that_differ_on_every_image_alike_give_students_interval():
    seeds = PerImage(np.array([[1.1], [1.2], [1.3]]) * ones(3, 500), ones(3, 500), "same")
    low, high = estimated([seeds]).interval()
    half = t.isf(0.025, 2) * 0.1 / 3**0.5
    assert (low, high) == (pytest.approx(1.2 - half), pytest.approx(1.2 + half))


def test_images_that_all_seeds_share_are_no_more_than_one_sample():
    """Ten models that agree on every image know no more of the population than one."""
    flags = (np.arange(500) % 2).astype(float)
    one, ten = (PerImage(np.tile(flags, (s, 1)), ones(s, 500), "same") for s in (1, 10))
    assert estimated([ten]).half_width() == pytest.approx(estimated([one]).half_width(), rel=0.01)


def test_no_interval_is_degenerate_at_0_or_100_percent():
    for seeds in (1, 3):
        for share in (0.0, 1.0):
            rate = PerImage(share * ones(seeds, 32), ones(seeds, 32), "same")
            low, high = estimated([rate]).interval()
            assert high - low == pytest.approx(0.107, abs=0.001)  # Wilson's, of 32 images
            assert 0 <= low <= share <= high <= 1
            gap = estimated([rate, rate], difference)
            assert gap.interval() == (pytest.approx(-3.69 / 32, rel=0.01), pytest.approx(3.69 / 32, rel=0.01))
            assert gap.p_above() == gap.p_below() == 1.0


def test_a_p_value_is_small_exactly_where_the_interval_excludes_the_value():
    draw = np.random.default_rng(3)
    for _ in range(200):
        seeds, n = int(draw.integers(1, 6)), int(draw.integers(20, 200))
        rates = [
            PerImage((draw.random((seeds, n)) < draw.random()).astype(float), ones(seeds, n), "x") for _ in range(2)
        ]
        gap = estimated(rates, difference)
        low, high = gap.interval()
        for null in draw.normal(gap.value, 0.1, 5):
            assert (gap.p_above(null) < 0.025) == (low > null)
            assert (gap.p_below(null) < 0.025) == (high < null)


def test_a_seed_without_a_number_is_never_left_out():
    sizes = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, np.inf, np.inf, np.inf]])
    medians = PerImage(sizes, ones(2, 4), quantile=0.5)
    assert medians.value.tolist() == [2.0, np.inf]
    assert estimated([medians]) is None
    assert estimated([PerImage(sizes, 0 * ones(2, 4))]) is None


def test_a_quantile_and_a_ratio_leave_out_what_does_not_count():
    values, counted = np.array([[5.0, 1.0, 3.0, 100.0]]), np.array([[1.0, 1.0, 1.0, 0.0]])
    assert estimated([PerImage(values * counted, counted)]).value == 3.0
    assert estimated([PerImage(values, counted, quantile=0.5)]).value == 3.0
    assert estimated([PerImage(values, counted, quantile=1.0)]).value == 5.0


@pytest.mark.parametrize("statistic", [difference, log_ratio])
def test_the_variance_over_images_is_that_of_a_bootstrap(statistic):
    draw = np.random.default_rng(5)
    n, bottoms = 300, (draw.random((2, 300)) < 0.7).astype(float)
    tops = [bottoms * (1 + draw.random((2, n))) for _ in range(2)]
    exact = estimated([PerImage(top, bottoms, "x") for top in tops], statistic).image_variance
    again = []
    for _ in range(3_000):
        chosen = draw.integers(0, n, n)
        numbers = [PerImage(top[:, chosen], bottoms[:, chosen], "x").value for top in tops]
        again.append(float(statistic(*numbers).mean()))
    assert np.var(again) == pytest.approx(exact, rel=0.12)


def test_the_variance_of_a_median_over_images_is_that_of_a_bootstrap():
    draw = np.random.default_rng(6)
    values = draw.exponential(size=(1, 2_000))
    exact = estimated([PerImage(values, np.ones_like(values), quantile=0.5)]).image_variance
    again = [np.median(draw.choice(values[0], 2_000)) for _ in range(1_000)]
    assert np.var(again) == pytest.approx(exact, rel=0.3)


def test_a_line_through_depths_counts_every_training_once():
    depths, seeds = np.log2([1, 2, 4, 8]), [10, 5, 5, 3]
    x = np.repeat(depths, seeds)
    y = np.random.default_rng(0).normal(0.3 - 0.1 * x, 0.05)
    slope, height = np.polyfit(x, y, 1)
    means = [float(y[x == d].mean()) for d in depths]
    assert np.dot(line_weights(depths, seeds), means) == pytest.approx(slope * 3)
    assert np.dot(line_weights(depths, seeds, at=3.0), means) == pytest.approx(height + 3 * slope)


def test_groups_of_models_are_independent_but_for_their_images():
    """Two depths that answer alike on every image differ by nothing that the choice of images could change."""
    flags = (np.random.default_rng(1).random((4, 200)) < 0.4).astype(float)
    group = PerSeed.of([PerImage(flags, ones(4, 200), "x")])
    same, apart = combined([(1.0, group), (-1.0, group)]), combined([(1.0, group)])
    assert same.image_variance == pytest.approx(0, abs=1e-18)
    assert apart.image_variance > 1e-4


def test_a_rate_that_varies_less_than_its_threshold_is_given_its_variance_and_no_degrees_of_freedom():
    """Three seeds near 1, held against 0.9: their own spread says no more than three seeds can."""
    draw = np.random.default_rng(4)
    flags = np.stack([draw.random(500) < rate for rate in (0.97, 0.99, 1.0)]).astype(float)
    rate, against = (estimated([PerImage(flags, ones(3, 500))], lambda a, t=t: a - t) for t in (0.0, 0.9))
    assert against.variance > 3 * rate.variance
    assert against.df == pytest.approx(rate.df)


def test_a_difference_of_gaps_on_two_samples_adds_their_variances():
    draw = np.random.default_rng(2)
    a, b, c, d = (PerImage(draw.random((3, 100)), ones(3, 100), sample) for sample in ("few", "few", "many", "many"))
    first, second = estimated([a, b], difference), estimated([c, d], difference)
    both = estimated([a, b, c, d], difference_of_gaps)
    assert both.value == pytest.approx(first.value - second.value)
    assert both.image_variance == pytest.approx(first.image_variance + second.image_variance, rel=1e-6)


# ------------------------------------------------------------------------------------------------- coverage, power


def percentile_bootstrap(one, other, draw):
    """What stood here before: seeds are drawn, then images."""
    S, n = one.shape
    means = []
    for _ in range(200):
        seeds, images = draw.integers(0, S, S), draw.integers(0, n, n)
        means.append((one - other)[seeds][:, images].mean())
    return np.quantile(means, [0.025, 0.975])


def trials(seed_sd, n, seeds, number, draw):
    """Two models that are equally easy to fool (half of the images), with trainings that differ on the logit scale."""
    for _ in range(number):
        flags = []
        for _ in range(2):
            logit = draw.normal(0, seed_sd / 0.25, (seeds, 1))
            flags.append((draw.random((seeds, n)) < 1 / (1 + np.exp(-logit))).astype(float))
        yield flags


def test_intervals_over_three_seeds_cover_where_the_bootstrap_did_not():
    draw = np.random.default_rng(0)
    covered, bootstrapped, number = 0, 0, 400
    for one, other in trials(0.05, 2_000, 3, number, draw):
        gap = estimated([PerImage(f, ones(3, 2_000), "x") for f in (one, other)], difference)
        low, high = gap.interval()
        covered += low <= 0 <= high
        low, high = percentile_bootstrap(one, other, draw) if bootstrapped is not None else (0, 0)
        bootstrapped += low <= 0 <= high
    assert bootstrapped / number < 0.85  # nominal 95 %
    assert 0.92 <= covered / number <= 0.985


def test_the_planned_power_is_what_simulation_finds():
    draw = np.random.default_rng(1)
    plan = Plan(seed_sd=0.03, disagreement=0.5)  # two independent coins differ on half of the images
    number, gap, seen = 600, 0.08, 0
    for one, other in trials(0.03 / 2**0.5, 600, 5, number, draw):
        higher = np.where((one == 0) & (draw.random(one.shape) < gap / 0.5), 1.0, one)
        low, _ = estimated([PerImage(f, ones(5, 600), "x") for f in (higher, other)], difference).interval()
        seen += low > 0
    assert seen / number == pytest.approx(plan.power([1.0], [5], 600, gap), abs=0.06)


def test_more_seeds_and_more_images_give_more_power_and_one_training_gives_none():
    plan = Plan()
    powers = [plan.power([1.0], [seeds], 500, 0.05) for seeds in (1, 2, 3, 5, 10)]
    assert powers[0] == 0
    assert powers == sorted(powers)
    assert plan.power([1.0], [10], 200, 0.05) < plan.power([1.0], [10], 2_000, 0.05)
    needed = plan.seeds_needed(500, 0.05)
    assert plan.power([1.0], [needed - 1], 500, 0.05) < 0.8 <= plan.power([1.0], [needed], 500, 0.05)
    assert plan.power_of_pair(2_000, 0.05) > 0.8 > plan.power_of_pair(100, 0.05)


@pytest.mark.parametrize(("q", "images"), [(0.5, 28), (0.9, 100), (0.95, 200)])
def test_a_quantile_has_an_interval_that_covers_or_none(q, images):
    draw, true, covered = np.random.default_rng(0), float(np.exp(np.hypot(0.5, 0.33) * norm.ppf(q))), 0
    for _ in range(300):
        sizes = np.exp(0.5 * draw.normal(size=(1, images)) + 0.33 * draw.normal(size=(5, images)))
        low, high = estimated([PerImage(sizes, np.ones_like(sizes), "images", q)]).interval()
        covered += low <= true <= high
    assert covered >= 0.91 * 300
    for tail in (1 - 9 / images, 1.0):  # nine images lie beyond it, and none
        estimate = estimated([PerImage(sizes, np.ones_like(sizes), "images", tail)])
        assert np.isnan(estimate.interval()).all()
        assert estimate.p_above() == 1.0
