"""Perturbations along the residual stream, on linear blocks whose gains are known and on real ones."""

import json

import numpy as np
import pytest
import torch
from timm.layers import Attention
from torch import nn

from antiphase.config import InputError
from antiphase.measures.cancellation import cancellation
from antiphase.measures.correlation import correlation
from antiphase.measures.perturbations import perturbed
from antiphase.measures.power_iteration import sigma_max
from antiphase.measures.residual_stream import block_sigma, propagation
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.taps import explicit
from antiphase.models.vit import build

EPS = 8 / 255


DOUBLE = torch.float64


def deep(attention=None, depth=3):
    attention = attention or (Softmax(), Differential(), Differential())
    config = ViTConfig(patch=2, width=32, heads=4, depth=depth, attention=attention)
    return build(config, shape=(1, 8, 8), classes=10, seed=1).eval()


class Linear(nn.Module):
    """x + attention(x) with queries and keys of zero: maps are uniform, so the block is linear."""

    def __init__(self):
        super().__init__()
        self.attn = Attention(16, num_heads=2, qkv_bias=True)
        with torch.no_grad():
            self.attn.qkv.weight[:32] = 0
            self.attn.qkv.weight[32:] *= 5

    def forward(self, x):
        return x + self.attn(x)


class LinearModel(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.Sequential(Linear(), Linear())
        self.head = nn.Linear(16, 10)

    def forward(self, pixels):
        return self.head(self.blocks(pixels.reshape(len(pixels), 4, 16)).mean(dim=1))


def test_a_linear_block_never_exceeds_its_largest_gain_and_reaches_it_along_the_top_singular_vector(digits):
    model, few = LinearModel().eval(), digits[1].subset(4)
    sigma = block_sigma(model, few, iterations=500, tolerance=1e-6)
    x = torch.zeros(4, 16)
    for k in (0, 1):
        full = torch.autograd.functional.jacobian(lambda t, k=k: model.blocks[k](t[None])[0], x).reshape(64, 64)
        assert sigma[:, k] == pytest.approx(float(torch.linalg.svdvals(full)[0]), rel=1e-4)
    for found in propagation(model, few, sigma=sigma):
        assert (found.slack <= 1 + 1e-4).all()
        assert np.isnan(found.counterfactual).all()  # nothing to subtract
    before = few.all.pixels.reshape(4, 4, 16)
    with explicit(model):
        top = sigma_max(model.blocks[0], before, 500, 1e-6)
    gain = (model.blocks[0](before + top.direction) - model.blocks[0](before)).flatten(1).norm(dim=1).detach()
    assert gain.numpy() / sigma[:, 0] == pytest.approx(1, rel=1e-4)


def test_blocks_side_by_side_are_no_single_stream(digits):
    class Parallel(LinearModel):
        def forward(self, pixels):
            x = pixels.reshape(len(pixels), 4, 16)
            return self.head((self.blocks[0](x) + self.blocks[1](x)).mean(dim=1))

    with pytest.raises(InputError, match="no single stream"):
        propagation(Parallel().eval(), digits[1].subset(2))


def test_the_product_of_the_gains_telescopes(digits):
    model, few = deep(), digits[1].subset(5)
    for found in propagation(model, few, perturbations=("uniform", "pgd")):
        assert found.change.shape == (5, 4)
        assert found.gains.prod(axis=1) == pytest.approx(found.change[:, -1] / found.change[:, 0], rel=1e-12)
        assert found.mean_gain**3 == pytest.approx(found.gains.prod(axis=1), rel=1e-12)
        assert np.isnan(found.without[:, 0]).all()  # the softmax layer
        assert np.isfinite(found.without[:, 1:]).all()
        assert np.isnan(found.slack).all()  # sigma was not given
        rows = found.rows(few.ids)
        assert [row["depth"] for row in rows[:4]] == [0, 1, 2, 3]
        assert rows[0]["gain"] is None
        json.dumps([rows, found.summary()], allow_nan=False)


def test_the_stream_begins_after_the_patch_embedding_and_its_gain_may_be_below_one(digits):
    model, few = deep(), digits[1].subset(5)
    (found,) = propagation(model, few, perturbations=("sign",))
    there = perturbed(model, few.all, "sign", EPS).pixels
    with torch.no_grad():
        vit = model.model
        embedded = [vit._pos_embed(vit.patch_embed((x - model.mean) / model.std)) for x in (few.all.pixels, there)]
    assert found.change[:, 0] == pytest.approx((embedded[1] - embedded[0]).flatten(1).norm(dim=1).numpy(), rel=1e-4)
    for factor, attenuates in ((0.5, True), (2.0, False)):
        geometric = factor ** np.arange(4)[None] * np.ones((5, 1))
        summary = type(found)(**{**vars(found), "change": geometric}).summary()
        assert summary["mean_gain"]["value"] == pytest.approx(factor)
        assert summary["attenuates"] is attenuates


def test_the_counterfactual_sets_lambda_to_zero_in_one_block_only(digits):
    """Where lambda is 0 already the factor is 1; elsewhere it is what a model without the subtraction in that block gives."""
    few = digits[1].subset(4)
    model = deep((Differential(), Differential()), depth=2)
    (found,) = propagation(model, few, perturbations=("sign",))
    assert (np.abs(found.counterfactual - 1) > 1e-4).any()
    block = model.model.blocks[0]
    attention = block.attn
    attention.learned, before = False, attention.lambda_init
    attention.lambda_init = 0.0  # the gain is a field of its own and stays
    (without,) = propagation(model, few, perturbations=("sign",))
    assert found.without[:, 0] == pytest.approx(without.change[:, 1], rel=1e-4)
    assert found.counterfactual[:, 0] == pytest.approx(found.change[:, 1] / without.change[:, 1], rel=1e-4)
    assert without.counterfactual[:, 0] == pytest.approx(1, abs=1e-6)
    assert before != 0


def test_measuring_leaves_the_model_as_it_was(pair, digits):
    model, few = pair[1].classifier(), digits[1].subset(2)
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    look = lambda: {n: (set(vars(m)), [len(vars(m)[h]) for h in hooks]) for n, m in model.named_modules()}  # noqa: E731
    before, grads = look(), [p.requires_grad for p in model.parameters()]
    model.train()
    weight = model.model.blocks[0].attn.qkv.weight
    for measure in (cancellation, propagation, block_sigma, correlation):
        measure(model, few)
        with torch.no_grad():
            kept = weight[0, 0].clone()
            weight[0, 0] = torch.nan
            with pytest.raises(InputError):
                measure(model, few)
            weight[0, 0] = kept
        assert look() == before
        assert model.training
        assert [p.requires_grad for p in model.parameters()] == grads
