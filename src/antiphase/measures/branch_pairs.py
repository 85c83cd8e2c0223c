"""Which two maps are held against each other, and what follows from ||J1||^2, ||J2||^2, <J1, J2> and lambda.

The first half finds the pairs: a layer's own branches, or a control that must accompany them (docs/method.md 2.2). The second
half is the algebra of Lemma 1 and Theorem 1, the same for Jacobians, for one direction and for finite changes. How the three
numbers are estimated stands in `jacobians_*`, `alignment` and `cancellation`.

Lambda broadcasts to (B, h, N, 1). One lambda per image and head can be taken out of a norm; where it differs between tokens it
is multiplied into the second map first and counts as 1 (`BranchPair.weighted`), or the measure refuses the layer. Where lambda
depends on the input, a third term joins the two, A2 dlambda, the gate's (docs/method.md 7): J_DA = J1 - lambda J2 - J3. DINT's
mean row is such a term too.

The numbers are kept per image and head, one for each probe that estimated them; nothing is reduced to a cosine before
it is written down. B images of a batch, n of all, h heads, N tokens, M tokens that are looked at, K probes (NaN where an image
needed fewer; K = 1 where the numbers are exact), T maps that are looked at together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.measures.perturbations import points
from antiphase.measures.stats import Array, decided, finite, mean_finite, over
from antiphase.models.attention import Branches
from antiphase.models.taps import Record, check_finite, gated_layers, look
from antiphase.rates import Rate, rate
from antiphase.runtime import at_rest
from antiphase.tables import Shown, ShownList, Table, number, short_layer, with_interval

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
    gated: bool = False  # lambda depends on the input
    added: Tensor | None = None  # to the difference of the two, broadcasts to (B, h, N, M)

    @property
    def combined(self) -> Tensor:
        """first - lambda second, and what is added to it"""
        difference = self.first - self.lam.to(self.second.dtype) * self.second
        return difference if self.added is None else difference + self.added

    @property
    def weighted(self) -> BranchPair:
        """The same difference with one lambda per image and head: as it is, or with lambda multiplied into the second map."""
        if self.lam.shape[2] == 1:
            return self
        second = self.lam.to(self.second.dtype) * self.second
        return self._replace(second=second, lam=torch.ones_like(self.lam[:1, :1, :1]))

    @property
    def with_lambda_inside(self) -> BranchPair:
        """One lambda for every token, so that `weighted` multiplies it into the second map; one learned scalar stays outside."""
        if self.lam.numel() == 1 and not self.gated:
            return self
        return self._replace(lam=self.lam.expand(-1, -1, self.first.shape[2], 1))

    @property
    def terms(self) -> tuple[Tensor, ...]:
        """What J_DA = J1 - lambda J2 - J3 is made of, as tensors whose derivatives are J1, J2 and, where there is one, J3.

        With a gate, lambda stands still in the second and A2 in the third: derivatives in either mode see it so.
        """
        if not self.gated:
            two = self.weighted[:2]
            return two if self.added is None else (*two, -self.added.expand_as(self.first))
        held = self._replace(lam=self.lam.detach()).weighted
        third = self.lam.to(self.second.dtype) * self.second.detach()
        return self.first, held.second, third if self.added is None else third - self.added

    @property
    def weight(self) -> Tensor:
        """Lambda of `terms`: that of the weighted pair"""
        return self.weighted.lam

    def needs_one_lambda_per_head(self, measure: str, layer: str) -> None:
        """Refuse a layer whose lambda differs between tokens, for measures that cannot multiply it into the map."""
        if self.lam.shape[2] != 1:
            raise InputError(
                f"{measure} needs one lambda per head, and that of {layer} differs between tokens: use R1 or R3"
            )


def changes(before: BranchPair, after: BranchPair) -> tuple[Tensor, ...]:
    """Finite changes of the terms: d1, d2 and, where there is a third, d3; the change of the map is d1 - lambda d2 - d3 exactly.

    With a gate lambda is that of `before`, and d3 = A2 of `after` times the change of lambda.
    """
    if not before.gated:
        d1, d2 = (b - a for a, b in zip(before.weighted[:2], after.weighted[:2]))
        third = None
    else:
        d1, d2 = after.first - before.first, after.second - before.second
        lam = before.lam.to(d2.dtype)
        third = (after.lam.to(d2.dtype) - lam) * after.second
        d2 = lam * d2 if lam.shape[2] != 1 else d2
    if before.added is not None and after.added is not None:
        integral = (before.added - after.added).expand_as(d1)
        third = integral if third is None else third + integral
    return (d1, d2) if third is None else (d1, d2, third)


def couple(record: Record, coupling: Coupling, gated: Collection[str] = ()) -> dict[str, BranchPair]:
    """The pairs of every layer that has them, by the layer's name; `gated`: layers whose lambda depends on the input."""
    if coupling not in get_args(Coupling):
        raise InputError(f"coupling {coupling!r} is not known: it takes {', '.join(get_args(Coupling))}")
    pairs = {layer: _pair(maps, coupling, layer in gated) for layer, maps in record.items()}
    return {layer: pair for layer, pair in pairs.items() if pair is not None}


