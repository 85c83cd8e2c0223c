"""Counterexamples to section 4.1 as printed (docs/method.md 1.2)."""

import numpy as np
import pytest

from antiphase.measures.branch_pairs import amplification
from antiphase.theory.gradients import endpoints, lemma_1_residual, threshold
from tests.theory.evidence_of_models import evidence, operator_norms


def test_equation_2_gives_a_negative_norm_where_lambda_rho_exceeds_one():
    """lambda = 2 and J2 = J1: ||J1 - 2 J1|| = ||J1||, eq. 2 says -||J1||. On numbers and on a model."""
    assert amplification(2.0, 1.0) == 1
    assert endpoints(2.0)[0] == -1
    layer = evidence("aligned, lambda = 2").layers[0]
    assert layer.aligned().amplification == pytest.approx(1)
    assert endpoints(layer.aligned().kappa)[0] == pytest.approx(-1)


def test_orthogonal_branches_amplify_already():
    assert amplification(0.8, 0.0) == pytest.approx(1.2806, abs=1e-4)
    assert amplification(0.8, -1.0) == pytest.approx(1.8)
    assert amplification(0.8, 0.39) > 1 > amplification(0.8, 0.41)  # the border is kappa / 2, not 0


def test_lemma_1_is_about_frobenius_norms():
    """J1 = diag(1, 0), J2 = diag(0, 1), lambda = 1: <J1,J2> = 0, so eq. 1 says sqrt(2); the operator norm is 1."""
    j1, j2 = np.diag([1.0, 0.0]), np.diag([0.0, 1.0])
    assert np.linalg.norm(j1 - j2) ** 2 == pytest.approx(2)
    assert np.linalg.norm(j1 - j2, 2) == pytest.approx(1)
    p = operator_norms(evidence("plain")).layers[0].points["clean"]
    assert lemma_1_residual(p, 0.8).max() > 0.01


def test_the_condition_of_theorem_3_flips_with_the_sign_of_lambda():
    kappa, cos, gamma = -0.5, 0.3, 0.9
    assert gamma * amplification(kappa, cos) > 1
    assert not cos < threshold(kappa, gamma)
    assert 2 * kappa * cos < 1 + kappa**2 - gamma**-2
