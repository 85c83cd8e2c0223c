"""Branch alignment of one layer alone, with respect to the layer's own input: exact, no probes, O(N^2 d) per head.

This is E4 of docs/method.md 2.1. The maps' Jacobians are D-wide rows; their inner products need only the d x d Gram matrices of
the projections. Lambda of a token multiplies that token's row. Where it depends on the input, the gate's term has a closed form
if lambda is a function of one product with the token's own input (`Heads.gate`); other gates, and DINT's mean, are refused.
B images, h heads, N tokens, d width of a head, D of the layer.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from antiphase import console
from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.measures.branch_pairs import (
    NEEDED,
    Alignment,
    BranchPair,
    Coupling,
    alignment_of,
    couple,
    weight_of,
)
from antiphase.measures.perturbations import points
from antiphase.models.attention import Branches
from antiphase.models.taps import check_finite, gated_layers, look
from antiphase.runtime import at_rest


class SoftmaxMap(NamedTuple):
    """A softmax map and what it was made from; or its first R rows."""

    q: Tensor  # (B, h, R, d)
    k: Tensor  # (B, h, N, d)
    a: Tensor  # (B, h, R, N)
    wq: Tensor  # (h, d, D)
    wk: Tensor  # (h, d, D)


class GateTerm(NamedTuple):
    """The third term A2 dlambda: row i of A2 times the derivative of lambda_i, which is slope_i times a direction."""

    a: Tensor  # A2: (B, h, N, N)
    slope: Tensor  # (B, h, N)
    direction: Tensor  # (h, D)

    @property
    def rows(self) -> Tensor:
        """||J3||^2 row by row: (B, h, N)"""
        return self.a.square().sum(-1) * self.slope.square() * self.direction.square().sum(-1)[:, None]

    def inner_rows(self, b: SoftmaxMap) -> Tensor:
        """<J_b, J3> row by row: (B, h, N). Only dA_ij / dx_i meets it, through the query of token i and through its key."""
        q, k, a, wq, wk = b
        w = a * self.a
        through_query, through_key = (
            _dot(self.direction[:, None], weight)[:, None] for weight in (wq, wk)
        )  # (h, 1, d)
        queries = _dot(w @ k - w.sum(-1, keepdim=True) * (a @ k), through_query)
        own, every = w.diagonal(dim1=-2, dim2=-1), a.diagonal(dim1=-2, dim2=-1) * w.sum(-1)
        keys = (own - every) * _dot(q, through_key)
        rows: Tensor = self.slope * (queries + keys) / q.shape[-1] ** 0.5
        return rows


def local_inner(b: SoftmaxMap, c: SoftmaxMap) -> Tensor:
    """<J_b, J_c>_F of two softmax maps of one input X, J = d vec(A) / dX: (B, h)"""
    return local_rows(b, c).sum(-1) / b.q.shape[-1]


def local_rows(b: SoftmaxMap, c: SoftmaxMap) -> Tensor:
    """d <J_b, J_c>_F row by row: (B, h, R). Masked entries drop out by themselves."""
    q, k, a, wq, wk = b
    r, p, e, vq, vk = c
    rows = q.shape[-2]
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
        diagonal_w * _dot(k[..., :rows, :] - k_mean, from_c)
        - diagonal_e * _dot(k_weighed - s[..., None] * k_mean, from_c)
        + diagonal_w * _dot(p[..., :rows, :] - p_mean, from_b)
        - diagonal_a * _dot(p_weighed - s[..., None] * p_mean, from_b)
    )
    return through_queries + through_keys + both


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1)


def local_moments(maps: Branches, coupling: Coupling = "branches", gated: bool = False) -> Tensor | None:
    """Inner products of J1, J2 and, with a gate, J3 of one call of a layer: (B, h, T, T); None where it has no such pairs.

    Lambda that differs between tokens is in J2, as in `BranchPair.terms`.
    """
    pair = _softmax_maps(maps, coupling)
    if pair is None:
        return None
    first, second = pair
    lam = (maps.lam.roll(1, dims=1) if coupling == "shuffled" else maps.lam)[..., 0]
    per_token = coupling != "pseudo" and lam.shape[2] != 1
    if not gated and not per_token:
        n1, n2, ip = local_inner(first, first), local_inner(second, second), local_inner(first, second)
        return torch.stack([torch.stack([n1, ip], -1), torch.stack([ip, n2], -1)], -2)
    weight = lam if per_token else torch.ones_like(lam)
    d = first.q.shape[-1]
    table = {
        (0, 0): local_rows(first, first) / d,
        (1, 1): weight**2 * local_rows(second, second) / d,
        (0, 1): weight * local_rows(first, second) / d,
    }
    if gated:
        gate = _gate_term(maps, second.a, coupling)
        table |= {(2, 2): gate.rows, (0, 2): gate.inner_rows(first), (1, 2): weight * gate.inner_rows(second)}
    terms = range(3 if gated else 2)
    sums = {key: rows.sum(-1) for key, rows in table.items()}
    return torch.stack([torch.stack([sums[min(i, j), max(i, j)] for j in terms], -1) for i in terms], -2)


def _gate_term(maps: Branches, noise: Tensor, coupling: Coupling) -> GateTerm:
    if maps.heads.gate is None:
        raise InputError(
            "the closed form knows a gate that is a function of W x of its own token, and this layer's is not given as one "
            "(Heads.gate): use probes (R1)"
        )
    slope, direction = maps.heads.gate
    if coupling == "shuffled":
        slope, direction = slope.roll(1, dims=1), direction.roll(1, dims=0)
    return GateTerm(noise, slope, direction)


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
    moments: dict[str, list[Tensor]] = {}
    lam: dict[str, list[tuple[BranchPair, int]]] = {}
    gated: frozenset[str] | None = None  # found out on the first image
    with at_rest(classifier), console.progress("layer-local alignment", total=len(images)) as advance:
        for batch in images.batches(batch_size):
            near = points(batch, around, seed).to(device)
            gated = (
                (gated_layers(classifier, near[:1]) if coupling != "pseudo" else frozenset())
                if gated is None
                else gated
            )
            record = look(classifier, near)
            for layer, pair in couple(record, coupling).items():
                if pair.added is not None:
                    raise InputError(
                        f"the closed form has no place for the mean that {layer} (dint) adds: use probes (R1)"
                    )
                measured = local_moments(record[layer], coupling, layer in gated)
                assert measured is not None
                check_finite(measured, layer)
                moments.setdefault(layer, []).append(measured.double().cpu())
                lam.setdefault(layer, []).append((pair, len(batch.ids)))
            advance(len(batch.ids), "")
    if not moments:
        raise InputError(f"alignment needs {NEEDED[coupling]}")
    return [
        alignment_of(layer, weight_of(lam[layer], layer in (gated or ())), torch.cat(parts)[:, :, None].numpy())
        for layer, parts in moments.items()
    ]