def _pair(maps: Branches, coupling: Coupling, gated: bool) -> BranchPair | None:
    heads = maps.signal.shape[1]
    if coupling == "pseudo":
        if maps.noise is not None or heads < 2:
            return None
        lam = torch.full((1, 1, 1, 1), PSEUDO_LAMBDA, dtype=torch.float64, device=maps.signal.device)
        return BranchPair(maps.signal[:, 0 : heads - 1 : 2], maps.signal[:, 1::2], lam)
    if maps.noise is None or (coupling == "shuffled" and heads < 2):
        return None
    if coupling == "branches":
        return BranchPair(maps.signal, maps.noise, maps.lam, gated, maps.added)
    noise, lam = (t.roll(1, dims=1) for t in (maps.noise, maps.lam))  # lambda goes with its map
    return BranchPair(maps.signal, noise, lam, gated, maps.added)


def weighted_maps(record: Record, coupling: Coupling, gated: Collection[str] = ()) -> dict[str, tuple[Tensor, ...]]:
    """The terms of every pair, ready for derivatives: lambda that differs between tokens is in the second."""
    return {layer: pair.terms for layer, pair in couple(record, coupling, gated).items()}


def finite_look(classifier: nn.Module, pixels: Tensor) -> Record:
    """The attention layers on these pixels, refused by name where a map is not a number."""
    record = look(classifier, pixels)
    for layer, maps in record.items():
        check_finite(maps.combined, layer)
    return record


class Weight(NamedTuple):
    """Lambda of one layer on all images."""

    lam: Array  # of the weighted pairs, broadcasts to (n, h): 1 where lambda differs between tokens
    mean: Array | None = None  # over the tokens, where it differs between them
    gated: bool = False  # it depends on the input


def gated_of(weights: dict[str, Weight]) -> frozenset[str]:
    """The layers whose lambda depends on the input."""
    return frozenset(layer for layer, weight in weights.items() if weight.gated)


