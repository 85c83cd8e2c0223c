"""Projections land inside, random starts fill the ball."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphase.attacks import L2, PGD, Linf, engine
from antiphase.attacks.threat_model import SLACK

images = st.integers(0, 2**32).map(
    lambda s: torch.rand(3, 2, 4, 4, generator=torch.Generator().manual_seed(s), dtype=torch.float64)
)


@settings(max_examples=40, deadline=None)
@given(images, images, st.floats(0.001, 1.0))
def test_projection_lands_inside_and_moves_nothing_that_is_inside(x, adv, eps):
    for within in (Linf(eps), L2(eps)):
        once = within.project(adv, x)
        assert within.size(once - x).max() <= eps + 1e-12
        assert torch.allclose(within.project(once, x), once, atol=1e-12)
        clamped = once.clamp(0, 1)
        assert within.size(clamped - x).max() <= eps + 1e-12
        assert within.size(within.ascent(adv - 0.5)).max() <= 1 + 1e-9


@pytest.mark.parametrize(("side", "eps"), [(32, 0.5), (32, 2.0), (224, 0.5), (224, 3.0), (224, 30.0)])
def test_the_largest_step_of_a_photograph_is_within_what_is_judged(side, eps):
    """In float32, whose norm of so many pixels is off by more than the slack of the judgement."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(24, 3, side, side, generator=generator)
    moved = x + torch.randn(x.shape, generator=generator) * torch.logspace(-2, 0, 24)[:, None, None, None]
    size = L2(eps).size(L2(eps).project(moved, x).double() - x.double())
    assert size.max() <= eps + SLACK
    assert size[-1] > eps * (1 - 1e-6)


def test_success_at_the_edge_of_a_large_ball_counts():
    """A linear model of photographs, whose boundary lies at half the budget: PGD in L2 crosses it on every image."""

    class Bright(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            score = (x - 0.5).flatten(1).sum(dim=1) / 224
            return torch.stack([torch.zeros_like(score), score + 1.0], dim=1)

    x = torch.full((4, 3, 224, 224), 0.5)
    result = engine.run(Bright().eval(), x, torch.ones(4).long(), PGD(within=L2(3.0), steps=4))
    assert result.success.all()


def test_random_starts_fill_the_ball():
    ids = np.arange(4000)
    linf = Linf(0.1).start((0, "start", 0), ids, (1, 2, 2))
    assert abs(linf).max() <= 0.1
    assert abs(linf.mean()) < 0.002
    l2 = np.sqrt((L2(0.5).start((0, "start", 0), ids, (1, 2, 2)) ** 2).sum(axis=(1, 2, 3)))
    assert l2.max() <= 0.5
    assert np.mean(l2 < 0.25) == pytest.approx(0.5**4, abs=0.015)  # uniform in volume
