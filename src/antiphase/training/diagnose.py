"""Signs that a contrastive training goes wrong (docs/method.md 3.3, M1): lambda near 0 or above 1, embeddings that collapse."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from antiphase.models.attention import lambdas
from antiphase.models.taps import taps

NO_BRANCH = 0.02  # lambda at or below this: the second map has no say
ONE_POINT = 0.99  # mean cosine of two images above this: the model tells nothing apart
FEW_DIRECTIONS = 2.0  # effective dimensions below this


def spread(embeddings: Tensor) -> tuple[float, float]:
    """The mean cosine of two different images, and the effective rank: exp of the entropy of the singular values' shares."""
    n, z = len(embeddings), embeddings.double()  # (n, E), normalised
    cosine = (z.sum(dim=0).square().sum() - n) / max(n * (n - 1), 1)
    share = torch.linalg.svdvals(z)
    share = share / share.sum()
    return float(cosine), float(torch.special.entr(share).sum().exp())


def signs(lambdas: Mapping[str, float], cosine: float, rank: float) -> list[str]:
    """What is odd, each in one sentence; nothing where nothing is."""
    found = [
        f"lambda of {layer} is {value:.3g}: " + ("the second map has no say" if value <= NO_BRANCH else "above 1")
        for layer, value in lambdas.items()
        if not NO_BRANCH < value <= 1
    ]
    if cosine > ONE_POINT:
        found.append(f"the embeddings collapse: the mean cosine of two images is {cosine:.4f}")
    if rank < FEW_DIRECTIONS:
        found.append(f"the embeddings collapse: they fill {rank:.2f} dimensions")
    return found


# ------------------------------------------------------------------------------------------------- training.blame
# When training blows up: which layer did it.


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
