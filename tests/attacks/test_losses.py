"""Losses are right at their edges."""

import pytest
import torch

from antiphase.attacks.losses import LOSSES, margin
from antiphase.config import InputError


def test_margin_is_right_when_every_logit_is_negative():
    assert margin(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([0])).item() == 1.0
    assert margin(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([2])).item() == -2.0


def test_dlr_does_not_see_the_scale_of_the_logits():
    logits, y = torch.randn(5, 6, dtype=torch.float64), torch.arange(5)
    assert torch.allclose(LOSSES["dlr"](logits, y), LOSSES["dlr"](100 * logits, y))
    with pytest.raises(InputError, match="at least 3 classes"):
        LOSSES["dlr"](logits[:, :2], y.clamp(max=1))


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_rises_as_the_label_becomes_less_likely(name):
    y = torch.tensor([1])
    values = [LOSSES[name](torch.tensor([[0.0, z, 0.5, 0.2]]), y).item() for z in (3.0, 1.0, -1.0)]
    assert values == sorted(values)
