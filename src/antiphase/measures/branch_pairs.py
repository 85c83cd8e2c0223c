"""Which two maps are held against each other, and what follows from ||J1||^2, ||J2||^2, <J1, J2> and lambda.

The first half finds the pairs: a layer's own branches, or a control that must accompany them (docs/method.md 2.2). The second
half is the algebra of Lemma 1 and Theorem 1, the same for Jacobians, for one direction and for finite changes. How the three
numbers are estimated stands in `jacobians_*`, `alignment` and `cancellation`.

Lambda broadcasts to (B, h, N, 1). One lambda per image and head can be taken out of a norm; where it differs between tokens it
is multiplied into the second map first and counts as 1 (`BranchPair.weighted`), or the measure refuses the layer.

The three numbers are kept per image and head, one for each probe that estimated them; nothing is reduced to a cosine before
it is written down. B images of a batch, n of all, h heads, N tokens, M tokens that are looked at, K probes (NaN where an image
needed fewer; K = 1 where the numbers are exact), T maps that are looked at together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.measures.perturbations import points
from antiphase.measures.stats import Array, Rate, decided, finite, mean_finite, over, rate
from antiphase.models.attention import Branches
from antiphase.models.taps import Record, check_finite, look
from antiphase.runtime import at_rest

# branches: A1 and A2 of each head. shuffled: A1 of a head and A2 of the next. pseudo: heads 2i and 2i+1 of a softmax layer
Coupling = Literal["branches", "shuffled", "pseudo"]
PSEUDO_LAMBDA = 0.8  # what a softmax layer's pairs are weighed with: the usual lambda_init
NEEDED = {
    "branches": "two branches, and no layer of this model has them (it is all softmax)",
    "shuffled": "a layer with two branches and at least two heads, and this model has none",
    "pseudo": "a softmax layer with at least two heads, and this model has none",
}
REMEDY = {
    "branches": ': coupling="pseudo" holds pairs of its heads against each other',
    "shuffled": ': coupling="branches" needs one head only',
    "pseudo": ': coupling="branches" is for differential layers',
}
DEAD = 1e-8  # a squared norm this far below the median is no reaction: 1e-4 of the typical norm


# ------------------------------------------------------------------------------------------------- the pairs
class BranchPair(NamedTuple):
    """Two maps of a layer, or what became of them, and the lambda with which the second is subtracted from the first."""

    first: Tensor  # (B, h, N, M)
    second: Tensor  # (B, h, N, M)
    lam: Tensor  # broadcasts to (B, h, N, 1)

    @property
    def combined(self) -> Tensor:
        """first - lambda second"""
        return self.first - self.lam.to(self.second.dtype) * self.second

    @property
    def weighted(self) -> BranchPair:
        """The same difference with one lambda per image and head: as it is, or with lambda multiplied into the second map."""
        if self.lam.shape[2] == 1:
            return self
        return BranchPair(
            self.first, self.lam.to(self.second.dtype) * self.second, torch.ones_like(self.lam[:1, :1, :1])
        )

    def needs_one_lambda_per_head(self, measure: str, layer: str) -> None:
        """Refuse a layer whose lambda differs between tokens, for measures that cannot multiply it into the map."""
        if self.lam.shape[2] != 1:
            raise InputError(
                f"{measure} needs one lambda per head, and that of {layer} differs between tokens: use R1 or R3"
            )


def couple(record: Record, coupling: Coupling) -> dict[str, BranchPair]:
    """The pairs of every layer that has them, by the layer's name."""
    if coupling not in get_args(Coupling):
        raise InputError(f"coupling {coupling!r} is not known: it takes {', '.join(get_args(Coupling))}")
    pairs = {layer: _pair(maps, coupling) for layer, maps in record.items()}
    return {layer: pair for layer, pair in pairs.items() if pair is not None}


def _pair(maps: Branches, coupling: Coupling) -> BranchPair | None:
    heads = maps.signal.shape[1]
    if coupling == "pseudo":
        if maps.noise is not None or heads < 2:
            return None
        lam = torch.full((1, 1, 1, 1), PSEUDO_LAMBDA, dtype=torch.float64, device=maps.signal.device)
        return BranchPair(maps.signal[:, 0 : heads - 1 : 2], maps.signal[:, 1::2], lam)
    if maps.noise is None or (coupling == "shuffled" and heads < 2):
        return None
    if coupling == "branches":
        return BranchPair(maps.signal, maps.noise, maps.lam)
    return BranchPair(maps.signal, *(t.roll(1, dims=1) for t in (maps.noise, maps.lam)))  # lambda goes with its map


