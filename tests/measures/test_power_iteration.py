"""The largest singular value against full SVDs."""

import numpy as np
import pytest
import torch

from antiphase.config import InputError
from antiphase.measures.lipschitz import at_level
from antiphase.measures.power_iteration import sigma_max

DOUBLE = torch.float64


def test_power_iteration_finds_the_largest_singular_value():
    torch.manual_seed(0)
    matrices = torch.randn(3, 20, 12, dtype=DOUBLE)
    value, v, _, _ = sigma_max(
        lambda x: (matrices @ x[..., None])[..., 0], torch.zeros(3, 12, dtype=DOUBLE), whole=True
    )
    assert value == pytest.approx(torch.linalg.svdvals(matrices)[:, 0], rel=1e-2)
    assert (matrices @ v[..., None]).flatten(1).norm(dim=1) == pytest.approx(value, rel=1e-2)


@pytest.mark.parametrize("level", ["maps", "branch", "block"])
def test_power_iteration_agrees_with_the_full_jacobian_of_a_trained_model(pair, digits, level):
    model, few = pair[1].classifier(), digits[1].subset(2)
    name = "model.blocks.0.attn"

    def f(x):
        return at_level(model, x, level, name)[name]

    with torch.no_grad():
        value = sigma_max(f, few.all.pixels, iterations=200, tolerance=1e-5).value
    full = torch.stack(
        [torch.autograd.functional.jacobian(f, x[None]).flatten(0, -5).flatten(1).detach() for x in few.all.pixels]
    )
    exact = torch.linalg.svdvals(full)[:, 0]
    assert value == pytest.approx(exact, rel=1e-2)
    assert (value <= exact * (1 + 1e-4)).all()


def test_sigma_max_is_within_one_percent_of_the_full_svd(pair, digits):
    model, x = pair[1].classifier().double(), digits[1].subset(4).all.pixels.double()
    found = sigma_max(model, x)
    full = torch.stack([torch.autograd.functional.jacobian(model, x[i : i + 1]).reshape(10, -1) for i in range(4)])
    true = torch.linalg.svdvals(full)[:, 0]
    assert (found.value <= true * (1 + 1e-12)).all()
    assert (found.value >= 0.99 * true).all()
    assert found.converged.all()
    along = (full @ found.direction.flatten(1)[..., None]).flatten(1).norm(dim=1)
    assert torch.allclose(along, true, rtol=1e-2)


def test_sigma_max_of_a_linear_map_and_of_nothing():
    torch.manual_seed(0)
    weight = torch.randn(7, 12, dtype=DOUBLE)
    x = torch.randn(3, 12, dtype=DOUBLE)
    found = sigma_max(lambda t: t @ weight.T, x, iterations=500, tolerance=1e-12)
    assert torch.allclose(found.value, torch.linalg.svdvals(weight)[0].expand(3), rtol=1e-8)
    assert torch.equal(sigma_max(lambda t: 0 * t, x).value, torch.zeros(3, dtype=DOUBLE))
    with pytest.raises(InputError, match="at least 1"):
        sigma_max(lambda t: t, x, iterations=0)
    with pytest.raises(InputError, match="not finite"):
        sigma_max(lambda t: t * torch.nan, x)


def test_each_example_stops_on_its_own():
    """An easy example takes few iterations, a hard one all; alone or together they give the same number."""
    easy, hard = torch.diag(torch.tensor([9.0, 1, 1, 1])), torch.diag(torch.tensor([1.0, 0.99, 0.98, 0.97]))
    weights, x, ids = torch.stack([easy, hard]).double(), torch.zeros(2, 4, dtype=DOUBLE), np.array([3, 8])
    found = sigma_max(lambda t: torch.einsum("bij,bj->bi", weights, t), x, 40, 1e-4, ids=ids, whole=True)
    assert found.iterations[0] < found.iterations[1]
    for i in range(2):
        alone = sigma_max(lambda t, i=i: t @ weights[i].T, x[:1], 40, 1e-4, ids=ids[i : i + 1])
        assert alone.value[0].item() == pytest.approx(found.value[i].item(), rel=1e-12)
        assert alone.iterations[0] == found.iterations[i]


def test_examples_that_stand_still_are_left_out_and_the_others_do_not_notice(pair, digits):
    model, batch = pair[1].classifier().double(), digits[1].subset(12).all
    shown: dict[bool, int] = {}

    def found(whole):
        shown[whole] = 0

        def f(x):
            shown[whole] += len(x)
            return model(x)

        return sigma_max(f, batch.pixels.double(), ids=batch.ids, whole=whole)

    with torch.no_grad():
        one, all_of_them = found(whole=False), found(whole=True)
    assert shown[False] < shown[True]
    assert torch.equal(one.iterations, all_of_them.iterations)
    assert torch.equal(one.converged, all_of_them.converged)
    assert torch.allclose(one.value, all_of_them.value, rtol=1e-10)
    assert torch.allclose(one.direction, all_of_them.direction, rtol=1e-8, atol=1e-10)
