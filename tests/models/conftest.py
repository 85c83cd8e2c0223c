"""Pixels to look at."""

import pytest
import torch


@pytest.fixture
def x():
    return torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
