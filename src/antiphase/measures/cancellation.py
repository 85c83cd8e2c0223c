"""How much of a perturbation the subtraction A1 - lambda A2 takes away (M2.4), from finite changes (reading R3).

Levels: "maps", dA_b = A_b(x + xi) - A_b(x) for the two maps of a head; "values", the change of A_b V, that of V included, which
both share and which alone gives cos > 0; "held", the same with V as it was on the clean image.

||d1||^2, ||d2||^2, <d1, d2> and lambda are kept per image and head; every other number follows from them. n images, h heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console
from antiphase.config import InputError
from antiphase.console import Clock
from antiphase.data.imageset import ImageSet
from antiphase.measures.branch_pairs import WANTS, Alignment, Coupling, couple
from antiphase.measures.jacobians_forward import PAPER_EPS, gram
from antiphase.measures.perturbations import Perturbed, check_names, perturbed, size_of
from antiphase.measures.stats import finite, log_of, mean_interval, over, rate, spearman
from antiphase.models.attention import Branches
from antiphase.models.taps import Record, check_finite, look
from antiphase.runtime import at_rest

Array = np.ndarray[Any, np.dtype[np.float64]]
Level = Literal["maps", "values", "held"]
Pair = tuple[Tensor, Tensor, float]  # first, second: (B, h, ...) each, and lambda
Pairs = dict[tuple[Level, str], Pair]  # (level, layer) -> what is held against each other
CHEAPER = "noise and fgsm without pgd and scrambled"
REMEDY = {
    "branches": ': coupling="pseudo" holds pairs of its heads against each other',
    "shuffled": ': coupling="branches" needs one head only',
    "pseudo": ': coupling="branches" is for differential layers',
}


def alpha_tri(combined: Array, n1: Array, n2: Array, lam: float) -> Array:
    """||d1 - lambda d2|| / (||d1|| + |lambda| ||d2||), from squared norms: 0 where all is cancelled, at most 1   (M2.4)"""
    return over(np.sqrt(combined), np.sqrt(n1) + abs(lam) * np.sqrt(n2))


@dataclass(frozen=True)
class Cancellation:
    """One layer under one perturbation."""

    layer: str
    perturbation: str
    eps: float | None  # None for corruptions, which have a size of their own
    level: Level
    coupling: Coupling
    lam: float
    n1: Array  # (n, h) ||d1||^2
    n2: Array  # (n, h) ||d2||^2
    ip: Array  # (n, h) <d1, d2>
    l2: Array  # (n,) of the perturbation, as it was reached
    linf: Array  # (n,)

    @property
    def alignment(self) -> Alignment:
        """The same numbers as what alignment says of a direction: cos, rho, kappa, who is alive."""
        return Alignment(self.layer, self.lam, self.n1[..., None], self.n2[..., None], self.ip[..., None])

    @property
    def alive(self) -> NDArray[np.bool_]:
        """(n, h): both branches moved"""
        return self.alignment.alive

    @property
    def cos(self) -> Array:
        """(n, h)"""
        return self.alignment.cos

    @property
    def combined(self) -> Array:
        """(n, h): ||d1 - lambda d2||^2, what is left"""
        left: Array = np.maximum(self.n1 + self.lam**2 * self.n2 - 2 * self.lam * self.ip, 0)
        return left

    @property
    def alpha(self) -> Array:
        """(n, h): alpha_tri = ||d1 - lambda d2|| / (||d1|| + |lambda| ||d2||) in [0,1]; NaN where nothing moved"""
        return alpha_tri(self.combined, self.n1, self.n2, self.lam)

    @property
    def reference(self) -> Array:
        """(n, h): alpha_tri of orthogonal changes, sqrt(1 + kappa^2) / (1 + kappa): only less than that is cancellation"""
        return alpha_tri(self.n1 + self.lam**2 * self.n2, self.n1, self.n2, self.lam)

    @property
    def residue(self) -> Array:
        """(n, h): 1 / CMRR in [0,2]; 0 is complete cancellation, 1 none, above it the subtraction amplifies"""
        return over(self.combined, self.n1 + self.lam**2 * self.n2)

    @property
    def cmrr(self) -> Array:
        """(n, h): (||d1||^2 + lambda^2 ||d2||^2) / ||d1 - lambda d2||^2; infinite where everything cancels"""
        return _inverse(self.residue)

    @property
    def pooled_cmrr(self) -> Array:
        """(n,): the same with all heads of the layer as one map"""
        return _inverse(over(self.combined.sum(1), (self.n1 + self.lam**2 * self.n2).sum(1)))

    @property
    def image_cos(self) -> Array:
        """(n,): mean over the heads that are alive"""
        return over(np.where(self.alive, self.cos, 0).sum(1), self.alive.sum(1).astype(np.float64))

    def summary(self) -> dict[str, Any]:
        """Means over (image, head) pairs whose branches both moved, rates clustered by image; infinite CMRR are counted."""
        alive = self.alive
        tables = {"alpha": self.alpha, "reference": self.reference, "residue": self.residue, "cos": self.cos}
        cmrr = self.cmrr[alive]
        return {
            "layer": self.layer,
            "perturbation": self.perturbation,
            "eps": self.eps,
            "level": self.level,
            "coupling": self.coupling,
            "lambda": self.lam,
            **{name: float(table[alive].mean()) if alive.any() else None for name, table in tables.items()},
            "cmrr_median": finite(np.median(cmrr)) if len(cmrr) else None,
            "cmrr_infinite": int(np.isinf(cmrr).sum()),
            "image_cos": mean_interval(self.image_cos),
            "image_log_cmrr": mean_interval(log_of(self.pooled_cmrr)),
            "cancels": rate(self.residue < 1, where=alive).plain(),
            "positive": rate(self.cos > 0, where=alive).plain(),
            "alpha_cos": spearman(self.alpha[alive], self.cos[alive]),
            "l2": float(self.l2.mean()),
            "linf": float(self.linf.max()),
            "dead": int((~alive).sum()),
            "images": self.n1.shape[0],
            "heads": self.n1.shape[1],
        }

    def rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        """One row an image and head, raw numbers first; an infinite CMRR is a residue of 0."""
        names = ("n1", "n2", "ip", "alpha", "reference", "residue", "cmrr", "cos")
        tables = {name: getattr(self, name) for name in names}
        about = {name: getattr(self, name) for name in ("layer", "perturbation", "eps", "level", "coupling")}
        return [
            about
            | {"lambda": self.lam}
            | {"head": h, "image": int(image), "l2": float(self.l2[i]), "linf": float(self.linf[i])}
            | {name: finite(table[i, h]) for name, table in tables.items()}
            for i, image in enumerate(ids)
            for h in range(self.n1.shape[1])
        ]


def cancellation(
    classifier: nn.Module,
    images: ImageSet,
    *,
    perturbations: tuple[str, ...] = ("sign", "fgsm", "pgd"),
    eps: float = PAPER_EPS,
    coupling: Coupling = "branches",
    levels: tuple[Level, ...] = ("maps", "values", "held"),
    clip: bool = True,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> list[Cancellation]:
    """Every layer that has such pairs, at every level, under every perturbation of `perturbations.py`."""
    check_names(perturbations)
    parts: dict[tuple[str, Level, str], list[Array]] = {}
    sizes: dict[str, list[Perturbed]] = {name: [] for name in perturbations}
    lam: dict[str, float] = {}
    clock = Clock("cancellation", images, CHEAPER)
    with at_rest(classifier), console.progress("cancellation", total=len(images) * len(perturbations)) as advance:
        for raw in images.batches(batch_size):
            with clock.part(len(raw.ids)):
                batch = raw.to(device)
                clean = finite_look(classifier, batch.pixels)
                before = pairs(clean, clean, coupling, levels)
                if not before:
                    raise InputError(f"cancellation needs {WANTS[coupling]}{REMEDY[coupling]}")
                for name in perturbations:
                    moved = perturbed(classifier, batch, name, eps, seed, clip=clip)
                    sizes[name].append(moved)
                    for key, pair in pairs(finite_look(classifier, moved.pixels), clean, coupling, levels).items():
                        parts.setdefault((name, *key), []).append(_moments(before[key], pair))
                        lam[key[1]] = pair[2]
                    advance(len(batch.ids), name)
    return [
        Cancellation(
            layer,
            name,
            size_of(name, eps),
            level,
            coupling,
            lam[layer],
            *np.concatenate(parts[name, level, layer]).transpose(2, 0, 1),
            *(np.concatenate([getattr(p, norm) for p in sizes[name]]) for norm in ("l2", "linf")),
        )
        for name, level, layer in parts
    ]


def _moments(before: Pair, after: Pair) -> Array:
    """||d1||^2, ||d2||^2, <d1, d2> of the changes: (B, h, 3)"""
    d1, d2 = (now.cpu().double() - was.cpu().double() for now, was in zip(after[:2], before[:2]))
    products = gram((d1, d2)).numpy()
    return np.stack([products[..., 0, 0], products[..., 1, 1], products[..., 0, 1]], axis=-1)


def finite_look(classifier: nn.Module, pixels: Tensor) -> Record:
    """The attention layers on these pixels, refused by name where a map is not a number."""
    record = look(classifier, pixels)
    for layer, maps in record.items():
        check_finite(maps.combined, layer)
    return record


def pairs(record: Record, clean: Record, coupling: Coupling, levels: tuple[Level, ...]) -> Pairs:
    """The two maps of each pair, and the two mixtures they make of the values here or of those of the clean images."""
    found: Pairs = {}
    for layer, (first, second, lam) in couple(record, coupling).items():
        for level in levels:
            if level == "maps":
                found[level, layer] = first, second, lam
            else:
                v = _shared(record[layer] if level == "values" else clean[layer], coupling)
                found[level, layer] = first @ v, second @ v, lam
    return found


def _shared(maps: Branches, coupling: Coupling) -> Tensor:
    """V of each pair. Pseudo-branches share those of both their heads side by side, as in the differential twin."""
    v = maps.values
    return torch.cat([v[:, 0 : v.shape[1] - 1 : 2], v[:, 1::2]], dim=-1) if coupling == "pseudo" else v


def over_layers(found: list[Cancellation]) -> list[dict[str, Any]]:
    """Do layers with a larger lambda cancel more? Spearman over the layers of a model, for each perturbation and level;
    None where it has fewer than 3 of them. The paper says that a larger lambda goes with a smaller alpha."""
    kinds = dict.fromkeys((c.perturbation, c.eps, c.level, c.coupling) for c in found)
    rows = []
    for kind in kinds:
        layers = [c.summary() for c in found if (c.perturbation, c.eps, c.level, c.coupling) == kind]
        lam, alpha, cos = (np.array([s[k] for s in layers], dtype=np.float64) for k in ("lambda", "alpha", "cos"))
        rows.append(
            dict(zip(("perturbation", "eps", "level", "coupling"), kind))
            | {"layers": len(layers), "lambda_alpha": spearman(lam, alpha), "cos_alpha": spearman(cos, alpha)}
        )
    return rows


def _inverse(residue: Array) -> Array:
    inverse: Array = np.divide(1, residue, out=np.where(residue == 0, np.inf, np.nan), where=residue > 0)
    return inverse
