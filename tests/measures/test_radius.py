"""Radii from margins and Lipschitz constants."""

import math

import numpy as np
import pytest
import torch

from antiphase.measures.radius import first_order, radius


def test_a_margin_over_the_lipschitz_constant_of_the_logits_is_too_large():
    """F(x) = (a x, -a x) along one axis, here turned so that ||J||_op = L: the flip is at m / (sqrt2 L), inside m / L."""
    lipschitz, m = 1.0, 0.424264
    logits = lambda x: np.array([m / 2 - lipschitz * x / math.sqrt(2), -m / 2 + lipschitz * x / math.sqrt(2)])  # noqa: E731
    slope = np.linalg.norm(logits(1.0) - logits(0.0))
    assert slope == pytest.approx(lipschitz)
    assert radius(m, lipschitz) == pytest.approx(0.424, abs=1e-3)
    assert radius(m, lipschitz, "sqrt2") == pytest.approx(0.300, abs=1e-3)
    before, after = logits(0.299), logits(0.301)
    assert before[0] > before[1]
    assert after[0] < after[1]


def test_first_order_radii_are_exact_for_a_linear_classifier():
    torch.manual_seed(0)
    linear = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)).double()
    x = torch.rand(20, 1, 8, 8, dtype=torch.float64)
    y = linear(x).argmax(dim=1)
    found = first_order(linear, x, y)
    w, z = linear[1].weight.detach(), linear(x).detach()
    for i in range(20):
        others = [k for k in range(3) if k != y[i]]
        gaps = {k: float(z[i, y[i]] - z[i, k]) for k in others}
        assert found["first_l2"][i] == pytest.approx(min(gaps[k] / float((w[y[i]] - w[k]).norm()) for k in others))
        assert found["first_linf"][i] == pytest.approx(
            min(gaps[k] / float((w[y[i]] - w[k]).abs().sum()) for k in others)
        )
        assert found["per_logit"][i] <= found["first_l2"][i]
    assert first_order(linear, x, (y + 1) % 3)["first_l2"].isnan().all()  # a wrong image has no radius
