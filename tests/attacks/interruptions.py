"""Attacks that are interrupted in the middle, and what must be the same afterwards."""

import pytest
import torch

from antiphase.attacks import engine


class Counted(torch.nn.Module):
    """A model that counts the images it is shown, and may be interrupted."""

    def __init__(self, model, calls=10**9):
        super().__init__()
        self.model, self.calls, self.images = model, calls, 0

    def forward(self, x):
        self.calls, self.images = self.calls - 1, self.images + len(x)
        if self.calls < 0:
            raise KeyboardInterrupt
        return self.model(x)


def attacked(model, few, attack, journal=None, **options):
    settings = {"ids": few.ids, "batch_size": 16, "journal": journal, **options}
    return engine.run(model, few.pixels, few.labels, attack, **settings)


def interrupted(victim, few, attack, journal, calls, **options):
    with pytest.raises(KeyboardInterrupt):
        attacked(Counted(victim, calls), few, attack, journal, **options)


def assert_same(a, b):
    for name in (
        "success",
        "clean_prediction",
        "adversarial_prediction",
        "changed_in_restart",
        "forwards",
        "backwards",
    ):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
    assert a.flags == b.flags
    assert (a.adversarial != b.adversarial).double().mean() < 0.01  # other neighbours, other rounding: docs/attacks.md
