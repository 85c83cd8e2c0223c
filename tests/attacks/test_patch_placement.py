"""A patch changes one square, where it is meant to be."""

import torch

from antiphase.attacks import PGD, Patch
from antiphase.attacks.patch_placement import most_attended
from antiphase.models.taps import taps
from tests.attacks.harness import run


def test_patches_change_their_square_and_nothing_else(victim, few):
    result = run(victim, few, PGD(within=Patch(width=3), steps=20))
    moved = (result.adversarial != few.pixels).any(dim=1)[result.success]  # (k, 8, 8)
    rows, columns = moved.any(dim=2).sum(dim=1), moved.any(dim=1).sum(dim=1)
    assert (rows <= 3).all()
    assert (columns <= 3).all()
    places = {tuple(torch.nonzero(m)[0].tolist()) for m in moved}
    assert len(places) > 5  # by chance, not always the same


def test_an_attention_aware_patch_lies_where_the_model_attends_most(victim, few):
    corners = most_attended(victim, few.pixels, 2)
    with torch.no_grad(), taps(victim) as record:
        victim(few.pixels)
    (maps,) = record.values()
    seen = maps.combined[:, :, 0, 1:].abs().mean(dim=1).reshape(-1, 4, 4)
    for (top, left), map_ in zip(corners.tolist(), seen):
        assert map_[min(top // 2, 3), min(left // 2, 3)] >= 0.5 * map_.max()
