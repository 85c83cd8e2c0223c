"""Taps record attention, change nothing and leave nothing behind."""

import pytest
import torch

from antiphase.config import InputError
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.taps import attention_layers, taps
from antiphase.models.vit import build
from tests.models.small_models import CIFAR


def test_taps_change_nothing_and_leave_nothing(x):
    model = build(ViTConfig(depth=2, attention=(Softmax(), Differential())), **CIFAR)
    plain = model(x)
    with taps(model):
        assert torch.equal(model(x), plain)
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    with pytest.raises(ZeroDivisionError), taps(model):
        raise ZeroDivisionError
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_a_model_without_attention_is_refused():
    with pytest.raises(InputError, match="no attention layer"):
        attention_layers(torch.nn.Linear(2, 2))
