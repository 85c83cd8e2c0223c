"""Do the two maps of a head look alike, and do they move alike? (C1 of docs/method.md 3.3)

DiffCLIP's criterion, correlated on noisy images and not on clean ones, is about the maps; cancellation needs correlated
*changes*. Both are given: each statistic of the maps on clean and on corrupted images, and the correlation of the changes.
Statistics are taken row by row, over the tokens that a row may look at, and averaged over the rows of a map; rows of fewer than 4
such tokens (the first of a causal map) are left out. Entropies and divergences are in bits. Any lambda will do: A1 and A2 are
compared without it, and A1 - lambda A2 has each row with its own. n images, h heads, N tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console
from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.measures.branch_pairs import (
    NEEDED,
    REMEDY,
    BranchPair,
    Coupling,
    couple,
    finite_look,
    lambda_table,
)
from antiphase.measures.jacobians_forward import PAPER_EPS
from antiphase.measures.jacobians_reverse import entropy
from antiphase.measures.perturbations import CORRUPTIONS, check_names, perturbed
from antiphase.measures.stats import Array, finite, mean_interval, over
from antiphase.models.attention import Branches, attention_maps
from antiphase.models.taps import Record
from antiphase.runtime import at_rest

SHORTEST = 4  # tokens of a row that still says something about correlation
FLAT = 1e-6  # a row whose deviation from its mean is this small a share of its size is uniform: it has no correlation
MEANING = {
    "pearson": "correlation of the rows of A1 and A2",
    "cosine": "cosine of the rows of A1 and A2",
    "divergence": "Jensen-Shannon divergence of the rows, bits: 0 equal, 1 disjoint",
    "overlap": "share of the k tokens with the largest weight that both rows have in common",
    "chance": "that share for rows that have nothing to do with each other, k over the length of the row",
    "negative_share": "share of weights of A1 - lambda A2 below 0",
    "negative_mass": "sum of their absolute values, as a share of that of all weights",
    "entropy_first": "entropy of the rows of A1, bits",
    "entropy_second": "entropy of the rows of A2, bits",
    "entropy_combined": "entropy of |A1 - lambda A2| with every row divided by its sum, bits",
    "change_pearson": "correlation of the rows of the changes of A1 and A2 between the clean and the corrupted image",
    "change_cosine": "cosine of the changes, the whole map at once",
}


@dataclass(frozen=True)
class Correlation:
    """One layer on clean images (`perturbation` "clean") or under one perturbation."""

    layer: str
    perturbation: str
    coupling: Coupling
    lam: Array | float  # broadcasts to (n, h); mean over the tokens
    top: int  # the k of the overlap
    rows_used: int  # of a map
    statistics: dict[str, Array]  # name of MEANING -> (n, h); NaN where it does not exist
    l2: Array  # (n,) distance from the clean image

    def summary(self) -> dict[str, Any]:
        """Mean over the heads of each image, then over images with a 95 % interval."""
        return {
            "layer": self.layer,
            "perturbation": self.perturbation,
            "coupling": self.coupling,
            "lambda": float(np.mean(self.lam)),
            "top": self.top,
            "rows_used": self.rows_used,
            "images": len(self.l2),
            "l2": float(self.l2.mean()),
            **{name: mean_interval(_over_heads(values)) for name, values in self.statistics.items()},
        }

    def rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        """One row per image and head."""
        about = {"layer": self.layer, "perturbation": self.perturbation, "coupling": self.coupling}
        lam = np.broadcast_to(self.lam, self.statistics["pearson"].shape)
        return [
            about
            | {"lambda": float(lam[i, h]), "top": self.top, "head": h, "image": int(image), "l2": float(self.l2[i])}
            | {name: finite(values[i, h]) for name, values in self.statistics.items()}
            for i, image in enumerate(ids)
            for h in range(lam.shape[1])
        ]


def correlation(
    classifier: nn.Module,
    images: ImageSet,
    *,
    perturbations: tuple[str, ...] = CORRUPTIONS,
    eps: float = PAPER_EPS,
    top: int = 5,
    coupling: Coupling = "branches",
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> list[Correlation]:
    """Every layer that has such pairs, on clean images and under every perturbation; `eps` is for those that have one."""
    if top < 1:
        raise InputError(f"top={top} must be at least 1")
    check_names(perturbations)
    names = ("clean", *perturbations)
    parts: dict[tuple[str, str], list[dict[str, Tensor]]] = {}
    l2: dict[str, list[Array]] = {name: [] for name in names}
    lam: dict[str, list[tuple[Tensor, int]]] = {}
    used: dict[str, int] = {}
    with at_rest(classifier), console.progress("map correlation", total=len(images) * len(names)) as advance:
        for raw in images.batches(batch_size):
            batch = raw.to(device)
            clean = finite_look(classifier, batch.pixels)
            for layer, pair in couple(clean, coupling).items():
                lam.setdefault(layer, []).append((pair.lam, len(batch.ids)))
                used[layer] = rows_counted(clean[layer])
            for name in names:
                here, distance = clean, np.zeros(len(batch.ids))
                if name != "clean":
                    moved = perturbed(classifier, batch, name, eps, seed)
                    here, distance = finite_look(classifier, moved.pixels), moved.l2
                for layer, statistics in statistics_of(clean, here, coupling, top).items():
                    parts.setdefault((name, layer), []).append(statistics)
                l2[name].append(distance)
                advance(len(batch.ids), name)
    if not parts:
        raise InputError(f"correlation needs {NEEDED[coupling]}{REMEDY[coupling]}")
    return [
        Correlation(
            layer,
            name,
            coupling,
            lambda_table(lam[layer]),
            top,
            used[layer],
            joined(each),
            np.concatenate(l2[name]),
        )
        for (name, layer), each in parts.items()
    ]


def statistics_of(
    clean: Record, here: Record, coupling: Coupling, top: int, *, kept: Tensor | None = None
) -> dict[str, dict[str, Tensor]]:
    """layer -> name of MEANING -> (B, h); `kept` says which tokens of `here` are those of `clean`, where it has more"""
    before = couple(clean, coupling)
    by_layer = {}
    for layer, pair in couple(here, coupling).items():
        a, b, lam = (m.cpu().double() for m in pair[:3])
        c, d = (m.cpu().double() for m in before[layer][:2])
        added = None if pair.added is None else pair.added.cpu().double()
        visible, before_too = (_of_pairs(_visible(record[layer]), coupling, a.shape[1]) for record in (here, clean))
        common = (a, b) if kept is None else tuple(m[:, :, kept][..., kept] for m in (a, b))
        moved = movement(common[0] - c, common[1] - d, before_too)
        by_layer[layer] = (
            likeness(a, b, visible, top) | subtraction(BranchPair(a, b, lam, added=added), visible) | moved
        )
    return by_layer


def _of_pairs(visible: Tensor, coupling: Coupling, pairs: int) -> Tensor:
    return visible[:, : 2 * pairs : 2] | visible[:, 1::2] if coupling == "pseudo" else visible


def rows_counted(maps: Branches) -> int:
    """How many rows of a map are long enough to be counted."""
    return int(_long(_visible(maps))[0, 0].sum())


# ------------------------------------------------------------------------------------------------- row by row
def likeness(a: Tensor, b: Tensor, visible: Tensor, top: int) -> dict[str, Tensor]:
    """How alike two maps are. a, b: (B, h, N, M) rows that sum to 1; visible: which weights a mask leaves -> (B, h) each"""
    length = visible.sum(-1)
    k = length.clamp(max=top)
    best = [m.masked_fill(~visible, -1).argsort(dim=-1, descending=True, stable=True).argsort(dim=-1) for m in (a, b)]
    common = ((best[0] < k[..., None]) & (best[1] < k[..., None])).sum(-1)
    middle = (a + b) / 2
    rows = {
        "pearson": _pearson(a, b, visible),
        "cosine": _ratio((a * b).sum(-1), a.norm(dim=-1) * b.norm(dim=-1)),
        "divergence": (_entropy(middle) - (_entropy(a) + _entropy(b)) / 2).clamp_min(0),
        "overlap": common / k.clamp_min(1),
        "chance": k / length.clamp_min(1),
    }
    return {name: _mean_of_rows(values.double(), visible) for name, values in rows.items()}


def subtraction(pair: BranchPair, visible: Tensor) -> dict[str, Tensor]:
    """What A1 - lambda A2 looks like, beside its parts: (B, h) each"""
    a, b, combined = pair.first, pair.second, pair.combined
    size = combined.abs()
    whole = size.sum(-1)
    rows = {
        "negative_share": ((combined < 0) & visible).sum(-1) / visible.sum(-1).clamp_min(1),
        "negative_mass": _ratio((-combined).clamp_min(0).sum(-1), whole),
        "entropy_first": _entropy(a),
        "entropy_second": _entropy(b),
        "entropy_combined": torch.where(whole > 0, _entropy(_ratio(size, whole[..., None])), torch.nan),
    }
    return {name: _mean_of_rows(values.double(), visible) for name, values in rows.items()}


def movement(da: Tensor, db: Tensor, visible: Tensor) -> dict[str, Tensor]:
    """Whether two maps move alike; NaN where one does not move: (B, h) each"""
    flat_a, flat_b = da.flatten(2), db.flatten(2)
    return {
        "change_pearson": _mean_of_rows(_pearson(da, db, visible), visible),
        "change_cosine": _ratio((flat_a * flat_b).sum(-1), flat_a.norm(dim=-1) * flat_b.norm(dim=-1)),
    }


def _pearson(a: Tensor, b: Tensor, visible: Tensor) -> Tensor:
    """(B, h, N); NaN where a row is uniform"""
    length = visible.sum(-1, keepdim=True).clamp_min(1)
    x, y = ((m - m.sum(-1, keepdim=True) / length).masked_fill(~visible, 0) for m in (a, b))
    varies = (x.norm(dim=-1) > FLAT * a.norm(dim=-1)) & (y.norm(dim=-1) > FLAT * b.norm(dim=-1))
    return torch.where(varies, _ratio((x * y).sum(-1), x.norm(dim=-1) * y.norm(dim=-1)), torch.nan)


def _entropy(p: Tensor) -> Tensor:
    """Of rows that sum to 1, in bits: (..., M) -> (...)"""
    return entropy(p) / math.log(2)


def _ratio(top: Tensor, bottom: Tensor) -> Tensor:
    return torch.where(bottom > 0, top / bottom, torch.nan)


def _visible(maps: Branches) -> Tensor:
    """Which weights a mask leaves: a map of equal scores is uniform over them. (B, h, N, M)"""
    heads = maps.heads
    equal = attention_maps(torch.zeros_like(heads.q), torch.zeros_like(heads.k), heads.mask, heads.is_causal) > 0
    return (equal if heads.lam is None else equal[:, :, 0]).cpu()


def _long(visible: Tensor) -> Tensor:
    """(B, h, N): the rows that are counted"""
    return visible.sum(-1) >= SHORTEST


def _mean_of_rows(values: Tensor, visible: Tensor) -> Tensor:
    """(B, h, N) -> (B, h), over the long rows for which there is a value"""
    return values.masked_fill(~_long(visible), torch.nan).nanmean(-1)


def joined(parts: list[dict[str, Tensor]]) -> dict[str, Array]:
    return {name: torch.cat([part[name] for part in parts]).numpy() for name in MEANING}


def _over_heads(values: Array) -> Array:
    """(n, h) -> (n,), over the heads for which there is a value"""
    known = np.isfinite(values)
    return over(np.where(known, values, 0).sum(axis=1), known.sum(axis=1))
