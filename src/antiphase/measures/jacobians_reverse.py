"""Branch gradients by reverse mode: of a scalar of each map with respect to the pixels, one backward pass per head and branch.

For models without forward mode (E3 of docs/method.md 2.1), for readings that need the loss, and for scalars somebody may want to
try. Some scalars say nothing at all; they are detected and refused. Projections (R4, R5) are of the terms of J_DA: lambda that
differs between tokens is part of the second, and what it changes by itself is the third. Other scalars (R6) are of A1 and A2
and need one lambda per head. T terms, B images, h heads, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from antiphase import console, runtime
from antiphase.attacks.losses import LOSSES
from antiphase.config import InputError
from antiphase.console import Clock
from antiphase.data.imageset import Batch, ImageSet
from antiphase.measures.branch_pairs import Alignment, Coupling, Weight, alignment_of, couple, gated_of, lambdas_of
from antiphase.measures.perturbations import points
from antiphase.measures.stats import Array
from antiphase.models.taps import Record, check_finite, explicit

Scalar = Callable[[Tensor, Tensor], Tensor]  # a map (B, h, N, M) and its values (B, h, M, e) -> (B, h)
Moments = dict[str, Tensor]  # layer -> inner products of the gradients: (B, h, T, T)
VANISHING = 1e-4  # a gradient this far below that of a random projection is rounding noise


def entropy(a: Tensor) -> Tensor:
    """-sum a log a over the last axis; 0 log 0 = 0."""
    rows: Tensor = -torch.special.xlogy(a, a).sum(-1)
    return rows


def _class_row(a: Tensor, _: Tensor) -> Tensor:
    """What the first token attends to, weighed by a fixed random vector."""
    weights = runtime.normal((0, "class row"), np.zeros(1, np.int64), (a.shape[-1],))[0]
    return a[:, :, 0] @ torch.from_numpy(weights).to(a)


SCALARS: dict[str, Scalar] = {
    "energy": lambda a, _: a.pow(2).sum((-1, -2)),
    "max": lambda a, _: a.amax((-1, -2)),
    "entropy": lambda a, _: entropy(a).sum(-1),
    "class-row": _class_row,
    "values": lambda a, v: (a @ v).sum((-1, -2)),  # shares the gradient of V: leans towards cos > 0
    "sum": lambda a, _: a.sum((-1, -2)),  # every row sums to one: its gradient is zero, and so refused
}


def scalar_alignment(
    classifier: nn.Module,
    images: ImageSet,
    scalar: Scalar | str,
    *,
    coupling: Coupling = "branches",
    around: float = 0.0,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> list[Alignment]:
    """Gradients of a scalar of A1 and of A2 held against each other (R6). A scalar whose gradient vanishes is refused.

    By name one of SCALARS, or any function (map, values) -> (B, h).
    """
    if isinstance(scalar, str) and scalar not in SCALARS:
        raise InputError(f"scalar {scalar!r} is not known: it takes {', '.join(SCALARS)}")
    chosen = SCALARS[scalar] if isinstance(scalar, str) else scalar

    def cotangents(record: Record, _: Tensor, batch: Batch) -> list[dict[str, Tensor]]:
        return [{}, _random(record, batch, seed, 0)]

    common: dict[str, Any] = {"around": around, "seed": seed, "batch_size": batch_size, "device": device}
    lambdas, (own, random) = _gradient_moments(classifier, images, cotangents, coupling, scalar=chosen, **common)
    layers = [_layer(name, lam, own[name]) for name, lam in lambdas.items()]
    for layer in layers:
        typical = np.median([np.sqrt(n) for n in random[layer.layer][..., 0, 0]])
        vanishing = np.sqrt(np.minimum(layer.n1, layer.n2)) < VANISHING * typical
        if vanishing.mean() > 0.5:
            name = scalar if isinstance(scalar, str) else getattr(scalar, "__name__", "this scalar")
            raise InputError(
                f"the scalar {name!r} is degenerate (D1): its gradient vanishes in {layer.layer}, since rows of a softmax "
                "map always sum to one; signs of what is left are rounding noise. Use energy, entropy or probes (R1)"
            )
    return layers


def projected_alignment(
    classifier: nn.Module,
    images: ImageSet,
    *,
    probes: int = 8,
    coupling: Coupling = "branches",
    around: float = 0.0,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> list[Alignment]:
    """E3, and reading R4: J1'u and J2'u for random u, the same for both. Slow: for models without forward mode."""
    if probes < 2:
        raise InputError(f"probes={probes}: a standard error needs at least 2")

    def cotangents(record: Record, _: Tensor, batch: Batch) -> list[dict[str, Tensor]]:
        return [_random(record, batch, seed, k) for k in range(probes)]

    common: dict[str, Any] = {"around": around, "seed": seed, "batch_size": batch_size, "device": device}
    lambdas, by_probe = _gradient_moments(classifier, images, cotangents, coupling, **common)
    return [
        alignment_of(name, weight, np.stack([each[name] for each in by_probe], axis=2))
        for name, weight in lambdas.items()
    ]


def loss_alignment(
    classifier: nn.Module,
    images: ImageSet,
    *,
    loss: str = "ce",
    coupling: Coupling = "branches",
    around: float = 0.0,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> list[Alignment]:
    """R5: J1'u and J2'u with u = dloss / d(A1 - lambda A2), what an adversary follows.

    The two branches give J1'u and -lambda J2'u to the gradient of the loss: for lambda > 0 a negative cosine here means that
    their contributions reinforce each other.
    """
    if coupling != "branches":
        raise InputError("the loss is read through a layer's own branches: R5 has no shuffled or pseudo control")

    def cotangents(record: Record, logits: Tensor, batch: Batch) -> list[dict[str, Tensor]]:
        values = LOSSES[loss](logits, batch.labels.to(logits.device)).sum()
        layers = {name: maps.signal for name, maps in record.items() if maps.noise is not None}
        grads = torch.autograd.grad(values, list(layers.values()), retain_graph=True)
        return [dict(zip(layers, grads))]

    common: dict[str, Any] = {"around": around, "seed": seed, "batch_size": batch_size, "device": device}
    lambdas, (moments,) = _gradient_moments(classifier, images, cotangents, coupling, **common)
    return [_layer(name, lam, moments[name]) for name, lam in lambdas.items()]


def map_gradients(
    classifier: nn.Module, images: ImageSet, *, loss: str = "ce", device: torch.device | str = "cpu"
) -> list[Alignment]:
    """D2, the gradients of the loss with respect to A1 and A2 themselves: always refused, after a look at them.

    They are u and -lambda u, so their cosine is -sign(lambda) whatever the model has learned.
    """
    batch = images.batch(np.arange(min(32, len(images))))
    with runtime.frozen(classifier), explicit(classifier) as record:
        logits = classifier(batch.pixels.to(device).requires_grad_())
        values = LOSSES[loss](logits, batch.labels.to(device)).sum()
        pairs = {name: (maps.signal, maps.noise) for name, maps in record.items() if maps.noise is not None}
        cosines = []
        for first, second in pairs.values():
            g1, g2 = torch.autograd.grad(values, (first, second), retain_graph=True)
            cosines.append(torch.cosine_similarity(g1.flatten(2), g2.flatten(2), dim=-1))
    every = torch.cat([c.flatten() for c in cosines])
    raise InputError(
        f"the cosine of loss gradients with respect to the maps is degenerate (D2): it is -sign(lambda) for every model, here "
        f"{every.mean():.4f} on all {len(every)} (image, head) pairs; use J1'u and J2'u (R5)"
    )


# ------------------------------------------------------------------------------------------------- the passes
def _layer(name: str, weight: Weight, moments: Array) -> Alignment:
    return alignment_of(name, weight, moments[:, :, None])


def _random(record: Record, batch: Batch, seed: int, k: int) -> dict[str, Tensor]:
    """A random cotangent for every layer, from each image's own stream; the same for both branches of a head."""
    return {
        name: torch.from_numpy(runtime.normal((seed, "cotangent", name, k), batch.ids, tuple(m.signal.shape[1:]))).to(
            m.signal
        )
        for name, m in record.items()
    }


