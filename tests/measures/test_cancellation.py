"""Cancellation against hand-computable changes and maps mixed by hand."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from antiphase.measures.cancellation import cancellation, over_layers
from antiphase.measures.perturbations import perturbed
from antiphase.measures.residual_stream import block_sigma, propagation
from antiphase.measures.stats import spearman
from antiphase.models.taps import taps
from tests.measures.made_changes import EPS, of

BOTH = [(0, "pseudo"), (1, "branches")]  # of the pair: which run, how its maps are coupled


def test_equal_changes_cancel_completely_and_opposite_ones_not_at_all():
    d = np.random.default_rng(0).normal(size=(4, 2, 9))
    equal = of(d, d, lam=1.0)
    assert (equal.alpha == 0).all()
    assert np.isinf(equal.cmrr).all()
    summary = equal.summary()
    assert summary["cmrr_median"] is None
    assert summary["cmrr_infinite"] == 8
    assert summary["cancels"]["value"] == 1
    assert all(row["residue"] == 0 and row["cmrr"] is None for row in equal.rows(np.arange(4)))
    json.dumps(summary, allow_nan=False)
    opposite = of(d, -d, lam=0.7)
    assert opposite.alpha == pytest.approx(1, abs=1e-15)
    assert opposite.cmrr == pytest.approx((1 + 0.49) / 1.7**2)
    assert of(d, -d, lam=-1.0).alpha == pytest.approx(0, abs=1e-15)  # minus a negative lambda: opposite changes cancel


def test_alpha_and_cmrr_are_what_kappa_and_the_angle_make_of_them():
    """alpha_tri = s / (1 + kappa), CMRR = 1 / (1 - 2 kappa c / (1 + kappa^2)), to 1e-10 in float64."""
    rng = np.random.default_rng(0)
    d1, d2, lam = rng.normal(size=(50, 3, 20)), rng.normal(size=(50, 3, 20)) * 2, 0.6
    found = of(d1, d2, lam)
    norm = np.linalg.norm
    direct = norm(d1 - lam * d2, axis=-1) / (norm(d1, axis=-1) + lam * norm(d2, axis=-1))
    kappa, c = lam * norm(d2, axis=-1) / norm(d1, axis=-1), found.cos
    assert np.abs(found.alpha - direct).max() < 1e-10
    assert np.abs(found.alpha - np.sqrt(1 + kappa**2 - 2 * kappa * c) / (1 + kappa)).max() < 1e-10
    assert np.abs(found.cmrr * (1 - 2 * kappa * c / (1 + kappa**2)) - 1).max() < 1e-10
    assert np.abs(found.reference - np.sqrt(1 + kappa**2) / (1 + kappa)).max() < 1e-10
    assert ((found.alpha < found.reference) == (c > 0)).all()
    one = of([[[1.0, 0]]], [[[0, 1.0]]], lam=0.8)
    assert one.alpha[0, 0] == one.reference[0, 0] == pytest.approx(0.7115, abs=1e-4)


def test_a_branch_that_does_not_move_is_counted_and_left_out():
    d = np.random.default_rng(0).normal(size=(5, 2, 9))
    still = d.copy()
    still[0, 0] = 0
    summary = of(d, still).summary()
    assert summary["dead"] == 1
    assert summary["cancels"]["n"] == 9
    assert of(d, still).alpha[0, 0] == 1  # nothing to cancel with
    nothing = of(0 * d, 0 * d)
    assert np.isnan(nothing.alpha).all()
    assert nothing.summary()["alpha"] is None
    assert nothing.rows(np.arange(5))[0]["alpha"] is None


@pytest.mark.parametrize(("which", "coupling"), BOTH)
def test_changes_of_a_real_model_come_from_its_own_maps(which, coupling, pair, digits):
    """n1, n2 and ip of every level against maps that are read and mixed by hand."""
    model, few = pair[which].classifier(), digits[1].subset(5)
    found = {c.quantity: c for c in cancellation(model, few, perturbations=("sign",), coupling=coupling)}
    assert set(found) == {"maps", "values", "held"}
    there = perturbed(model, few.all, "sign", EPS)
    reads = []
    for pixels in (few.all.pixels, there.pixels):
        with torch.no_grad(), taps(model) as record:
            model(pixels)
        (maps,) = record.values()
        a, v = maps.signal.double(), maps.values.double()
        if coupling == "pseudo":
            reads.append((a[:, 0::2], a[:, 1::2], torch.cat([v[:, 0::2], v[:, 1::2]], dim=-1)))
        else:
            reads.append((a, maps.noise.double(), v))
    (a, b, v), (c, d, w) = reads
    changes = {"maps": (c - a, d - b), "values": (c @ w - a @ v, d @ w - b @ v), "held": ((c - a) @ v, (d - b) @ v)}
    for level, (one, two) in changes.items():
        assert found[level].ip == pytest.approx((one * two).flatten(2).sum(-1).numpy(), rel=1e-3, abs=1e-7)
        assert found[level].n1 == pytest.approx((one * one).flatten(2).sum(-1).numpy(), rel=1e-3)
        assert found[level].l2 == pytest.approx(there.l2)
        rows = found[level].rows(few.ids)
        assert len(rows) == 5 * found[level].n1.shape[1]
        json.dumps([rows, found[level].summary()], allow_nan=False)


def test_cancellation_and_propagation_do_not_depend_on_the_batch(pair, digits):
    model, few = pair[1].classifier(), digits[1].subset(7)
    for measure, field in ((cancellation, "ip"), (propagation, "change"), (propagation, "without")):
        whole, parts = (measure(model, few, perturbations=("sign", "blur"), batch_size=size) for size in (64, 3))
        assert len(whole) == len(parts)
        for a, b in zip(whole, parts):
            assert getattr(a, field) == pytest.approx(getattr(b, field), rel=1e-3, abs=1e-6)
    assert block_sigma(model, few, batch_size=3) == pytest.approx(block_sigma(model, few), rel=1e-3)


def test_layers_are_ranked_by_lambda_where_there_are_three():
    rng = np.random.default_rng(0)
    d = rng.normal(size=(6, 1, 9))
    layers = [of(d, d + k * rng.normal(size=d.shape), lam=0.9 - k / 10, layer=str(k)) for k in range(5)]
    (row,) = over_layers(layers)
    assert row["lambda_alpha"] == {"rho": pytest.approx(-1), "p": pytest.approx(2 / 120), "n": 5}
    assert over_layers(layers[:2])[0]["lambda_alpha"] is None
    x, y = rng.normal(size=(2, 30))
    ours, theirs = spearman(x, y), spearmanr(x, y)
    assert ours["rho"] == pytest.approx(theirs.statistic)
    assert ours["p"] == pytest.approx(theirs.pvalue, abs=0.02)
