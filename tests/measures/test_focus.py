"""Attention on the object: shares and entropies by hand, and what a model's own maps give."""

import math

import numpy as np
import pytest
import torch

from antiphase.config import InputError
from antiphase.data.catalog import load
from antiphase.measures.focus import coverage, focus, statistics_of
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.taps import taps
from antiphase.models.vit import build

QUARTER = np.array([[0.0, 0.0, 0.5, 0.5]])


@pytest.mark.parametrize(
    ("boxes", "side", "expected"),
    [
        (QUARTER, 2, [1, 0, 0, 0]),
        ([[0.0, 0.0, 0.5, 0.25]], 2, [0.5, 0, 0, 0]),
        ([[0.0, 0.0, 0.5, 0.75]], 2, [1, 0.5, 0, 0]),
        ([[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.5]], 2, [1, 0, 0, 0]),  # a union: nothing counts twice
        ([[0.0, 0.0, 0.5, 0.5], [0.5, 0.25, 1.0, 0.5]], 2, [1, 0, 0.5, 0]),
        (np.zeros((0, 4)), 2, [0, 0, 0, 0]),
    ],
)
def test_a_patch_counts_by_the_share_that_the_boxes_cover_together(boxes, side, expected):
    assert coverage(boxes, side).tolist() == pytest.approx(expected)


def _class_row(*weights):
    """A map whose class token (the first) has these weights and whose other rows look at the first patch only."""
    rows = torch.zeros(len(weights), len(weights), dtype=torch.float64)
    rows[:, 1] = 1.0
    rows[0] = torch.tensor(weights)
    return rows[None, None]


def test_a_map_that_looks_everywhere_alike_has_the_share_of_the_box_and_the_largest_entropy():
    even = torch.full((1, 1, 17, 17), 1 / 17, dtype=torch.float64)
    found = statistics_of(even, coverage(QUARTER, 4)[None])
    assert found["mass"].item() == found["signed"].item() == found["mass_rows"].item() == pytest.approx(0.25)
    assert found["entropy"].item() == pytest.approx(math.log2(16))
    assert found["negative"].item() == 0


def test_negative_weights_are_in_the_signed_share_only_and_the_class_tokens_own_weight_in_none():
    covered = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    found = statistics_of(_class_row(100.0, 0.6, 0.2, 0.2, -0.5), covered)
    assert found["mass"].item() == pytest.approx(0.6)
    assert found["signed"].item() == pytest.approx(0.6 / 0.5)
    assert found["negative"].item() == pytest.approx(0.5 / 1.5)
    assert found["entropy"].item() == pytest.approx(-(0.6 * math.log2(0.6) + 2 * 0.2 * math.log2(0.2)))
    assert found["mass_rows"].item() == pytest.approx((0.6 + 4 * 1.0) / 5)


def test_an_image_without_a_box_has_no_mass_but_an_entropy():
    found = statistics_of(_class_row(0.0, 0.5, 0.5, 0.0, 0.0), torch.zeros(1, 4))
    assert found["mass"].isnan().all()
    assert found["entropy"].item() == pytest.approx(1.0)


@pytest.fixture(scope="module")
def tiles():
    return load("tiles-digits", "test").subset(6)


def _model(attention):
    return build(ViTConfig(patch=4, width=32, heads=4, depth=2, attention=attention), shape=(1, 16, 16), classes=10)


def test_what_is_measured_are_the_models_own_maps(tiles):
    model = _model((Softmax(), Differential()))
    found = {(f.layer, f.map, f.perturbation): f for f in focus(model, tiles, eps=0.1, batch_size=4)}
    maps = {(layer, name) for layer, name, _ in found}
    assert maps == {("model.blocks.0.attn", "A")} | {
        ("model.blocks.1.attn", name) for name in ("A1", "A2", "A1 - lambda A2")
    }
    with torch.no_grad(), taps(model) as record:
        model(tiles.all.pixels)
    combined = record["model.blocks.1.attn"].combined[:, :, 0, 1:].clamp_min(0)  # (6, h, 16)
    for i, (box,) in enumerate(tiles.boxes):
        on = combined[i].reshape(-1, 4, 4)[:, int(4 * box[0]) : int(4 * box[2]), int(4 * box[1]) : int(4 * box[3])]
        share = on.sum(dim=(1, 2)) / combined[i].sum(dim=1)
        measured = found["model.blocks.1.attn", "A1 - lambda A2", "clean"].statistics["mass"][i]
        assert measured == pytest.approx(share.numpy(), rel=1e-4)
    moved = found["model.blocks.1.attn", "A1", "pgd"]
    assert moved.l2.min() > 0
    assert moved.area == pytest.approx(0.25)
    clean = found["model.blocks.1.attn", "A1", "clean"]
    assert not clean.changed.any()
    assert not np.allclose(moved.statistics["mass"], clean.statistics["mass"])


def test_images_without_boxes_and_layers_without_a_square_of_patches_are_refused():
    with pytest.raises(InputError, match="digits has none: use tiles"):
        focus(_model((Softmax(),)), load("digits", "test").subset(2))
    from antiphase.measures.focus import patches_per_side

    with pytest.raises(InputError, match="has 16 tokens"):
        patches_per_side(16, "a layer")
