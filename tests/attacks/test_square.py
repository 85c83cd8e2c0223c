"""The Square attack."""

import pytest
import torch

from antiphase.attacks import square


def test_bumps_have_norm_one_and_moving_them_keeps_the_norm():
    draw = torch.rand(20, 8, generator=torch.Generator().manual_seed(1))
    for side in (1, 3, 7):
        assert square.bump_pair(side).norm() == pytest.approx(1.0)
        start = square.first_bumps(
            torch.rand(20, 4 * len(square.bump_grid(torch.Size((20, 3, 12, 12)))[1])), torch.Size((20, 3, 12, 12))
        )
        moved = square.moved_bumps(start / 50, torch.full((20,), side), draw, 0.5)
        assert torch.allclose(moved.flatten(1).norm(dim=1), torch.full((20,), 0.5), atol=1e-5)
        assert (moved != start).any()
