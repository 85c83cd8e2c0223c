"""Which two maps are held against each other: a layer's own branches, or a control that must accompany them (M2.2)."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.models.attention import Branches
from antiphase.models.taps import Record, look
from antiphase.runtime import frozen

# branches: A1 and A2 of each head. shuffled: A1 of a head and A2 of the next. pseudo: heads 2i and 2i+1 of a softmax layer
Coupling = Literal["branches", "shuffled", "pseudo"]
PSEUDO_LAMBDA = 0.8  # what a softmax layer's pairs are weighed with: the usual lambda_init

Coupled = dict[str, tuple[Tensor, Tensor, float]]  # layer -> first map, second map: (B, h, N, M) each, and lambda


def couple(record: Record, coupling: Coupling) -> Coupled:
    """The pairs of every layer that has them."""
    if coupling not in get_args(Coupling):
        raise InputError(f"coupling {coupling!r} is not known: it takes {', '.join(get_args(Coupling))}")
    found = {layer: _coupled(maps, coupling) for layer, maps in record.items()}
    return {layer: pair for layer, pair in found.items() if pair is not None}


def _coupled(maps: Branches, coupling: Coupling) -> tuple[Tensor, Tensor, float] | None:
    heads = maps.signal.shape[1]
    if coupling == "pseudo":
        if maps.noise is not None or heads < 2:
            return None
        return maps.signal[:, 0 : heads - 1 : 2], maps.signal[:, 1::2], PSEUDO_LAMBDA
    if maps.noise is None or (coupling == "shuffled" and heads < 2):
        return None
    noise = maps.noise if coupling == "branches" else maps.noise.roll(1, dims=1)
    return maps.signal, noise, float(maps.lam.detach())


WANTS = {
    "branches": "two branches, and no layer of this model has them (it is all softmax)",
    "shuffled": "a layer with two branches and at least two heads, and this model has none",
    "pseudo": "a softmax layer with at least two heads, and this model has none",
}


def lambdas_of(
    classifier: nn.Module, images: ImageSet, coupling: Coupling, device: torch.device | str
) -> dict[str, float]:
    """lambda of every layer that has such pairs; a model without any is refused."""
    with frozen(classifier), torch.no_grad():
        record = look(classifier, images.batch(np.arange(1)).pixels.to(device))
        found = {layer: lam for layer, (_, _, lam) in couple(record, coupling).items()}
    if not found:
        raise InputError(f"alignment needs {WANTS[coupling]}")
    return found
