"""What is wrong with a training: warning signs after an epoch, and what is no longer a number once the loss is not.

docs/method.md 3.3 (M1) says what a healthy contrastive training looks like. n images, E width of the joint space
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from antiphase.models.attention import lambdas
from antiphase.models.taps import taps

LAMBDA_FLOOR = 0.02  # lambda at or below this: the second map has no influence
COSINE_CEILING = 0.99  # mean cosine of two images above this: all images have nearly the same embedding
RANK_FLOOR = 2.0  # effective rank of the embeddings below this


def embedding_spread(embeddings: Tensor) -> tuple[float, float]:
    """The mean cosine of two different images, and the effective rank: exp of the entropy of the singular values' shares."""
    n, z = len(embeddings), embeddings.double()  # (n, E), normalised
    cosine = (z.sum(dim=0).square().sum() - n) / max(n * (n - 1), 1)
    share = torch.linalg.svdvals(z)
    share = share / share.sum()
    return float(cosine), float(torch.special.entr(share).sum().exp())


def warning_signs(lambdas: Mapping[str, float], cosine: float, rank: float) -> list[str]:
    """One sentence for every sign that a contrastive training fails: lambda near 0 or above 1, embeddings that collapse."""
    warnings = [
        f"lambda of {layer} is {value:.3g}: "
        + ("the second map has no influence" if value <= LAMBDA_FLOOR else "above 1")
        for layer, value in lambdas.items()
        if not LAMBDA_FLOOR < value <= 1
    ]
    if cosine > COSINE_CEILING:
        warnings.append(f"the embeddings collapse: the mean cosine of two images is {cosine:.4f}")
    if rank < RANK_FLOOR:
        warnings.append(f"the embeddings collapse: they fill {rank:.2f} dimensions")
    return warnings


def first_non_finite(model: nn.Module) -> str | None:
    """The first lambda or weight that is no longer a number; None if all are."""
    for layer, value in lambdas(model).items():
        if not math.isfinite(value):
            return f"lambda of layer {layer} is {value}"
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights {name} are not finite"
    return None


def explain_divergence(model: nn.Module, *inputs: Tensor) -> str:
    """The first thing, in the order of the computation, that is no longer a finite number on these inputs."""
    if cause := first_non_finite(model):
        return cause
    with torch.no_grad(), taps(model) as record:
        logits = model(*inputs)
    for layer, maps in record.items():
        if not maps.combined.isfinite().all():
            return f"the attention logits of layer {layer} are not finite"
    if not logits.isfinite().all():
        return "the logits of the model are not finite"
    return f"the logits of the model reach {logits.abs().max().item():.3g}"
