"""Branch alignment of one layer alone, with respect to the layer's own input: exact, no probes, O(N^2 d) per head.

This is E4 of docs/method.md 2.1. The maps' Jacobians are D-wide rows; their inner products need only the d x d Gram matrices of
the projections. One lambda per head is needed: it does not enter the closed form, and one that differs between tokens is refused.
B images, h heads, N tokens, d width of a head, D of the layer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from antiphase import console
from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.measures.branch_pairs import NEEDED, Alignment, Coupling, couple, lambda_table
from antiphase.measures.perturbations import points
from antiphase.models.attention import Branches
from antiphase.models.taps import check_finite, look
from antiphase.runtime import at_rest


class SoftmaxMap(NamedTuple):
    """A softmax map and what it was made from."""

    q: Tensor  # (B, h, N, d)
    k: Tensor  # (B, h, N, d)
    a: Tensor  # (B, h, N, N)
    wq: Tensor  # (h, d, D)
    wk: Tensor  # (h, d, D)


def local_inner(b: SoftmaxMap, c: SoftmaxMap) -> Tensor:
    """<J_b, J_c>_F of two softmax maps of one input X, J = d vec(A) / dX: (B, h). Masked entries drop out by themselves."""
    q, k, a, wq, wk = b
    r, p, e, vq, vk = c
    keys, queries = wk @ vk.mT, wq @ vq.mT  # (h, d, d): every D-wide product below goes through one of these
    first, second = wq @ vk.mT, vq @ wk.mT
    w = a * e
    s = w.sum(-1)  # (B, h, N)
    k_mean, p_mean, k_weighed, p_weighed = a @ k, e @ p, w @ k, w @ p  # (B, h, N, d)
    diagonal_a, diagonal_e, diagonal_w = (m.diagonal(dim1=-2, dim2=-1) for m in (a, e, w))

    through_queries = (s - (w * (a + e)).sum(-1) + s**2) * _dot(q @ keys, r)
    mean_queries = k_mean @ queries
    through_keys = (
        (w @ _dot(k @ queries, p)[..., None])[..., 0]
        - _dot(mean_queries, p_weighed)
        - _dot(k_weighed @ queries, p_mean)
        + s * _dot(mean_queries, p_mean)
    )
    from_c, from_b = r @ first.mT, q @ second.mT  # (B, h, N, d)
    both = (
        diagonal_w * _dot(k - k_mean, from_c)
        - diagonal_e * _dot(k_weighed - s[..., None] * k_mean, from_c)
        + diagonal_w * _dot(p - p_mean, from_b)
        - diagonal_a * _dot(p_weighed - s[..., None] * p_mean, from_b)
    )
    return (through_queries + through_keys + both).sum(-1) / q.shape[-1]


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1)


def local_moments(maps: Branches, coupling: Coupling = "branches") -> tuple[Tensor, Tensor, Tensor] | None:
    """||J1||^2, ||J2||^2 and <J1, J2> of one call of a layer, (B, h) each; None where the layer has no such pairs."""
    pair = _softmax_maps(maps, coupling)
    if pair is None:
        return None
    first, second = pair
    return local_inner(first, first), local_inner(second, second), local_inner(first, second)


def _softmax_maps(maps: Branches, coupling: Coupling) -> tuple[SoftmaxMap, SoftmaxMap] | None:
    """The two maps that are held against each other, each with what it was made from."""
    heads = maps.heads
    differential = heads.lam is not None
    if differential is (coupling == "pseudo") or (coupling != "branches" and maps.signal.shape[1] < 2):
        return None
    if heads.weights is None:
        raise InputError("the closed form needs queries and keys that are linear in the layer's input: use probes (E1)")
    wq, wk = heads.weights
    if not differential:
        even = maps.signal.shape[1] // 2 * 2
        first, second = (
            SoftmaxMap(*(t[:, i:even:2] for t in (heads.q, heads.k, maps.signal)), *(w[i:even:2] for w in (wq, wk)))
            for i in (0, 1)
        )
        return first, second
    assert maps.noise is not None
    first, second = (
        SoftmaxMap(heads.q[:, :, i], heads.k[:, :, i], a, wq[:, i], wk[:, i])
        for i, a in enumerate((maps.signal, maps.noise))
    )
    if coupling == "shuffled":
        second = SoftmaxMap(*(t.roll(1, dims=-3) for t in second))  # the axis of heads in all of them
    return first, second


def local_alignment(
    classifier: nn.Module,
    images: ImageSet,
    *,
    coupling: Coupling = "branches",
    around: float = 0.0,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> list[Alignment]:
    """E4 for every layer with two branches: "isolated", each layer on its own. Not the end-to-end quantity of E1."""
    moments: dict[str, list[tuple[Tensor, ...]]] = {}
    lam: dict[str, list[tuple[Tensor, int]]] = {}
    with at_rest(classifier), console.progress("layer-local alignment", total=len(images)) as advance:
        for batch in images.batches(batch_size):
            record = look(classifier, points(batch, around, seed).to(device))
            for layer, pair in couple(record, coupling).items():
                pair.needs_one_lambda_per_head("the closed form", layer)
                measured = local_moments(record[layer], coupling)
                assert measured is not None
                check_finite(torch.stack(measured), layer)
                moments.setdefault(layer, []).append(tuple(m.double().cpu() for m in measured))
                lam.setdefault(layer, []).append((pair.lam, len(batch.ids)))
            advance(len(batch.ids), "")
    if not moments:
        raise InputError(f"alignment needs {NEEDED[coupling]}")
    return [
        Alignment(
            layer, lambda_table(lam[layer]), *(np.concatenate([p[i] for p in parts])[..., None] for i in range(3))
        )
        for layer, parts in moments.items()
    ]
