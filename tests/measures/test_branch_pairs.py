"""Lemma 1 and Theorem 1 on real Jacobians, and what is said of a pair of branches."""

import json

import numpy as np
import pytest
import torch

from antiphase.measures.branch_pairs import Alignment, gamma
from antiphase.measures.jacobians_forward import branch_alignment, exact_alignment, gram_exact, map_norms
from antiphase.measures.lipschitz import l_search


def test_lemma_1_is_an_identity_in_the_frobenius_norm(pair, jacobians):
    """||J_DA||^2 = ||J1||^2 + lambda^2 ||J2||^2 - 2 lambda <J1, J2>, with J_DA computed on its own."""
    j1, j2, j_da = jacobians
    lam = pair[1].classifier().double().model.blocks[0].attn._compute_lambda().item()
    left = (j_da**2).sum((-1, -2))
    right = (j1**2 + lam**2 * j2**2 - 2 * lam * j1 * j2).sum((-1, -2))
    assert torch.allclose(left, right, rtol=1e-7)


def test_amplification_is_the_square_root_of_theorem_1(pair, three):
    (layer,) = branch_alignment(pair[1].classifier(), three, probes=8)
    rho = np.sqrt(layer.n2.mean(-1) / layer.n1.mean(-1))
    by_hand = np.sqrt(1 + (layer.lam * rho) ** 2 - 2 * layer.lam * rho * layer.cos)
    assert layer.amplification == pytest.approx(by_hand, rel=1e-6)


def test_amplification_is_energy_times_angle(pair, three):
    (layer,) = branch_alignment(pair[1].classifier(), three, probes=8)
    energy = np.sqrt(1 + layer.kappa**2)
    angle = np.sqrt(1 - 2 * layer.kappa * layer.cos / (1 + layer.kappa**2))
    assert layer.amplification == pytest.approx(energy * angle)


def test_a_dead_branch_is_counted_not_averaged(pair, three):
    model = pair[1].classifier()
    with torch.no_grad():  # the queries of A2 of head 1 vanish: its map is uniform and never moves
        width = model.model.blocks[0].attn.qkv.in_features
        model.model.blocks[0].attn.qkv.weight[3 * width // 4 : width] = 0
        model.model.blocks[0].attn.qkv.bias[3 * width // 4 : width] = 0
    (layer,) = branch_alignment(model, three, probes=4)
    summary = layer.summary()
    assert summary["dead"] == 3
    assert summary["amplifying"]["n"] == 3
    assert all(np.isfinite(summary[key]) for key in ("cos", "kappa", "amplification", "energy", "angle"))


def test_a_layer_that_never_moves_is_reported_and_not_divided_by(pair, digits):
    """Queries and keys of zero: uniform maps. Nothing is NaN, nothing is refused."""
    model, few = pair[1].classifier(), digits[1].subset(3)
    with torch.no_grad():
        model.model.blocks[0].attn.qkv.weight[:128] = 0
        model.model.blocks[0].attn.qkv.bias[:128] = 0
    (sharp,) = l_search(model, few, draws=2, steps=2, iterations=3)
    json.dumps(sharp.summary(), allow_nan=False)
    assert sharp.summary()["sample_short_by"] is None
    (layer,) = branch_alignment(model, few, probes=4)
    json.dumps([layer.summary(), gamma(layer, np.zeros((3, 4, 4)))], allow_nan=False)


def test_a_share_differs_from_one_half_only_where_its_interval_excludes_it():
    flags = {"above": 1.0, "below": -1.0}
    for said, sign in flags.items():
        ip = np.full((40, 2, 1), -sign)
        assert Alignment("x", 0.8, np.ones((40, 2, 1)), np.ones((40, 2, 1)), ip).summary()["versus_half"] == said
    coin = np.where(np.arange(40) % 2, 1.0, -1.0)[:, None, None]
    assert (
        Alignment("x", 0.8, np.ones((40, 1, 1)), np.ones((40, 1, 1)), coin).summary()["versus_half"] == "not told apart"
    )


def test_gamma_times_s_is_the_ratio_of_the_jacobians(pair, digits):
    """Thm 2 against a baseline, with exact norms: gamma s = ||J_DA|| / ||J_base||, heads stacked and per head."""
    few = digits[1].subset(3)
    (layer,) = exact_alignment(pair[1].classifier(), few)

    def readout(record):
        return {name: (maps.combined,) for name, maps in record.items()}

    (da,), (base,) = (gram_exact(run.classifier(), few, readout).values() for run in reversed(pair))
    found = gamma(layer, base[..., 0, 0])
    da, base = da[:, :, 0, 0, 0], base[:, :, 0, 0, 0]
    assert found["ratio_stacked"] == pytest.approx(np.sqrt(da.sum(1) / base.sum(1)).mean(), rel=1e-4)
    assert found["ratio_per_head"] == pytest.approx(found["ratio_stacked"] * np.sqrt(4 / 2))  # 4 heads against 2
    probed = map_norms(pair[0].classifier(), few, probes=64)["model.blocks.0.attn"]
    assert probed.mean(-1) == pytest.approx(base, rel=0.3)
