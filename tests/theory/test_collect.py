"""From two models to evidence: points, layers and refusals."""

from dataclasses import replace

import numpy as np
import pytest

from antiphase.config import InputError
from antiphase.data import load
from antiphase.measures.ascent import amplified
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.vit import build
from antiphase.theory.collect import collect
from tests.theory.evidence_of_models import FORMS, tiny, verdicts


def test_ascent_on_the_sensitivity_ratio_raises_it_under_fresh_probes(pair, digits):
    base, run = (p.classifier() for p in pair)
    batch = digits[1].subset(6).all
    before = batch.pixels
    after = amplified(run, base, batch, eps=8 / 255)
    assert (after - before).abs().max() <= 8 / 255 + 1e-6
    found = read_ratio(run, base, digits[1].subset(6))
    assert np.median(found["found"]) > np.median(found["clean"])


def read_ratio(run, base, images):
    from antiphase.theory.collect import _jacobians, _layers, _points

    common = {"seed": 0, "device": "cpu"}
    (_, twins), points = _layers(run, base, images, "cpu"), _points(run, base, images, 8 / 255, 10, **common)
    return {p: next(iter(_jacobians(run, base, points[p], twins, 16, **common).values())).ratio for p in points}


def test_a_mixed_model_is_audited_where_it_has_two_branches():
    images = load("digits", "test").subset(2)
    attention = (Softmax(), Differential())
    config = ViTConfig(patch=4, width=16, heads=4, depth=2, attention=attention, init="matched")
    mixed = build(config, shape=(1, 8, 8), classes=10, seed=0).eval()
    base = build(replace(config, attention=(Softmax(),)), shape=(1, 8, 8), classes=10, seed=0).eval()
    found = collect(mixed, base, images, probes=2, draws=1, steps=2)
    assert [layer.name for layer in found.layers] == ["model.blocks.1.attn"]
    assert found.depth == 2
    assert all(FORMS.fullmatch(verdict) for verdict in verdicts(found).values())
    with pytest.raises(InputError, match="2 attention layers and the run 1"):
        collect(tiny(0.8), base, images, probes=2, draws=1)
    with pytest.raises(InputError, match="two branches"):
        collect(base, None, images, probes=2, draws=1)
