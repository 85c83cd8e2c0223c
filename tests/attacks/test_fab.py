"""FAB."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from antiphase.attacks import FAB, L2, Linf
from antiphase.attacks.fab import to_plane
from tests.attacks.harness import run


@pytest.fixture(scope="module")
def few(digits):
    return digits[1].subset(48).all


@pytest.mark.parametrize("kind", [Linf, L2])
def test_the_move_to_a_plane_is_the_smallest_inside_the_box(kind):
    draw = torch.Generator().manual_seed(0)
    points, normal = (torch.rand(200, 6, generator=draw, dtype=torch.float64) for _ in range(2))
    normal = (normal - 0.5) * (normal > 0.1)
    lead = torch.randn(200, generator=draw, dtype=torch.float64) * 0.6
    moves = to_plane(points, normal, lead, kind(0.5))
    there, reach = (
        lead + (normal * moves).sum(dim=1),
        (normal.abs() * torch.where(moves > 0, 1 - points, points)).sum(dim=1),
    )
    possible = there.abs() < 1e-9
    assert 0.3 < possible.double().mean() < 1
    assert ((points + moves).min() > -1e-12) & ((points + moves).max() < 1 + 1e-12)
    assert (reach[~possible] <= lead[~possible].abs()).all()  # all the room was used and is too little
    for i in torch.nonzero(possible)[:, 0].tolist():
        assert _smallest_move(points[i].numpy(), normal[i].numpy(), float(lead[i]), kind) == pytest.approx(
            float(kind(0.5).size(moves[i : i + 1])), abs=1e-6
        )


def _smallest_move(point, normal, lead, kind) -> float:
    if kind is Linf:  # over (move, bound): minimise the bound
        rows = np.block([[s * np.eye(6), -np.ones((6, 1))] for s in (1, -1)])
        limits = [(-p, 1 - p) for p in point] + [(0, None)]
        found = linprog([0] * 6 + [1], rows, np.zeros(12), [[*normal, 0]], [-lead], limits)
        return float(found.fun)
    low, high = 0.0, 1e6  # the multiplier, by bisection
    for _ in range(200):
        middle = (low + high) / 2
        move = np.clip(-np.sign(lead) * middle * normal, -point, 1 - point)
        low, high = (middle, high) if (lead + normal @ move) * np.sign(lead) > 0 else (low, middle)
    return float(np.linalg.norm(move))


def test_fab_finds_smaller_perturbations_than_its_budget(victim, few):
    found = run(victim, few, FAB(within=L2(2.0), steps=1, targets=3))
    assert found.success.any()
    assert found.distance[found.success].median() < 1.5
