"""Jacobians of attention maps with respect to the pixels, by forward mode: no Jacobian is ever held (docs/method.md 2.1).

One pass with tangent v gives J v for all layers, heads, branches and images at once (E1); over Gaussian v,
E||J v||^2 = ||J||_F^2 and E<J1 v, J2 v> = <J1, J2>_F. With the unit vectors in place of random ones the same sums are exact
(E2). Where lambda depends on the input its derivative is a term of its own, the gate's; in the second map lambda is held fixed.
B images, h heads, K probes, T maps that are looked at together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console, runtime
from antiphase.config import InputError
from antiphase.console import Clock
from antiphase.data.imageset import ImageSet
from antiphase.measures.branch_pairs import (
    Alignment,
    Coupling,
    Weight,
    alignment_of,
    gated_of,
    gram,
    lambdas_of,
    weighted_maps,
)
from antiphase.measures.perturbations import points
from antiphase.measures.stats import Array
from antiphase.models.taps import Record, check_finite, look
from antiphase.runtime import at_rest

Readout = Callable[[Record], dict[str, tuple[Tensor, ...]]]  # layer -> T maps of equal shape, (B, h, ...)
PAPER_EPS = 8 / 255
ROOM = 500_000  # pixels times probes in one pass
UNITS = 8  # unit vectors in one pass


def branch_alignment(
    classifier: nn.Module,
    images: ImageSet,
    *,
    probes: int = 32,
    max_probes: int | None = None,
    coupling: Coupling = "branches",
    around: float = 0.0,
    seed: int = 0,
    batch_size: int = 16,
    device: torch.device | str = "cpu",
) -> list[Alignment]:
    """E1 for every layer with two branches, end to end from the pixels.

    Probes are doubled, for the images that need it, until every sign is decided or `max_probes` is reached. The Jacobians
    are taken at the image, or at a point drawn uniformly within `around` of it (the paper's reading: 8/255).
    """
    if probes < 2:
        raise InputError(f"probes={probes}: a standard error needs at least 2")
    if max_probes is not None and max_probes < probes:
        raise InputError(f"max_probes={max_probes} is below probes={probes}: raise it or leave it out")
    common: dict[str, Any] = {"around": around, "seed": seed, "batch_size": batch_size, "device": device}
    lam = lambdas_of(classifier, images, coupling, **common)

    def undecided(products: dict[str, Array]) -> NDArray[np.bool_]:
        one = Weight(np.ones((1, 1)))  # signs do not need lambda
        layers = [alignment_of(layer, one, each) for layer, each in products.items()]
        needs_more: NDArray[np.bool_] = np.any([(layer.alive & ~layer.decided).any(axis=1) for layer in layers], axis=0)
        return needs_more

    products = gram_probes(
        classifier,
        images,
        partial(weighted_maps, coupling=coupling, gated=gated_of(lam)),
        probes=probes,
        max_probes=max_probes or probes,
        needs_more=undecided,
        label="branch alignment",
        **common,
    )
    return [alignment_of(layer, lam[layer], each) for layer, each in products.items()]


def map_norms(
    classifier: nn.Module, images: ImageSet, *, probes: int, label: str = "norms of the maps", **settings: Any
) -> dict[str, Array]:
    """||J v||^2 of every layer's map A1 - lambda A2 (of a softmax layer, its only one): (n, h, K). Settings: `gram_probes`."""

    def readout(record: Record) -> dict[str, tuple[Tensor, ...]]:
        return {name: (maps.combined,) for name, maps in record.items()}

    products = gram_probes(classifier, images, readout, probes=probes, label=label, **settings)
    return {name: each[..., 0, 0] for name, each in products.items()}


def exact_alignment(
    classifier: nn.Module,
    images: ImageSet,
    *,
    coupling: Coupling = "branches",
    around: float = 0.0,
    seed: int = 0,
    batch_size: int = 16,
    device: torch.device | str = "cpu",
) -> list[Alignment]:
    """E2: the same numbers without error, one pass per pixel. For small images."""
    common: dict[str, Any] = {"around": around, "seed": seed, "batch_size": batch_size, "device": device}
    lam = lambdas_of(classifier, images, coupling, **common)
    readout = partial(weighted_maps, coupling=coupling, gated=gated_of(lam))
    products = gram_exact(classifier, images, readout, **common)
    return [alignment_of(layer, lam[layer], each) for layer, each in products.items()]


# ------------------------------------------------------------------------------------------------- the passes
def gram_probes(
    classifier: nn.Module,
    images: ImageSet,
    readout: Readout,
    *,
    probes: int,
    max_probes: int | None = None,
    needs_more: Callable[[dict[str, Array]], NDArray[np.bool_]] | None = None,
    around: float = 0.0,
    seed: int = 0,
    batch_size: int = 16,
    device: torch.device | str = "cpu",
    label: str = "probes",
) -> dict[str, Array]:
    """Inner products of J v over the T maps of each layer, one per probe: (n, h, K, T, T); NaN where an image took fewer.

    `needs_more` gets what a batch has so far and says which of its images need more probes, up to `max_probes`.
    """
    most = max_probes or probes
    parts: list[dict[str, Array]] = []
    clock = Clock(label, images, "the closed form per layer (E4), or finite differences (R3)", at_most=most / probes)

    def push(x: Tensor, v: Tensor) -> dict[str, Tensor]:
        with clock.part(len(x) * len(v) / probes):
            return _push(classifier, x, v, readout)

    with at_rest(classifier), console.progress(label, total=len(images) * probes) as advance:
        for batch in images.batches(batch_size):
            x = points(batch, around, seed).to(device)
            rows, products, done = np.arange(len(x)), dict[str, Array](), 0
            while len(rows) and done < most:
                upto = min(max(probes, 2 * done), most)
                more = _joined_probes(_probe(push, x[rows], batch.ids[rows], seed, done, upto))
                products = _appended(products, more, rows, len(x), upto)
                done = upto
                rows = np.flatnonzero(needs_more(products)) if needs_more else rows[:0]
            advance(len(x) * probes, f"{done} probes")
            parts.append(products)
    return _joined_batches(parts, most)


def gram_exact(
    classifier: nn.Module,
    images: ImageSet,
    readout: Readout,
    *,
    around: float = 0.0,
    seed: int = 0,
    batch_size: int = 16,
    device: torch.device | str = "cpu",
) -> dict[str, Array]:
    """The same without chance, summed over every pixel: (n, h, 1, T, T)."""
    pixels = int(np.prod(images.shape))
    parts: list[dict[str, Array]] = []
    clock = Clock("exact Jacobians", images, "probes (E1), or the closed form per layer (E4)")
    with at_rest(classifier), console.progress("exact Jacobians", total=len(images) * pixels) as advance:
        for batch in images.batches(batch_size):
            x = points(batch, around, seed).to(device)
            total: dict[str, Tensor] = {}
            for j in range(0, pixels, UNITS):
                which = torch.arange(j, min(j + UNITS, pixels), device=x.device)
                units = nn.functional.one_hot(which, pixels).to(x)[:, None].expand(-1, len(x), -1).reshape(-1, *x.shape)
                with clock.part(len(x) * len(units) / pixels):
                    for layer, products in _push(classifier, x, units, readout).items():
                        total[layer] = total.get(layer, 0.0) + products.sum(2, keepdim=True)
                advance(len(x) * len(units), "")
            parts.append({layer: products.cpu().numpy() for layer, products in total.items()})
    return _joined_batches(parts, 1)


def _probe(
    push: Callable[[Tensor, Tensor], dict[str, Tensor]],
    x: Tensor,
    ids: NDArray[np.int64],
    seed: int,
    first: int,
    last: int,
) -> Iterator[dict[str, Tensor]]:
    together = max(1, min(8, ROOM // x.numel()))  # probes that share one look at the images
    for start in range(first, last, together):
        numbers = range(start, min(start + together, last))
        v = np.stack([runtime.normal((seed, "probe", k), ids, tuple(x.shape[1:])) for k in numbers])
        yield push(x, torch.from_numpy(v).to(x))


def _push(classifier: nn.Module, x: Tensor, v: Tensor, readout: Readout) -> dict[str, Tensor]:
    """Inner products of J v over the T maps of each layer, for several v: (K, B, ...) -> (B, h, K, T, T)

    The maps themselves are computed once for all v; only the tangents are computed for each.
    """

    def maps(pixels: Tensor) -> dict[str, tuple[Tensor, ...]]:
        return readout(look(classifier, pixels))

    def products(tangent: Tensor) -> dict[str, Tensor]:
        return {layer: gram(pushed) for layer, pushed in runtime.jvp(maps, x, tangent).items()}

    by_layer: dict[str, Tensor] = torch.func.vmap(products, out_dims=2)(v)
    for layer, values in by_layer.items():
        check_finite(values, layer)
    return by_layer


def _joined_probes(each: Iterator[dict[str, Tensor]]) -> dict[str, Array]:
    """(B, h, K, T, T)"""
    parts: dict[str, list[Tensor]] = {}
    for products in each:
        for layer, values in products.items():
            parts.setdefault(layer, []).append(values)
    return {layer: torch.cat(values, dim=2).cpu().numpy() for layer, values in parts.items()}


def _appended(
    known: dict[str, Array], more: dict[str, Array], rows: NDArray[np.int64], size: int, upto: int
) -> dict[str, Array]:
    """What a batch has so far, with new probes of some of its images: (B, h, upto, T, T)"""
    grown = {}
    for layer, new in more.items():
        grown[layer] = np.full((size, new.shape[1], upto, *new.shape[3:]), np.nan)
        if layer in known:
            grown[layer][:, :, : known[layer].shape[2]] = known[layer]
        grown[layer][rows, :, upto - new.shape[2] :] = new
    return grown


def _joined_batches(parts: list[dict[str, Array]], most: int) -> dict[str, Array]:
    """All batches, as wide as the widest."""
    width = max(min(most, products.shape[2]) for part in parts for products in part.values())
    joined = {}
    for layer in parts[0]:
        padded = []
        for part in parts:
            missing = width - part[layer].shape[2]
            padded.append(np.pad(part[layer], [(0, 0), (0, 0), (0, missing), (0, 0), (0, 0)], constant_values=np.nan))
        joined[layer] = np.concatenate(padded)
    return joined
