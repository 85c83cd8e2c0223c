"""A linear probe is scikit-learn's, with its C chosen on validation images."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from antiphase.config import InputError
from antiphase.evals.config import EvalConfig
from antiphase.evals.probe import LabelledFeatures, cost_grid, held_out, probe_rows
from antiphase.evals.rows import per_class
from antiphase.rates import wilson
from tests.evals.small_models import clusters


def test_a_probe_is_scikit_learns_with_the_cost_that_was_best_on_validation():
    train, validation, test = clusters(120, seed=1), clusters(60, seed=2), clusters(200, seed=3)
    config = EvalConfig(costs=5)
    (row, _), chosen = probe_rows(train, validation, test, config, "images")
    scores = {}
    for cost in np.logspace(-6, 6, 5):
        fitted = LogisticRegression(C=cost, max_iter=1000).fit(train.features.astype(float), train.labels)
        scores[float(cost)] = fitted.score(validation.features.astype(float), validation.labels)
    assert dict(map(tuple, chosen["validation"])) == pytest.approx(scores)
    best = max(scores, key=scores.get)
    assert chosen["C"] == best
    assert not chosen["at_the_edge"]
    both = [np.concatenate([getattr(part, field) for part in (train, validation)]) for field in ("features", "labels")]
    final = LogisticRegression(C=best, max_iter=1000).fit(both[0].astype(float), both[1])
    assert row.value == pytest.approx(final.score(test.features.astype(float), test.labels))
    assert row.n == 200
    assert row.interval == pytest.approx(wilson(row.value, 200))
    assert 0.4 < row.value < 1


def test_without_a_published_validation_split_a_fifth_of_every_class_is_held_out():
    labels = np.repeat([0, 1, 2, 3], [50, 10, 2, 1])
    chosen = held_out(labels, seed=0)
    assert [int(chosen[labels == c].sum()) for c in range(4)] == [10, 2, 1, 0]  # a lone image stays with training
    assert np.array_equal(chosen, held_out(labels, seed=0))
    assert not np.array_equal(chosen, held_out(labels, seed=1))
    train, test = clusters(100, seed=1), clusters(50, seed=2)
    later = held_out(train.labels, 0)
    config = EvalConfig(costs=3)
    whole = probe_rows(train, None, test, config, "images")
    split = probe_rows(train.take(~later), train.take(later), test, config, "images")
    assert whole[1]["validation"] == split[1]["validation"]
    assert whole[0][0].value == pytest.approx(split[0][0].value)


def test_the_values_of_c_are_those_that_clip_sweeps():
    assert len(cost_grid(96)) == 96
    assert (cost_grid(96)[0], cost_grid(96)[-1]) == (1e-6, 1e6)
    steps = np.diff(np.log10(cost_grid(96)))
    assert np.allclose(steps, steps[0])


def test_classes_have_equal_weight_where_the_protocol_says_so():
    right, labels = np.array([True, True, True, False, True, False]), np.array([0, 0, 0, 0, 2, 2])
    row = per_class("x", right, labels, "")
    assert row.value == pytest.approx((0.75 + 0.5) / 2)
    assert row.interval == pytest.approx(wilson(row.value, 4 / (1 / 4 + 1 / 2)))
    even = per_class("x", right, np.array([0, 0, 0, 1, 1, 1]), "")
    assert even.interval == pytest.approx(wilson(4 / 6, 6))
    (first, second), _ = probe_rows(
        clusters(60), None, clusters(60, seed=5), EvalConfig(costs=2), "images", by_class=True
    )
    assert (first.name, second.name) == ("linear probe", "linear probe, all images")
    assert "mean over the classes" in first.of


def test_an_interrupted_search_goes_on_where_it_was(tmp_path, monkeypatch):
    from antiphase.evals import probe

    fits, real = [], probe.fit

    def fit(data, cost, iterations):
        if len(fits) == 2:
            raise KeyboardInterrupt
        fits.append(cost)
        return real(data, cost, iterations)

    train, test, config = clusters(60), clusters(60, seed=5), EvalConfig(costs=4)
    expected = probe_rows(train, None, test, config, "images")
    monkeypatch.setattr(probe, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        probe_rows(train, None, test, config, "images", keep=tmp_path / "kept.json")
    fits[:] = [0] * 10
    assert probe_rows(train, None, test, config, "images", keep=tmp_path / "kept.json") == expected
    assert fits[10:13] == [*cost_grid(4)[2:], expected[1]["C"]]


def test_a_probe_of_one_class_is_refused():
    one = LabelledFeatures(np.zeros((4, 2), np.float32), np.zeros(4, np.int64))
    with pytest.raises(InputError, match="training images of two classes at least, and those of things are of one"):
        probe_rows(one, None, one, EvalConfig(), "things")
