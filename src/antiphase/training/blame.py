"""When training blows up: which layer did it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from antiphase.models.attention import lambdas
from antiphase.models.taps import taps


def not_finite(model: nn.Module) -> str | None:
    """The first lambda or weight that is no longer a number; None if all are."""
    for layer, value in lambdas(model).items():
        if not math.isfinite(value):
            return f"lambda of layer {layer} is {value}"
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights {name} are not finite"
    return None


def what_blew_up(model: nn.Module, *inputs: Tensor) -> str:
    """The first thing, in the order of the computation, that is no longer a finite number on these inputs."""
    if blamed := not_finite(model):
        return blamed
    with torch.no_grad(), taps(model) as record:
        logits = model(*inputs)
    for layer, maps in record.items():
        if not maps.combined.isfinite().all():
            return f"the attention logits of layer {layer} are not finite"
    if not logits.isfinite().all():
        return "the logits of the model are not finite"
    return f"the logits of the model reach {logits.abs().max().item():.3g}"