def weighted_maps(record: Record, coupling: Coupling) -> dict[str, tuple[Tensor, ...]]:
    """The two maps of every pair, ready for inner products: lambda that differs between tokens is in the second."""
    return {layer: pair.weighted[:2] for layer, pair in couple(record, coupling).items()}


def finite_look(classifier: nn.Module, pixels: Tensor) -> Record:
    """The attention layers on these pixels, refused by name where a map is not a number."""
    record = look(classifier, pixels)
    for layer, maps in record.items():
        check_finite(maps.combined, layer)
    return record


def lambdas_of(
    classifier: nn.Module,
    images: ImageSet,
    coupling: Coupling,
    *,
    around: float = 0.0,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> dict[str, Array]:
    """Lambda of the weighted pairs of every layer that has some, broadcasting to (n, h); a model without any is refused.

    Two images show whether lambda depends on the image; only then are all of them looked at, at the points near them.
    """
    with at_rest(classifier):
        two = images.batch(np.arange(min(2, len(images))))
        pairs = couple(look(classifier, points(two, around, seed).to(device)), coupling)
        if not pairs:
            raise InputError(f"alignment needs {NEEDED[coupling]}")
        parts = {layer: [(pair.weighted.lam, len(two.ids))] for layer, pair in pairs.items()}
        if any(len(lam) > 1 for ((lam, _),) in parts.values()):
            parts = {layer: [] for layer in parts}
            for batch in images.batches(batch_size):
                for layer, pair in couple(look(classifier, points(batch, around, seed).to(device)), coupling).items():
                    parts[layer].append((pair.weighted.lam, len(batch.ids)))
    return {layer: lambda_table(part) for layer, part in parts.items()}


def lambda_table(parts: Sequence[tuple[Tensor, int]]) -> Array:
    """Lambda of one layer in all batches, mean over tokens, from tensors and sizes of the batches. It broadcasts to (n, h):
    (1, 1) or (1, h) where no image has one of its own, else (n, 1) or (n, h)."""
    means = [lam.detach().cpu().double().mean(dim=(2, 3)) for lam, _ in parts]
    if not all(len(mean) == 1 and torch.equal(mean, means[0]) for mean in means):
        means = [torch.cat([mean.expand(size, -1) for mean, (_, size) in zip(means, parts)])]
    table: Array = means[0].numpy()
    return table


# ------------------------------------------------------------------------------------------------- Lemma 1, Theorem 1
def gram(maps: Sequence[Tensor]) -> Tensor:
    """Inner products of T maps, head by head: (B, h, T, T)"""
    flat = torch.stack([m.flatten(2) for m in maps], dim=2)  # (B, h, T, entries)
    return (flat @ flat.mT).double()


def cosine(n1: Array, n2: Array, ip: Array, where: Any = True) -> Array:
    """<J1, J2> / (||J1|| ||J2||); NaN where a norm is zero, or outside of `where`"""
    size = np.sqrt(n1 * n2)
    ratio: Array = np.divide(ip, size, out=np.full_like(size, np.nan), where=where & (size > 0))
    return ratio


def separate_energy(n1: Any, n2: Any, lam: Any) -> Any:
    """||J1||^2 + lambda^2 ||J2||^2: what ||J1 - lambda J2||^2 is for orthogonal branches"""
    return n1 + lam**2 * n2


def combined_energy(n1: Any, n2: Any, ip: Any, lam: Any) -> Any:
    """||J1 - lambda J2||^2 = ||J1||^2 + lambda^2 ||J2||^2 - 2 lambda <J1, J2>   (Lemma 1)"""
    return separate_energy(n1, n2, lam) - 2 * lam * ip


def amplification(kappa: Any, cos: Any) -> Any:
    """s = ||J1 - lambda J2|| / ||J1|| = sqrt(1 + kappa^2 - 2 kappa cos), kappa = lambda ||J2|| / ||J1||   (Theorem 1)"""
    return np.sqrt(np.maximum(1 + kappa**2 - 2 * kappa * cos, 0))


def orthogonal_amplification(kappa: Any) -> Any:
    """The amplification that orthogonal branches have: sqrt(1 + kappa^2)"""
    return np.sqrt(1 + kappa**2)


def alpha_tri(combined: Array, n1: Array, n2: Array, lam: Any) -> Array:
    """||d1 - lambda d2|| / (||d1|| + |lambda| ||d2||), from squared norms: 0 where all is cancelled, at most 1. It is
    s / (1 + |kappa|): the triangle inequality's slack   (docs/method.md 2.4)"""
    return over(np.sqrt(combined), np.sqrt(n1) + abs(lam) * np.sqrt(n2))


def jackknife(statistic: Callable[..., Array], *samples: Array) -> Array:
    """Standard error of statistic(means over the last axis), NaN where there is no sample; 0 for a single one.

    `statistic` takes arrays with the axis of left-out samples last and works entry by entry.
    """
    known = np.isfinite(samples[0])
    k = known.sum(axis=-1, keepdims=True)
    several = known & (k > 1)
    left_out = [(np.nansum(a, axis=-1, keepdims=True) - a) / np.maximum(k - 1, 1) for a in samples]
    each = np.where(several, statistic(*(np.where(several, a, 1.0) for a in left_out)), 0.0)
    spread = (np.where(several, each - each.sum(axis=-1, keepdims=True) / k, 0.0) ** 2).sum(axis=-1)
    se: Array = np.sqrt((k - 1)[..., 0] / k[..., 0] * spread)
    return se


# ------------------------------------------------------------------------------------------------- a layer's numbers
@dataclass(frozen=True)
class Alignment:
    """The two branches of one layer; every other number is derived from these."""

    layer: str
    lam: Array | float  # broadcasts to (n, h); 1 where lambda differs between tokens: n2 and ip are then of lambda A2
    n1: Array  # (n, h, K) ||J1 v||^2 of a probe v, or ||J1||^2
    n2: Array  # (n, h, K) ||J2 v||^2
    ip: Array  # (n, h, K) <J1 v, J2 v>

    @property
    def probes(self) -> NDArray[np.int64]:
        """(n,): how many probes an image took"""
        counts: NDArray[np.int64] = np.isfinite(self.n1[:, 0]).sum(axis=-1)
        return counts

    @property
    def means(self) -> tuple[Array, Array, Array]:
        """||J1||^2, ||J2||^2 and <J1, J2>, each (n, h)"""
        n1, n2, ip = (np.nanmean(a, axis=-1) for a in (self.n1, self.n2, self.ip))
        return n1, n2, ip

    @property
    def stacked(self) -> Alignment:
        """All heads of the layer as one map: (n, 1, K). Dead heads add nothing, as they should; lambda that differs between
        heads is multiplied into the second branch and counts as 1."""
        lam, n2, ip = np.asarray(self.lam), self.n2, self.ip
        if lam.ndim > 1 and lam.shape[1] > 1:
            lam, n2, ip = np.ones((1, 1)), lam[..., None] ** 2 * n2, lam[..., None] * ip
        n1, n2, ip = (a.sum(axis=1, keepdims=True) for a in (self.n1, n2, ip))
        return replace(self, lam=lam, n1=n1, n2=n2, ip=ip)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """(n, h): both branches react at all. A dead one has no direction: its angle would be rounding noise."""
        n1, n2, _ = self.means
        return (n1 > DEAD * np.median(n1)) & (n2 > DEAD * np.median(n2))

    @property
    def cos(self) -> Array:
        """(n, h): ratio of means over probes, not mean of ratios; NaN where a branch is dead."""
        return cosine(*self.means, where=self.alive)

    @property
    def cos_se(self) -> Array:
        """(n, h): jackknife standard error of cos over the probes; 0 where the numbers are exact."""
        alive = self.alive[..., None]
        return jackknife(lambda n1, n2, ip: cosine(n1, n2, ip, where=alive), self.n1, self.n2, self.ip)

    @property
    def decided(self) -> NDArray[np.bool_]:
        """(n, h): the sign of cos is more than two standard errors from zero."""
        return decided(self.cos, self.cos_se)

    @property
    def rho(self) -> Array:
        """(n, h): ||J2|| / ||J1||"""
        n1, n2, _ = self.means
        ratio: Array = np.sqrt(np.divide(n2, n1, out=np.full_like(n1, np.nan), where=self.alive))
        return ratio

    @property
    def kappa(self) -> Array:
        """(n, h): lambda ||J2|| / ||J1||"""
        return self.lam * self.rho

    @property
    def amplification(self) -> Array:
        """(n, h): s = ||J1 - lambda J2||_F / ||J1||_F   (Theorem 1)"""
        s: Array = amplification(self.kappa, self.cos)
        return s

    @property
    def energy(self) -> Array:
        """(n, h): the amplification that orthogonal branches would have"""
        orthogonal: Array = orthogonal_amplification(self.kappa)
        return orthogonal

    @property
    def angle(self) -> Array:
        """(n, h): what the angle adds to it or takes from it, sqrt(1 - 2 kappa cos / (1 + kappa^2))"""
        return self.amplification / self.energy

    def summary(self) -> dict[str, Any]:
        """Over (image, head) pairs, intervals clustered by image. Pairs with a dead branch are counted and left out;
        a sign within two standard errors of zero is undecided and left out of `negative`. Lambda is its mean.

        Theorem 1 amplifies where cos < kappa / 2, of which cos < 0 is only a part (docs/method.md 1.2): both shares are given.
        """
        alive, cos = self.alive, self.cos
        negative = rate(cos < 0, where=self.decided)
        averaged = ("cos", "rho", "kappa", "amplification", "energy", "angle")
        return {
            "layer": self.layer,
            "lambda": float(np.mean(self.lam)),
            **{name: mean_finite(getattr(self, name)[alive]) for name in averaged},
            "negative": negative.plain(),
            "versus_half": _versus_half(negative),
            "amplifying": rate(self.amplification > 1, where=alive).plain(),
            "undecided": rate(~self.decided, where=alive).plain(),
            "dead": int((~alive).sum()),
            "images": cos.shape[0],
            "heads": cos.shape[1],
            "probes": float(self.probes.mean()),
            "per_head": [
                {
                    "head": h,
                    "cos": mean_finite(cos[alive[:, h], h]),
                    "amplification": mean_finite(self.amplification[alive[:, h], h]),
                }
                for h in range(cos.shape[1])
            ],
        }

    def rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        """One row per image and head, raw numbers first."""
        n1, n2, ip = self.means
        derived = {name: getattr(self, name) for name in ("cos", "cos_se", "rho", "amplification", "energy", "angle")}
        tables = {"n1": n1, "n2": n2, "ip": ip, **derived}
        lam = np.broadcast_to(self.lam, n1.shape)
        return [
            {"layer": self.layer, "head": h, "image": int(image)}
            | {"lambda": float(lam[i, h]), "probes": int(self.probes[i])}
            | {name: finite(table[i, h]) for name, table in tables.items()}
            for i, image in enumerate(ids)
            for h in range(n1.shape[1])
        ]


def alignment_of(layer: str, lam: Array | float, products: Array) -> Alignment:
    """From the inner products (n, h, K, 2, 2) of what the two branches give."""
    return Alignment(layer, lam, products[..., 0, 0], products[..., 1, 1], products[..., 0, 1])


def gamma(layer: Alignment, base: Array) -> dict[str, Any]:
    """||J1|| / ||J_base|| and ||J_DA|| / ||J_base|| = gamma s (Theorem 2), from a baseline's squared norms: (n, hb, K).

    Twins differ in their number of heads, so both ways of joining them are given, heads stacked and root mean square per
    head, with the share of images on which only one of the two calls the differential map the more sensitive.
    """
    n1, n2, ip = layer.means
    da, norms = combined_energy(n1, n2, ip, layer.lam), np.nanmean(base, axis=-1)
    joined: dict[str, Callable[[Array], Array]] = {
        "stacked": lambda a: a.sum(axis=1),
        "per_head": lambda a: a.mean(axis=1),
    }
    ratios = {name: np.sqrt(over(join(da), join(norms))) for name, join in joined.items()}
    alive = np.isfinite(ratios["stacked"])
    return {
        "layer": layer.layer,
        **{f"gamma_{name}": mean_finite(np.sqrt(over(join(n1), join(norms)))[alive]) for name, join in joined.items()},
        **{f"ratio_{name}": mean_finite(ratio[alive]) for name, ratio in ratios.items()},
        **{f"above_one_{name}": rate(ratio > 1, where=alive).plain() for name, ratio in ratios.items()},
        "disagree": rate((ratios["stacked"] > 1) != (ratios["per_head"] > 1), where=alive).plain(),
    }


def _versus_half(share: Rate) -> str:
    """Whether the share of negative signs differs from that of a coin."""
    if share.interval is None:
        return "undefined"
    low, high = share.interval
    return "above" if low > 0.5 else "below" if high < 0.5 else "not told apart"
