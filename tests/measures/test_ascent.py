"""Gradient ascent stays in its ball and raises what it climbs."""

import pytest
import torch

from antiphase.measures.ascent import climb_near


def test_the_climb_stays_in_the_ball_and_never_loses():
    x = torch.rand(3, 1, 4, 4)
    target = torch.rand(3, 1, 4, 4)
    objective = lambda z: -(z - target).flatten(1).pow(2).sum(1)  # noqa: E731
    end = climb_near(objective, x, x, 0.1, 10)
    assert (end - x).abs().max() <= 0.1 + 1e-6
    assert end.min() >= 0
    assert end.max() <= 1
    assert (objective(end) >= objective(x)).all()
    best = x + (target - x).clamp(-0.1, 0.1)
    assert objective(end) == pytest.approx(objective(best), abs=0.02)
