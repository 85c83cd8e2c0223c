"""Reverse-mode gradients of the branches against forward mode, and scalars that say nothing."""

import numpy as np
import pytest
import torch
from torch import nn

from antiphase.config import InputError
from antiphase.measures.alignment import align
from antiphase.measures.jacobians_forward import exact_alignment
from antiphase.measures.jacobians_reverse import loss_alignment, projected_alignment, scalar_alignment
from antiphase.models.taps import explicit
from tests.measures.doubled import doubled


def test_reverse_probes_estimate_what_forward_probes_do(pair, digits):
    few, model = digits[1].subset(3), pair[1].classifier()
    (exact,), (reverse,) = exact_alignment(model, few), projected_alignment(model, few, probes=64)
    assert (np.abs(reverse.cos - exact.cos) < 4 * reverse.cos_se).all()
    se = reverse.n1.std(-1, ddof=1) / 8
    assert (np.abs(reverse.n1.mean(-1) - exact.n1[..., 0]) < 4 * se).all()


def test_loss_weighted_branch_gradients_add_up_to_the_gradient_of_the_loss_through_the_map(pair, digits):
    """J1'u - lambda J2'u is what the loss sends back through the map: its squared norm follows from n1, n2 and ip."""
    few, model = digits[1].subset(2), pair[1].classifier().double()
    few = doubled(few)
    (layer,) = loss_alignment(model, few)
    lam = layer.lam
    by_parts = layer.n1 + lam**2 * layer.n2 - 2 * lam * layer.ip
    with explicit(model) as record:
        x = few.all.pixels.requires_grad_()
        loss = nn.functional.cross_entropy(model(x), few.all.labels, reduction="sum")
        (maps,) = record.values()
        (u,) = torch.autograd.grad(loss, maps.signal, retain_graph=True)
        for h in range(2):
            (g,) = torch.autograd.grad((maps.combined * u)[:, h].sum(), x, retain_graph=True)
            assert by_parts[:, h, 0] == pytest.approx(g.flatten(1).pow(2).sum(1).detach(), rel=1e-6)


def test_a_scalar_of_the_user_is_refused_where_its_gradient_vanishes(pair, digits):
    few, model = digits[1].subset(4), pair[1].classifier()
    assert scalar_alignment(model, few, lambda a, _: a.pow(3).sum((-1, -2)))
    with pytest.raises(InputError, match="degenerate"):
        scalar_alignment(model, few, lambda a, _: a.mean((-1, -2)))
    with pytest.raises(InputError, match="scalar 'nose'"):
        scalar_alignment(model, few, "nose")
    with pytest.raises(InputError, match="reading 'R9'"):
        align(model, few, "R9")