def _gradient_moments(
    classifier: nn.Module,
    images: ImageSet,
    cotangents: Callable[[Record, Tensor, Batch], list[dict[str, Tensor]]],
    coupling: Coupling,
    *,
    around: float,
    seed: int,
    batch_size: int,
    device: torch.device | str,
    scalar: Scalar | None = None,
) -> tuple[dict[str, Weight], list[dict[str, Array]]]:
    """Lambda of each layer; and for each of the cotangents (an empty one stands for `scalar`) layer -> inner products of the
    gradients (n, h, T, T).

    A model without such pairs is refused.
    """
    lambdas = lambdas_of(classifier, images, coupling, around=around, seed=seed, batch_size=batch_size, device=device)
    gated = gated_of(lambdas)
    parts: list[list[Moments]] = []
    clock = Clock("reverse-mode alignment", images, "forward-mode probes (E1)")
    with runtime.frozen(classifier), console.progress(clock.label, total=len(images)) as advance:
        for batch in images.batches(batch_size):
            with clock.part(len(batch.ids)), torch.enable_grad(), explicit(classifier) as record:
                x = points(batch, around, seed).to(device).requires_grad_()
                logits = classifier(x)
                wanted = cotangents(record, logits, batch)
                parts.append([_moments(record, x, u, coupling, gated, scalar) for u in wanted])
            advance(len(batch.ids), "")
    return lambdas, [
        {name: torch.cat([p[i][name] for p in parts]).numpy() for name in parts[0][i]} for i in range(len(parts[0]))
    ]


def _moments(
    record: Record,
    x: Tensor,
    u: dict[str, Tensor],
    coupling: Coupling,
    gated: frozenset[str],
    scalar: Scalar | None,
) -> Moments:
    """Inner products of the gradients of <u, A> for each term A, or of the scalar where u is empty, head by head"""
    moments: Moments = {}
    for name, pair in couple(record, coupling, gated).items():
        heads = pair.first.shape[1]
        if u:
            scalars = [(a * u[name][:, :heads]).sum((-1, -2)) for a in pair.terms]
        else:
            assert scalar is not None
            pair.needs_one_lambda_per_head("the gradient of a scalar of the maps (R6)", name)
            scalars = [scalar(a, record[name].values[:, :heads]) for a in pair[:2]]
        by_head = [[_gradient(s[:, h].sum(), x) for s in scalars] for h in range(heads)]
        products = [[[(a * b).sum(1) for b in each] for a in each] for each in by_head]  # (h, T, T) of (B,)
        moments[name] = torch.stack([torch.stack([torch.stack(row, -1) for row in p], -2) for p in products], 1).cpu()
        check_finite(moments[name], name)
    return moments


def _gradient(scalar: Tensor, x: Tensor) -> Tensor:
    """With respect to the pixels: (B, pixels); zero where the scalar does not depend on them"""
    (gradient,) = torch.autograd.grad(scalar, x, retain_graph=True, allow_unused=True)
    return torch.zeros_like(x).flatten(1).double() if gradient is None else gradient.flatten(1).double()
