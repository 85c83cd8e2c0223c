"""How often do the two branches pull against each other? The readings that "alignment" may have, and their controls.

The readings are those of docs/method.md 2.2. A frequency alone says nothing: it is given beside the same statistic of an
untrained model, of pairs that do not belong together and of the heads of a softmax layer, and beside 50 %.

A lambda that differs between tokens is multiplied into the second map; R6 refuses it. Where lambda depends on the input, the
gate's term is measured beside the two branches (docs/method.md 7); the cosine is that of the branches alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from antiphase import console
from antiphase.config import InputError
from antiphase.data.imageset import Images, ImageSet, as_images
from antiphase.measures.branch_pairs import (
    AlignedLayers,
    Alignment,
    Coupling,
    alignment_of,
    changes,
    couple,
    gated_of,
    gram,
    lambdas_of,
    weighted_maps,
)
from antiphase.measures.jacobians_forward import PAPER_EPS, branch_alignment, gram_probes
from antiphase.measures.jacobians_local import local_alignment
from antiphase.measures.jacobians_reverse import loss_alignment, map_gradients, projected_alignment, scalar_alignment
from antiphase.measures.lipschitz import draw
from antiphase.models.taps import Record, check_finite, look
from antiphase.runtime import at_rest

READINGS = {
    "R1": "Jacobians of A1 and A2 with respect to the pixels (Frobenius), per head, at x + xi with xi uniform within 8/255",
    "R2": "R1 with all heads of a layer stacked",
    "R3": "finite changes of A1 and A2 under xi uniform within 8/255",
    "R4": "random projections J1'u and J2'u",
    "R5": "J1'u and J2'u with u the loss gradient; negative means that the branches' contributions reinforce each other",
    "R6-energy": "gradients of the squared norm of A1 and of A2",
    "R6-max": "gradients of the largest entry",
    "R6-entropy": "gradients of the row entropies",
    "R6-class-row": "gradients of what the class token sees, weighed by a fixed random vector",
    "R6-values": "gradients of the sum of A1 V and of A2 V; they share the gradient of V and so lean towards cos > 0",
    "R7": "R1 for the class token's row alone",
    "R8": "Jacobians of A1 and A2 with respect to the layer's own input (closed form), per head",
}
DEGENERATE = ("D1", "D2")  # A.sum(), and loss gradients with respect to the maps: computed, then refused


def check_reading(name: str) -> None:
    """Refuse a reading that is not in the table, before anything is computed."""
    if name not in READINGS and name not in DEGENERATE:
        raise InputError(f"reading {name!r} is not known: it takes {', '.join(READINGS)}")


def align(
    classifier: nn.Module,
    images: Images,
    reading: str = "R1",
    *,
    coupling: Coupling = "branches",
    probes: int = 32,
    max_probes: int | None = None,
    eps: float = PAPER_EPS,
    seed: int = 0,
    batch_size: int = 16,
    device: torch.device | str = "cpu",
) -> AlignedLayers:
    """Branch alignment of every layer that has two branches, in one of the READINGS.

    The list prints as a table with a row per layer; `.summary()` has numbers, `.to_pandas()` a row per layer, image and head.
    """
    images = as_images(images)
    check_reading(reading)
    common: dict[str, Any] = {"coupling": coupling, "seed": seed, "batch_size": batch_size, "device": device}
    near = common | {"around": eps}
    sizes: dict[str, Any] = {"probes": probes, "max_probes": max_probes}
    ways: dict[str, Callable[[], list[Alignment]]] = {
        "R1": lambda: branch_alignment(classifier, images, **sizes, **near),
        "R2": lambda: [layer.stacked for layer in branch_alignment(classifier, images, **sizes, **near)],
        "R3": lambda: finite_alignment(classifier, images, eps=eps, **common),
        "R4": lambda: projected_alignment(classifier, images, probes=min(probes, 8), **near),
        "R5": lambda: loss_alignment(classifier, images, **near),
        "R7": lambda: _class_row(classifier, images, probes, **near),
        "R8": lambda: local_alignment(classifier, images, **near),
        "D1": lambda: scalar_alignment(classifier, images, "sum", **near),
        "D2": lambda: map_gradients(classifier, images, device=device),
    }
    kind, _, scalar = reading.partition("-")
    layers = scalar_alignment(classifier, images, scalar, **near) if kind == "R6" else ways[reading]()
    return AlignedLayers(replace(layer, ids=images.ids) for layer in layers)


def finite_alignment(
    classifier: nn.Module,
    images: ImageSet,
    *,
    eps: float = PAPER_EPS,
    coupling: Coupling = "branches",
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> list[Alignment]:
    """R3: changes of the two maps under uniform noise; two forward passes per image, no derivative at all.

    One lambda per image and head is that of the clean image.
    """
    lam = lambdas_of(classifier, images, coupling, batch_size=batch_size, device=device)
    gated = gated_of(lam)
    parts: dict[str, list[Tensor]] = {layer: [] for layer in lam}
    with at_rest(classifier), console.progress("changes of the maps", total=len(images)) as advance:
        for batch in images.batches(batch_size):
            x = batch.pixels.to(device)
            xi = draw(batch.ids, x.shape[1:], 0, eps, seed).to(x)
            clean, moved = (couple(look(classifier, at), coupling, gated) for at in (x, x + xi))
            for layer in lam:
                moves = changes(clean[layer], moved[layer])
                check_finite(sum(moves[1:], moves[0]), layer)
                parts[layer].append(gram(moves)[:, :, None].cpu())
            advance(len(x), "")
    return [alignment_of(layer, lam[layer], torch.cat(products).numpy()) for layer, products in parts.items()]


def _class_row(
    classifier: nn.Module, images: ImageSet, probes: int, *, coupling: Coupling, **near: Any
) -> list[Alignment]:
    """R7: the row of the class token alone."""
    lam = lambdas_of(classifier, images, coupling, **near)
    gated = gated_of(lam)

    def readout(record: Record) -> dict[str, tuple[Tensor, ...]]:
        maps = weighted_maps(record, coupling, gated)
        return {layer: tuple(a[:, :, :1] for a in pair) for layer, pair in maps.items()}

    products = gram_probes(classifier, images, readout, probes=probes, label="the class token's row", **near)
    return [alignment_of(layer, lam[layer], each) for layer, each in products.items()]


def controls(
    classifier: nn.Module,
    images: ImageSet,
    reading: str = "R1",
    *,
    untrained: nn.Module | None = None,
    softmax: nn.Module | None = None,
    **settings: Any,
) -> dict[str, list[Alignment]]:
    """The same reading where nothing was learned or nothing belongs together; what a model cannot give is left out.

    `untrained`: the model as initialised. `softmax`: a trained model whose head pairs (2i, 2i+1) serve as pseudo-branches.
    """
    device = settings.get("device", "cpu")
    existing = existing_controls(classifier, images, reading, untrained=untrained, softmax=softmax, device=device)
    return {
        name: align(model, images, reading, coupling=coupling, **settings)
        for name, (model, coupling) in existing.items()
    }


def existing_controls(
    classifier: nn.Module,
    images: ImageSet,
    reading: str,
    *,
    untrained: nn.Module | None,
    softmax: nn.Module | None,
    device: torch.device | str = "cpu",
) -> dict[str, tuple[nn.Module, Coupling]]:
    """What each control measures: a model and which of its maps are held against each other."""
    table: dict[str, tuple[nn.Module | None, Coupling]] = {
        "untrained": (untrained, "branches"),
        "shuffled": (classifier if reading != "R5" else None, "shuffled"),
        "pseudo": (softmax if reading != "R5" else None, "pseudo"),
    }
    existing: dict[str, tuple[nn.Module, Coupling]] = {}
    for name, (model, coupling) in table.items():
        if model is None:
            continue
        with suppress(InputError):  # one head, or no softmax layer: this control does not exist here
            lambdas_of(model, images, coupling, device=device)
            existing[name] = model, coupling
    return existing
