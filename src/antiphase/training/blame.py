"""When training blows up: which layer did it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from antiphase.models.attention import lambdas
from antiphase.models.taps import taps


def what_blew_up(model: nn.Module, pixels: Tensor | None = None) -> str:
    """The first thing, in the order of the computation, that is no longer a finite number."""
    for layer, value in lambdas(model).items():
        if not torch.tensor(value).isfinite():
            return f"lambda of layer {layer} is {value}"
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights {name} are not finite"
    if pixels is not None:
        with torch.no_grad(), taps(model) as record:
            logits = model(pixels)
        for layer, maps in record.items():
            if not maps.combined.isfinite().all():
                return f"the attention logits of layer {layer} are not finite"
        if not logits.isfinite().all():
            return "the logits of the classifier are not finite"
        return f"the logits of the classifier reach {logits.abs().max().item():.3g}"
    return "every weight is finite"
