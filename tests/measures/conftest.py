"""Three images and the exact Jacobians of the maps of the trained pair."""

import pytest
import torch

from antiphase.models.taps import explicit, taps


@pytest.fixture(scope="module")
def three(digits):
    return digits[1].subset(3)


@pytest.fixture(scope="module")
def jacobians(pair, three):
    """Exact J1, J2 and the Jacobian of A1 - lambda A2, each by reverse mode: (n, h, N*N, pixels)."""
    model = pair[1].classifier().double()

    def maps(x):
        with taps(model) as record:
            model(x)
            (b,) = record.values()
            return b.signal, b.noise, b.combined

    found = []
    with explicit(model):
        for x in three.all.pixels.double():
            jac = torch.autograd.functional.jacobian(maps, x[None])
            found.append([j[0].flatten(3).flatten(1, 2) for j in jac])
    return [torch.stack(j) for j in zip(*found)]
