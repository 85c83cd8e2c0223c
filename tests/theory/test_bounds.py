"""Counterexamples to Lemma 2, equation 6 and Corollary 1 as printed (docs/method.md 1.2)."""

import math

import numpy as np
import pytest

from antiphase.theory.bounds import crossover
from antiphase.theory.radius import denominator


def test_the_gradient_norm_at_a_point_is_no_upper_bound():
    """f(x) = x^2 at 0: the gradient is 0, L_r(0) = r."""
    x = np.linspace(0.01, 1, 50)
    assert (x**2 / x).max() == 1 > 0


def test_a_ratio_of_upper_bounds_bounds_no_ratio():
    """J_DA = diag(1, 0), J_base = diag(1, 1): operator norms 1 to 1, Frobenius 1 to sqrt(2)."""
    a, b = np.diag([1.0, 0.0]), np.eye(2)
    assert np.linalg.norm(a, 2) / np.linalg.norm(b, 2) == 1 > np.linalg.norm(a) / np.linalg.norm(b)
    srank = [np.linalg.norm(m) ** 2 / np.linalg.norm(m, 2) ** 2 for m in (a, b)]
    assert np.linalg.norm(a) / np.linalg.norm(b) * math.sqrt(srank[1] / srank[0]) == pytest.approx(1)


def test_equation_6_as_printed_has_a_negative_denominator():
    assert denominator(1.0, 1.0, 1.0, printed=True) == pytest.approx(math.sqrt(2) - 2)  # -0.586
    assert denominator(1.0, 1.0, 1.0, printed=False) == 0


def test_corollary_1_has_no_crossover_and_the_repaired_one_has():
    alpha, da, base = 0.8, 1.2, 1.05
    assert all((alpha * da) ** depth < base**depth for depth in range(1, 20))  # never crosses
    assert crossover(alpha, da, base) == pytest.approx(2.49, abs=5e-3)
    assert alpha**1 * da**2 > base**2  # D = 2
    assert alpha**2 * da**3 < base**3  # D = 3
    assert np.isnan(crossover(0.9, 1.2, 1.05))  # alpha L_DA >= L_base: none
