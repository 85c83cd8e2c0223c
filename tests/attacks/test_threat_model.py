"""Projections land inside, random starts fill the ball."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphase.attacks import L2, Linf

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


def test_random_starts_fill_the_ball():
    ids = np.arange(4000)
    linf = Linf(0.1).start((0, "start", 0), ids, (1, 2, 2))
    assert abs(linf).max() <= 0.1
    assert abs(linf.mean()) < 0.002
    l2 = np.sqrt((L2(0.5).start((0, "start", 0), ids, (1, 2, 2)) ** 2).sum(axis=(1, 2, 3)))
    assert l2.max() <= 0.5
    assert np.mean(l2 < 0.25) == pytest.approx(0.5**4, abs=0.015)  # uniform in volume
