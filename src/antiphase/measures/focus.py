"""Does attention look at the object? The share of its weight that lies on the object's box, and how spread out it is.

Only the patches count: the class token's own weight lies nowhere in the image, so a map that looks everywhere alike has as its
share the box's share of the image. Weights below 0, which A1 - lambda A2 has, are left out of the share and of the entropy (both
are of the positive part, divided by its sum); `signed` is the share with them, and `negative` says how many there are. A patch
that a box covers in part counts in part. Two readings: the row of the class token, from which the model classifies, and the
mean over all rows. n images, B of a batch, h heads, N tokens, P = g x g patches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console
from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.measures.branch_pairs import finite_look
from antiphase.measures.jacobians_reverse import entropy
from antiphase.measures.perturbations import check_names, perturbed
from antiphase.measures.stats import Array, finite, mean_interval, over
from antiphase.models.attention import Branches
from antiphase.rates import rate
from antiphase.runtime import at_rest

FINE = 8  # parts of a patch's side in which the union of several boxes is counted
MEANING = {
    "mass": "share of the positive weight that lies on the object, of the class token's row over the patches",
    "signed": "the same share with negative weights counted as such; it may leave [0, 1]",
    "entropy": "entropy of the positive weights of that row, divided by their sum, bits; even over all patches it is log2 of "
    "their number",
    "negative": "size of the negative weights of that row, as a share of the size of all",
    "mass_rows": "as mass, mean over all rows",
    "entropy_rows": "as entropy, mean over all rows",
}


@dataclass(frozen=True)
class Focus:
    """One map of one layer, on clean images (`perturbation` "clean") or under one perturbation."""

    layer: str
    map: str  # A1, A2, A1 - lambda A2; A of a softmax layer
    perturbation: str
    statistics: dict[str, Array]  # name of MEANING -> (n, h); NaN where it does not exist
    area: Array  # (n,) share of the image that the object's boxes cover: the mass of a map that looks everywhere alike
    changed: NDArray[np.bool_]  # (n,) the prediction is another one than on the clean image
    l2: Array  # (n,) distance from the clean image

    def summary(self) -> dict[str, Any]:
        """Mean over the heads of each image, then over images with a 95 % interval."""
        return {
            "layer": self.layer,
            "map": self.map,
            "perturbation": self.perturbation,
            "images": len(self.area),
            "l2": float(self.l2.mean()),
            "changed": rate(self.changed).plain(),
            "area": mean_interval(np.where(self.area > 0, self.area, np.nan)),
            **{name: mean_interval(_over_heads(values)) for name, values in self.statistics.items()},
        }

    def rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        """One row per image and head."""
        about = {"layer": self.layer, "map": self.map, "perturbation": self.perturbation}
        heads = self.statistics["mass"].shape[1]
        return [
            about
            | {"head": h, "image": int(image), "area": float(self.area[i]), "changed": bool(self.changed[i])}
            | {name: finite(values[i, h]) for name, values in self.statistics.items()}
            for i, image in enumerate(ids)
            for h in range(heads)
        ]


def focus(
    classifier: nn.Module,
    images: ImageSet,
    *,
    perturbations: tuple[str, ...] = ("scrambled", "pgd"),
    eps: float = 8 / 255,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> list[Focus]:
    """Every map of every layer on clean images and under every perturbation, all of them of size `eps`."""
    if images.boxes is None:
        raise InputError(
            f"focus needs boxes around the objects, and {images.name} has none: use tiles, tiles-digits or coco"
        )
    check_names(perturbations)
    names = ("clean", *perturbations)
    parts: dict[tuple[str, str, str], list[dict[str, Tensor]]] = {}
    l2: dict[str, list[Array]] = {name: [] for name in names}
    changed: dict[str, list[NDArray[np.bool_]]] = {name: [] for name in names}
    area, start = [], 0
    with at_rest(classifier), console.progress("focus", total=len(images) * len(names)) as advance:
        for raw in images.batches(batch_size):
            batch, boxes = raw.to(device), images.boxes[start : start + len(raw.ids)]
            start += len(raw.ids)
            before = classifier(batch.pixels).argmax(dim=1)
            covered: dict[int, Tensor] = {}  # side of the grid of patches -> (B, P)
            for name in names:
                pixels, distance = batch.pixels, np.zeros(len(batch.ids))
                if name != "clean":
                    moved = perturbed(classifier, batch, name, eps, seed)
                    pixels, distance = moved.pixels, moved.l2
                for layer, maps in finite_look(classifier, pixels).items():
                    side = patches_per_side(maps.signal.shape[-1], layer)
                    if side not in covered:
                        covered[side] = torch.stack([coverage(each, side) for each in boxes])
                    for which, weights in maps_of(maps).items():
                        found = statistics_of(weights.cpu().double(), covered[side])
                        parts.setdefault((layer, which, name), []).append(found)
                l2[name].append(distance)
                changed[name].append((classifier(pixels).argmax(dim=1) != before).cpu().numpy())
                advance(len(batch.ids), name)
            area.append(next(iter(covered.values())).mean(dim=1).numpy())
    return [
        Focus(
            layer,
            which,
            name,
            {key: torch.cat([part[key] for part in each]).numpy() for key in MEANING},
            np.concatenate(area),
            np.concatenate(changed[name]),
            np.concatenate(l2[name]),
        )
        for (layer, which, name), each in parts.items()
    ]


def maps_of(maps: Branches) -> dict[str, Tensor]:
    """The maps of a layer by name: (B, h, N, N) each"""
    if maps.noise is None:
        return {"A": maps.signal}
    return {"A1": maps.signal, "A2": maps.noise, "A1 - lambda A2": maps.combined}


def patches_per_side(tokens: int, layer: str) -> int:
    """g of a class token and g x g patches; refused where the tokens are something else."""
    side = math.isqrt(tokens - 1)
    if side < 1 or side * side != tokens - 1:
        raise InputError(
            f"focus reads a class token and a square of patches, and {layer} has {tokens} tokens: it is no such layer"
        )
    return side


def coverage(boxes: Sequence[Any] | NDArray[np.float64], side: int) -> Tensor:
    """(P,): the share of each of side x side patches that the boxes (top, left, bottom, right) cover together"""
    fine = side * FINE
    edges = np.arange(fine + 1) / fine
    whole = np.zeros((fine, fine))
    for top, left, bottom, right in boxes:
        down, across = (_overlap(edges, *ends) for ends in ((top, bottom), (left, right)))
        whole = np.maximum(whole, down[:, None] * across[None])
    return torch.from_numpy(whole.reshape(side, FINE, side, FINE).mean(axis=(1, 3)).reshape(-1))


def _overlap(edges: Array, low: float, high: float) -> Array:
    """The share of each interval between two edges that lies between low and high."""
    within: Array = np.clip(np.minimum(edges[1:], high) - np.maximum(edges[:-1], low), 0, None) / (edges[1] - edges[0])
    return within


def statistics_of(weights: Tensor, covered: Tensor) -> dict[str, Tensor]:
    """name of MEANING -> (B, h), from maps (B, h, N, N) whose first token is the class token, and the boxes' patches (B, P)"""
    patches, on = weights[..., 1:], covered[:, None, None].to(weights.dtype)  # (B, h, N, P), (B, 1, 1, P)
    positive, size = patches.clamp_min(0), patches.abs().sum(-1)
    whole, total = positive.sum(-1), patches.sum(-1)
    known = (covered.sum(-1) > 0)[:, None, None].expand_as(whole)  # the box lies in the image
    mass = torch.where(known, _ratio((positive * on).sum(-1), whole), torch.nan)
    spread = torch.where(whole > 0, entropy(_ratio(positive, whole[..., None])) / math.log(2), torch.nan)
    rows = {
        "signed": torch.where(known, _ratio((patches * on).sum(-1), total), torch.nan),
        "negative": _ratio((-patches).clamp_min(0).sum(-1), size),
    }
    return {
        "mass": mass[..., 0],
        "signed": rows["signed"][..., 0],
        "entropy": spread[..., 0],
        "negative": rows["negative"][..., 0],
        "mass_rows": mass.nanmean(-1),
        "entropy_rows": spread.nanmean(-1),
    }


def _ratio(top: Tensor, bottom: Tensor) -> Tensor:
    return torch.where(bottom != 0, top / bottom, torch.nan)


def _over_heads(values: Array) -> Array:
    """(n, h) -> (n,), over the heads for which there is a value"""
    known = np.isfinite(values)
    return over(np.where(known, values, 0).sum(axis=1), known.sum(axis=1))
