"""Pixels in [0,1] go in; normalisation lives inside."""

import torch

from antiphase.models.classifier import Normalized


def test_pixels_are_normalised_per_channel_inside_the_classifier(x):
    inner = torch.nn.Flatten()
    seam = Normalized(inner, (0.1, 0.2, 0.3), (0.5, 0.5, 0.25))
    by_hand = (x - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor([0.5, 0.5, 0.25]).view(3, 1, 1)
    assert torch.equal(seam(x), by_hand.flatten(1))
    assert not list(seam.state_dict())
