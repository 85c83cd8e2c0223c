"""Perturbations have the size that they state, and belong to the image."""

import pytest
import torch
from torch import nn

from antiphase.data.imageset import Batch
from antiphase.measures.perturbations import EQUAL_SIZE, PERTURBATIONS, perturbed

EPS = 8 / 255


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_a_perturbation_has_the_size_it_says(name, pair, digits):
    model, batch = pair[1].classifier(), digits[1].subset(6).all
    done = perturbed(model, batch, name, EPS)
    assert done.pixels.shape == batch.pixels.shape
    assert done.pixels.min() >= 0
    assert done.pixels.max() <= 1
    assert (done.l2 > 0).all()
    if name in EQUAL_SIZE and name != "gaussian":
        assert (done.linf <= EPS + 1e-7).all()
    free = perturbed(model, batch, name, EPS, clip=False)
    if name in ("sign", "gaussian"):
        assert free.l2 == pytest.approx(EPS * 8, rel=1e-5)  # sqrt(64 pixels)
    if PERTURBATIONS[name].kind != "noise":
        assert torch.equal(free.pixels, done.pixels)


def test_scrambled_noise_is_exactly_as_large_as_the_attack_in_every_pixel(pair, digits):
    model, batch = pair[1].classifier(), digits[1].subset(6).all
    attack, noise = (perturbed(model, batch, name, EPS) for name in ("pgd", "scrambled"))
    a, b = attack.pixels - batch.pixels, noise.pixels - batch.pixels
    assert torch.allclose(a.abs(), b.abs(), atol=1e-7)
    assert noise.l2 == pytest.approx(attack.l2, rel=1e-5)
    inside = (batch.pixels > EPS) & (batch.pixels < 1 - EPS) & (a.abs() > 1e-6)
    flipped = ((a - b).abs() > 1e-6)[inside].float().mean()
    assert 0.4 < flipped < 0.6


def test_a_perturbation_belongs_to_the_image_and_not_to_the_batch(pair, digits):
    model, few = pair[1].classifier().double(), digits[1].subset(6)
    batch = Batch(few.all.pixels.double(), few.all.labels, few.ids)
    last = Batch(batch.pixels[5:], batch.labels[5:], batch.ids[5:])
    for name in PERTURBATIONS:
        whole, alone = (perturbed(model, b, name, EPS).pixels[-1] for b in (batch, last))
        assert torch.allclose(whole, alone, atol=1e-12), name
    assert not torch.equal(perturbed(model, last, "sign", EPS, 0).pixels, perturbed(model, last, "sign", EPS, 1).pixels)


def test_an_attack_goes_on_to_the_end_for_images_that_are_fooled(pair, digits):
    """PGD raises the loss at least as far as FGSM on the mean, and leaves the model as it was."""
    model, batch = pair[1].classifier(), digits[1].subset(24).all
    model.train()
    losses = {
        name: nn.functional.cross_entropy(model.eval()(perturbed(model.train(), batch, name, EPS).pixels), batch.labels)
        for name in ("sign", "fgsm", "pgd")
    }
    assert losses["pgd"] > losses["fgsm"] > losses["sign"]
    assert all(p.requires_grad for p in model.parameters())
