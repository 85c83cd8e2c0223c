"""Models to attack, and ways to attack them, that several test files share."""

import pytest
import torch

from antiphase.attacks import Square, engine
from antiphase.data.imageset import Batch


def run(model, batch, attack, **kwargs):
    """The attack on a batch, by the ids of its images."""
    return engine.run(model, batch.pixels, batch.labels, attack, ids=batch.ids, **kwargs)


def take(batch, rows):
    """Some of the images of a batch."""
    return Batch(batch.pixels[rows], batch.labels[rows], batch.ids[rows])


def looked_at(attack):
    """Images of the looks that are taken at a model before an attack: at four, beside others, and for their gradient."""
    return 4 * (2 if isinstance(attack, Square) else 3)


class Returns(torch.nn.Module):
    """A model that answers what it is told, with a gradient path to the pixels."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        return self.answer(x)


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


class Stairs(torch.nn.Module):
    """A model whose gradient is zero for some images and misleads for the rest: it raises red flags."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        flat = (x.mean(dim=(1, 2, 3)) > 0.3)[:, None, None, None]
        return self.model(torch.where(flat, (x * 8).round() / 8 + 0 * x, 2 * x.detach() - x))


def interrupted(model, batch, attack, journal, calls, **options):
    """An attack that is interrupted after so many forwards, with what it has written to its journal."""
    with pytest.raises(KeyboardInterrupt):
        run(Counted(model, calls), batch, attack, **{"batch_size": 16, "journal": journal, **options})


def assert_same(a, b):
    """Two results agree: exactly in verdicts, costs and flags, to rounding in pixels."""
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


class Linear(torch.nn.Module):
    """Logits W x + b of two classes, for images of 1 x 4 x 4."""

    def __init__(self, shift=0.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, 16, generator=torch.Generator().manual_seed(5)))
        self.shift = shift

    def forward(self, x):
        return (x.flatten(1) - 0.5) @ self.weight.T + self.shift

    def distance(self, x):
        """To the boundary, by hand: the margin over the length of its slope."""
        first, second = self(x).detach().double().T
        return (first - second).abs() / (self.weight[0] - self.weight[1]).norm().item()


def near_grey(n):
    """Far from black and white, at distances from a twentieth to about a half from the boundary."""
    x = 0.5 + 0.1 * torch.randn(4 * n, 1, 4, 4, generator=torch.Generator().manual_seed(7))
    return x[Linear().distance(x) > 0.05][:n].clamp(0.15, 0.85)