def lambdas_of(
    classifier: nn.Module,
    images: ImageSet,
    coupling: Coupling,
    *,
    around: float = 0.0,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> dict[str, Weight]:
    """Lambda of the weighted pairs of every layer that has some; a model without any is refused.

    Two images show whether lambda depends on the image; only then are all of them looked at, at the points near them.
    """
    with at_rest(classifier):
        two = images.batch(np.arange(min(2, len(images))))
        near = points(two, around, seed).to(device)
        pairs = couple(look(classifier, near), coupling)
        if not pairs:
            raise InputError(f"alignment needs {NEEDED[coupling]}")
        gated = gated_layers(classifier, near) if coupling != "pseudo" else frozenset()
        parts = {layer: [(pair, len(two.ids))] for layer, pair in pairs.items()}
        if gated or any(len(pair.lam) > 1 for ((pair, _),) in parts.values()):
            parts = {layer: [] for layer in parts}
            for batch in images.batches(batch_size):
                for layer, pair in couple(look(classifier, points(batch, around, seed).to(device)), coupling).items():
                    parts[layer].append((pair, len(batch.ids)))
    return {layer: weight_of(part, layer in gated) for layer, part in parts.items()}


def weight_of(parts: Sequence[tuple[BranchPair, int]], gated: bool) -> Weight:
    """Lambda of one layer from its pairs in all batches, and the sizes of the batches."""
    lam = lambda_table([(pair.weight, size) for pair, size in parts])
    per_token = any(pair.lam.shape[2] != 1 for pair, _ in parts)
    return Weight(lam, lambda_table([(pair.lam, size) for pair, size in parts]) if per_token else None, gated)


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


def third_energy(n3: Any, ip1: Any, ip2: Any, lam: Any) -> Any:
    """What the third term adds: ||J1 - lambda J2 - J3||^2 - ||J1 - lambda J2||^2 = ||J3||^2 - 2 <J1, J3> + 2 lambda <J2, J3>"""
    return n3 - 2 * ip1 + 2 * lam * ip2


def amplification(kappa: Any, cos: Any) -> Any:
    """s = ||J1 - lambda J2|| / ||J1|| = sqrt(1 + kappa^2 - 2 kappa cos), kappa = lambda ||J2|| / ||J1||   (Theorem 1)"""
    return np.sqrt(np.maximum(1 + kappa**2 - 2 * kappa * cos, 0))


def orthogonal_amplification(kappa: Any) -> Any:
    """The amplification that orthogonal branches have: sqrt(1 + kappa^2)"""
    return np.sqrt(1 + kappa**2)


def alpha_tri(combined: Array, n1: Array, n2: Array, lam: Any, n3: Array | None = None) -> Array:
    """||d1 - lambda d2|| / (||d1|| + |lambda| ||d2||), from squared norms: 0 where all is cancelled, at most 1. It is
    s / (1 + |kappa|): the triangle inequality's slack   (docs/method.md 2.4). A third term's norm joins the sum."""
    apart = np.sqrt(n1) + abs(lam) * np.sqrt(n2)
    return over(np.sqrt(combined), apart if n3 is None else apart + np.sqrt(n3))


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
class ThirdTerm:
    """J3 of J_DA = J1 - lambda J2 - J3: A2 dlambda where lambda depends on the input, or minus the derivative of DINT's mean."""

    name: Literal["gate", "integral"]
    n3: Array  # (n, h, K) ||J3 v||^2, or ||J3||^2
    ip1: Array  # (n, h, K) <J1 v, J3 v>
    ip2: Array  # (n, h, K) <J2 v, J3 v>, with the J2 that n2 and ip are of

    @property
    def means(self) -> tuple[Array, Array, Array]:
        """||J3||^2, <J1, J3> and <J2, J3>, each (n, h)"""
        n3, ip1, ip2 = (np.nanmean(a, axis=-1) for a in (self.n3, self.ip1, self.ip2))
        return n3, ip1, ip2


def third_of(products: Array, gated: bool) -> ThirdTerm | None:
    """The third term of inner products (..., T, T), if they are of three."""
    if products.shape[-1] == 2:
        return None
    return ThirdTerm("gate" if gated else "integral", *(products[..., i, 2] for i in (2, 0, 1)))


@dataclass(frozen=True, repr=False)
class Alignment(Shown):
    """The two branches of one layer; every other number is derived from these."""

    layer: str
    lam: Array | float  # broadcasts to (n, h); 1 where lambda differs between tokens: n2 and ip are then of lambda A2
    n1: Array  # (n, h, K) ||J1 v||^2 of a probe v, or ||J1||^2
    n2: Array  # (n, h, K) ||J2 v||^2
    ip: Array  # (n, h, K) <J1 v, J2 v>
    third: ThirdTerm | None = None  # of J_DA, besides the branches
    mean_lambda: Array | None = None  # broadcasts to (n, h): over the tokens, where lambda differs between them
    ids: NDArray[np.int64] | None = None  # (n,) of the images, where they are known

    def __repr__(self) -> str:
        return f"<Alignment of {self.layer}: {self.n1.shape[0]} images, {self.n1.shape[1]} heads>"

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
        lam, n2, ip, third = np.asarray(self.lam), self.n2, self.ip, self.third
        if lam.ndim > 1 and lam.shape[1] > 1:
            own = lam[..., None]
            lam, n2, ip = np.ones((1, 1)), own**2 * n2, own * ip
            third = None if third is None else replace(third, ip2=own * third.ip2)
        n1, n2, ip = (a.sum(axis=1, keepdims=True) for a in (self.n1, n2, ip))
        if third is not None:
            sums = {name: getattr(third, name).sum(axis=1, keepdims=True) for name in ("n3", "ip1", "ip2")}
            third = replace(third, **sums)
        mean = None if self.mean_lambda is None else self.mean_lambda.mean(axis=1, keepdims=True)
        return replace(self, lam=lam, n1=n1, n2=n2, ip=ip, third=third, mean_lambda=mean)

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
        """(n, h): s = ||J_DA||_F / ||J1||_F, which is ||J1 - lambda J2||_F / ||J1||_F without a third term   (Theorem 1)"""
        s: Array = amplification(self.kappa, self.cos)
        return s if self.third is None else s * self.third_factor

    @property
    def map_energy(self) -> Array:
        """(n, h): ||J_DA||^2"""
        n1, n2, ip = self.means
        two: Array = combined_energy(n1, n2, ip, self.lam)
        return two if self.third is None else two + third_energy(*self.third.means, self.lam)

    @property
    def third_factor(self) -> Array:
        """(n, h): ||J_DA|| / ||J1 - lambda J2||, what the third term does to the amplification; 1 where there is none"""
        factor: Array = np.sqrt(np.maximum(over(self.map_energy, combined_energy(*self.means, self.lam)), 0))
        return factor

    @property
    def third_share(self) -> Array:
        """(n, h): ||J3||^2 / (||J1||^2 + ||lambda J2||^2 + ||J3||^2), in [0,1]; 0 where there is none"""
        n1, n2, _ = self.means
        n3 = np.zeros_like(n1) if self.third is None else self.third.means[0]
        return over(n3, separate_energy(n1, n2, self.lam) + n3)

    @property
    def energy(self) -> Array:
        """(n, h): the amplification that orthogonal branches would have"""
        orthogonal: Array = orthogonal_amplification(self.kappa)
        return orthogonal

    @property
    def angle(self) -> Array:
        """(n, h): what the angle adds to it or takes from it, sqrt(1 - 2 kappa cos / (1 + kappa^2))"""
        if self.third is not None:
            both: Array = amplification(self.kappa, self.cos) / self.energy
            return both
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
            "lambda": float(np.mean(self.lam if self.mean_lambda is None else self.mean_lambda)),
            **{name: mean_finite(getattr(self, name)[alive]) for name in averaged},
            **{name: mean_finite(table[alive]) for name, table in self._third_tables.items()},
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

    def table(self) -> Table:
        """That of all layers, with one row."""
        return AlignedLayers([self]).table()

    def records(self) -> list[dict[str, Any]]:
        """One per image and head; images go by their ids, or by their places where these are not known."""
        return self.rows(np.arange(len(self.n1)) if self.ids is None else self.ids)

    @property
    def _third_tables(self) -> dict[str, Array]:
        """The factor and the share of the third term by its name: gate and gate_share; nothing where there is none."""
        if self.third is None:
            return {}
        return {self.third.name: self.third_factor, f"{self.third.name}_share": self.third_share}

    def rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        """One row per image and head, raw numbers first. Where lambda differs between tokens it is 1 here, since it is in n2 and
        ip already, and its mean is beside it."""
        n1, n2, ip = self.means
        derived = {name: getattr(self, name) for name in ("cos", "cos_se", "rho", "amplification", "energy", "angle")}
        raw = {} if self.third is None else dict(zip(("n3", "ip13", "ip23"), self.third.means))
        tables = {"n1": n1, "n2": n2, "ip": ip, **raw, **derived, **self._third_tables}
        if self.mean_lambda is not None:
            tables["mean_lambda"] = np.broadcast_to(self.mean_lambda, n1.shape)
        lam = np.broadcast_to(self.lam, n1.shape)
        return [
            {"layer": self.layer, "head": h, "image": int(image)}
            | {"lambda": float(lam[i, h]), "probes": int(self.probes[i])}
            | {name: finite(table[i, h]) for name, table in tables.items()}
            for i, image in enumerate(ids)
            for h in range(n1.shape[1])
        ]


class AlignedLayers(ShownList[Alignment]):
    """The alignment of several layers on the same images."""

    def table(self) -> Table:
        """A row for each layer."""
        layers = self.summary()
        rows = [
            (
                short_layer(row["layer"]),
                *(number(row[key]) for key in ("lambda", "cos", "amplification")),
                *_share(row["negative"]),
                *_share(row["amplifying"]),
            )
            for row in layers
        ]
        first = layers[0]
        title = (
            f"branch alignment: {first['images']:,} images, {first['heads']} heads, {number(first['probes'])} probes per image; "
            "means and shares of (image, head) pairs, 95 % intervals"
        )
        notes = ["s = ||J_DA|| / ||J1|| amplifies where it is above 1; cos < 0: of the pairs whose sign is decided"]
        if dead := sum(row["dead"] for row in layers):
            notes.append(f"{dead} pairs with a dead branch are left out")
        return Table(title, ("layer", "lambda", "cos", "s", "cos < 0", "of", "s > 1", "of"), rows, notes)


def _share(rate: dict[str, Any]) -> tuple[str, str]:
    """A rate with its interval, and its n."""
    return with_interval(rate, 0), f"{rate['n']:,}"


def alignment_of(layer: str, weight: Weight, products: Array) -> Alignment:
    """From the inner products (n, h, K, T, T) of what the two branches, and a third term, give."""
    n1, n2, ip = products[..., 0, 0], products[..., 1, 1], products[..., 0, 1]
    return Alignment(layer, weight.lam, n1, n2, ip, third_of(products, weight.gated), weight.mean)


def gamma(layer: Alignment, base: Array) -> dict[str, Any]:
    """||J1|| / ||J_base|| and ||J_DA|| / ||J_base|| = gamma s (Theorem 2), from a baseline's squared norms: (n, hb, K).

    Twins differ in their number of heads, so both ways of joining them are given, heads stacked and root mean square per
    head, with the share of images on which only one of the two calls the differential map the more sensitive.
    """
    n1, _, _ = layer.means
    da, norms = layer.map_energy, np.nanmean(base, axis=-1)
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
