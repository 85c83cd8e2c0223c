"""How much of a perturbation the subtraction A1 - lambda A2 takes away, from finite changes (docs/method.md 2.4; reading R3).

Changes of three things: "maps", dA_b = A_b(x + xi) - A_b(x) for the two maps of a head; "values", the change of A_b V, that of V
included, which both share and which alone gives cos > 0; "held", the same with V as it was on the clean image.

||d1||^2, ||d2||^2, <d1, d2> and lambda are kept per image and head; every other number follows from them. Lambda is that of the
clean image; where it differs between tokens it is multiplied into the second map and counts as 1. Where it depends on the
input, its own change is a third term, d3 = A2(x + xi) times the change of lambda, and so is the change of DINT's mean: what is
left is d1 - lambda d2 - d3 exactly. n images, h heads.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from antiphase.measures.branch_pairs import (
    NEEDED,
    REMEDY,
    Alignment,
    BranchPair,
    Coupling,
    ThirdTerm,
    alpha_tri,
    changes,
    combined_energy,
    couple,
    finite_look,
    gram,
    separate_energy,
    third_energy,
    third_of,
    weight_of,
)
from antiphase.measures.jacobians_forward import PAPER_EPS
from antiphase.measures.perturbations import Perturbed, check_names, displaced, eps_of, perturbed
from antiphase.measures.stats import Array, finite, log_of, mean_finite, mean_interval, over, spearman
from antiphase.models.attention import Branches
from antiphase.models.taps import Record, gated_layers
from antiphase.rates import rate
from antiphase.runtime import at_rest

Quantity = Literal["maps", "values", "held"]  # `level` in rows and stored results
CHEAPER = "noise and fgsm without pgd and scrambled"


@dataclass(frozen=True)
class Cancellation:
    """One layer under one perturbation."""

    layer: str
    perturbation: str
    eps: float | None  # None for corruptions, which have a size of their own
    quantity: Quantity
    coupling: Coupling
    lam: Array | float  # broadcasts to (n, h)
    n1: Array  # (n, h) ||d1||^2
    n2: Array  # (n, h) ||d2||^2
    ip: Array  # (n, h) <d1, d2>
    l2: Array  # (n,) of the perturbation, as it was reached
    linf: Array  # (n,)
    third: ThirdTerm | None = None  # d3, of (n, h, 1)
    mean_lambda: Array | None = None  # broadcasts to (n, h): over the tokens, where lambda differs between them

    @property
    def alignment(self) -> Alignment:
        """The same numbers as what alignment says of a direction: cos, rho, kappa, and where both branches moved."""
        three = self.n1[..., None], self.n2[..., None], self.ip[..., None]
        return Alignment(self.layer, self.lam, *three, self.third, self.mean_lambda)

    @property
    def n3(self) -> Array | None:
        """(n, h): ||d3||^2"""
        return None if self.third is None else self.third.means[0]

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
        """(n, h): ||d1 - lambda d2||^2, what is left; with a third term ||d1 - lambda d2 - d3||^2"""
        more = 0.0 if self.third is None else third_energy(*self.third.means, self.lam)
        left: Array = np.maximum(combined_energy(self.n1, self.n2, self.ip, self.lam) + more, 0)
        return left

    @property
    def separate(self) -> Array:
        """(n, h): ||d1||^2 + lambda^2 ||d2||^2 (+ ||d3||^2), what would be left of orthogonal changes"""
        energy: Array = separate_energy(self.n1, self.n2, self.lam)
        return energy if self.n3 is None else energy + self.n3

    @property
    def alpha(self) -> Array:
        """(n, h): alpha_tri = ||d1 - lambda d2|| / (||d1|| + |lambda| ||d2||) in [0,1]; NaN where nothing moved"""
        return alpha_tri(self.combined, self.n1, self.n2, self.lam, self.n3)

    @property
    def reference(self) -> Array:
        """(n, h): alpha_tri of orthogonal changes, sqrt(1 + kappa^2) / (1 + kappa): only less than that is cancellation"""
        return alpha_tri(self.separate, self.n1, self.n2, self.lam, self.n3)

    @property
    def residue(self) -> Array:
        """(n, h): 1 / CMRR in [0,2] (with a third term [0,3]); 0 is complete cancellation, 1 none, above it the subtraction
        amplifies"""
        return over(self.combined, self.separate)

    @property
    def cmrr(self) -> Array:
        """(n, h): (||d1||^2 + lambda^2 ||d2||^2) / ||d1 - lambda d2||^2; infinite where everything cancels"""
        return _inverse(self.residue)

    @property
    def pooled_cmrr(self) -> Array:
        """(n,): the same with all heads of the layer as one map"""
        return _inverse(over(self.combined.sum(1), self.separate.sum(1)))

    @property
    def image_cos(self) -> Array:
        """(n,): mean over the heads that are alive"""
        return over(np.where(self.alive, self.cos, 0).sum(1), self.alive.sum(1).astype(np.float64))

    @property
    def third_share(self) -> Array:
        """(n, h): ||d3||^2 over the sum of the energies, in [0,1]; 0 without a third term"""
        return self.alignment.third_share

    def summary(self) -> dict[str, Any]:
        """Means over (image, head) pairs whose branches both moved, rates clustered by image; infinite CMRR are counted."""
        alive = self.alive
        tables = {"alpha": self.alpha, "reference": self.reference, "residue": self.residue, "cos": self.cos}
        cmrr = self.cmrr[alive]
        return {
            "layer": self.layer,
            "perturbation": self.perturbation,
            "eps": self.eps,
            "level": self.quantity,
            "coupling": self.coupling,
            "lambda": float(np.mean(self.lam if self.mean_lambda is None else self.mean_lambda)),
            **{name: mean_finite(table[alive]) for name, table in tables.items()},
            **({} if self.third is None else {f"{self.third.name}_share": mean_finite(self.third_share[alive])}),
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
        """One row per image and head, raw numbers first; an infinite CMRR is a residue of 0."""
        names = ("n1", "n2", "ip", "alpha", "reference", "residue", "cmrr", "cos")
        tables = {name: getattr(self, name) for name in names}
        if self.third is not None:
            tables |= dict(zip(("n3", "ip13", "ip23"), self.third.means))
            tables[f"{self.third.name}_share"] = self.third_share
        if self.mean_lambda is not None:
            tables["mean_lambda"] = np.broadcast_to(self.mean_lambda, self.n1.shape)
        about = {"layer": self.layer, "perturbation": self.perturbation, "eps": self.eps}
        about |= {"level": self.quantity, "coupling": self.coupling}
        lam = np.broadcast_to(self.lam, self.n1.shape)
        return [
            about
            | {"lambda": float(lam[i, h])}
            | {"head": h, "image": int(image), "l2": float(self.l2[i]), "linf": float(self.linf[i])}
            | {name: finite(table[i, h]) for name, table in tables.items()}
            for i, image in enumerate(ids)
            for h in range(self.n1.shape[1])
        ]


def cancellation(
    classifier: nn.Module,
    images: ImageSet,
    *,
    perturbations: tuple[str, ...] | Mapping[str, ImageSet] = ("sign", "fgsm", "pgd"),
    eps: float = PAPER_EPS,
    coupling: Coupling = "branches",
    quantities: tuple[Quantity, ...] = ("maps", "values", "held"),
    clip: bool = True,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> list[Cancellation]:
    """Every layer that has such pairs, for every quantity, under every perturbation of `perturbations.py`; or, under names of
    your own, from these images to the same images (by id) with other pixels."""
    given = perturbations if isinstance(perturbations, Mapping) else {}
    if not given:
        check_names(tuple(perturbations))
    parts: dict[tuple[str, Quantity, str], list[Array]] = {}
    sizes: dict[str, list[Perturbed]] = {name: [] for name in perturbations}
    lam: dict[str, list[tuple[BranchPair, int]]] = {}
    gated: frozenset[str] | None = None  # found out on the first image
    clock = Clock("cancellation", images, CHEAPER)
    with at_rest(classifier), console.progress("cancellation", total=len(images) * len(perturbations)) as advance:
        for raw in images.batches(batch_size):
            with clock.part(len(raw.ids)):
                batch = raw.to(device)
                clean = finite_look(classifier, batch.pixels)
                gated = gated_layers(classifier, batch.pixels[:1]) if gated is None else gated
                before = compared(clean, clean, coupling, quantities, gated)
                if not before:
                    raise InputError(f"cancellation needs {NEEDED[coupling]}{REMEDY[coupling]}")
                for layer, pair in couple(clean, coupling).items():
                    lam.setdefault(layer, []).append((pair, len(batch.ids)))
                for name in perturbations:
                    moved = (
                        displaced(batch, given[name].source.read(batch.ids).to(device))
                        if name in given
                        else perturbed(classifier, batch, name, eps, seed, clip=clip)
                    )
                    sizes[name].append(moved)
                    after = compared(finite_look(classifier, moved.pixels), clean, coupling, quantities, gated)
                    for key, mixtures in after.items():
                        parts.setdefault((name, *key), []).append(_moments(before[key], mixtures))
                    advance(len(batch.ids), name)
    weights = {layer: weight_of(pairs, layer in (gated or ())) for layer, pairs in lam.items()}
    measured = []
    for (name, quantity, layer), batches in parts.items():
        products, weight = np.concatenate(batches), weights[layer]
        three = products[..., 0, 0], products[..., 1, 1], products[..., 0, 1]
        l2, linf = (np.concatenate([getattr(p, norm) for p in sizes[name]]) for norm in ("l2", "linf"))
        third = third_of(products[:, :, None], weight.gated)
        about = layer, name, None if name in given else eps_of(name, eps), quantity, coupling, weight.lam
        measured.append(Cancellation(*about, *three, l2, linf, third, weight.mean))
    return measured


def compared(
    record: Record,
    clean: Record,
    coupling: Coupling,
    quantities: tuple[Quantity, ...],
    gated: frozenset[str] = frozenset(),
) -> dict[tuple[Quantity, str], BranchPair]:
    """The pairs of maps, and the pairs of mixtures they make of the values here or of those of the clean images."""
    pairs: dict[tuple[Quantity, str], BranchPair] = {}
    for layer, pair in couple(record, coupling, gated).items():
        for quantity in quantities:
            if quantity == "maps":
                pairs[quantity, layer] = pair
            else:
                v = _shared_values(record[layer] if quantity == "values" else clean[layer], coupling)
                added = None if pair.added is None else pair.added @ v
                pairs[quantity, layer] = pair._replace(first=pair.first @ v, second=pair.second @ v, added=added)
    return pairs


def _shared_values(maps: Branches, coupling: Coupling) -> Tensor:
    """V of each pair. Pseudo-branches share those of both their heads side by side, as in the differential twin."""
    v = maps.values
    return torch.cat([v[:, 0 : v.shape[1] - 1 : 2], v[:, 1::2]], dim=-1) if coupling == "pseudo" else v


def _moments(before: BranchPair, after: BranchPair) -> Array:
    """Inner products of the changes: (B, h, T, T)"""
    products: Array = gram(changes(_double(before), _double(after))).numpy()
    return products


def _double(pair: BranchPair) -> BranchPair:
    first, second, lam = (t.cpu().double() for t in pair[:3])
    return BranchPair(first, second, lam, pair.gated, None if pair.added is None else pair.added.cpu().double())


def over_layers(measured: list[Cancellation]) -> list[dict[str, Any]]:
    """Do layers with a larger lambda cancel more? Spearman over the layers of a model, for each perturbation and quantity;
    None where it has fewer than 3 of them. The paper says that a larger lambda goes with a smaller alpha."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for c in measured:
        groups.setdefault((c.perturbation, c.eps, c.quantity, c.coupling), []).append(c.summary())
    rows = []
    for kind, layers in groups.items():
        lam, alpha, cos = (np.array([s[k] for s in layers], dtype=np.float64) for k in ("lambda", "alpha", "cos"))
        rows.append(
            dict(zip(("perturbation", "eps", "level", "coupling"), kind))
            | {"layers": len(layers), "lambda_alpha": spearman(lam, alpha), "cos_alpha": spearman(cos, alpha)}
        )
    return rows


def _inverse(residue: Array) -> Array:
    inverse: Array = np.divide(1, residue, out=np.where(residue == 0, np.inf, np.nan), where=residue > 0)
    return inverse
