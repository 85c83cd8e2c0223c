"""Do the two branches pull against each other? What follows from ||J1||^2, ||J2||^2, <J1, J2> and lambda.

The three numbers are kept per image and head, one for each probe that estimated them; nothing is reduced to a cosine before
it is written down. n images, h heads, K probes (NaN where an image needed fewer; K = 1 where the numbers are exact).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.measures.stats import Rate, over, rate
from antiphase.models.attention import Branches
from antiphase.models.taps import Record, look
from antiphase.runtime import frozen

Array = np.ndarray[Any, np.dtype[np.float64]]
DEAD = 1e-8  # a squared norm this far below the median is no reaction: 1e-4 of the typical norm


@dataclass(frozen=True)
class Alignment:
    """The two branches of one layer; every other number is derived from these."""

    layer: str
    lam: float
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
        """All heads of the layer as one map: (n, 1, K). Dead heads add nothing, as they should."""
        return replace(self, **{name: getattr(self, name).sum(axis=1, keepdims=True) for name in ("n1", "n2", "ip")})

    @property
    def alive(self) -> NDArray[np.bool_]:
        """(n, h): both branches react at all. A dead one has no direction: its angle would be rounding noise."""
        n1, n2, _ = self.means
        return (n1 > DEAD * np.median(n1)) & (n2 > DEAD * np.median(n2))

    @property
    def cos(self) -> Array:
        """(n, h): ratio of means over probes, not mean of ratios; NaN where a branch is dead."""
        return _cosine(*self.means, self.alive)

    @property
    def cos_se(self) -> Array:
        """(n, h): jackknife standard error of cos over the probes; 0 where the numbers are exact."""
        cosine = lambda n1, n2, ip: _cosine(n1, n2, ip, self.alive[..., None])  # noqa: E731
        return jackknife(cosine, self.n1, self.n2, self.ip)

    @property
    def decided(self) -> NDArray[np.bool_]:
        """(n, h): the sign of cos is more than two standard errors from zero."""
        return self.alive & (np.abs(np.nan_to_num(self.cos)) > 2 * np.nan_to_num(self.cos_se))

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
        """(n, h): ||J1 - lambda J2||_F / ||J1||_F = sqrt(1 + kappa^2 - 2 kappa cos)   (Thm 1)"""
        s: Array = np.sqrt(np.maximum(1 + self.kappa**2 - 2 * self.kappa * self.cos, 0))
        return s

    @property
    def energy(self) -> Array:
        """(n, h): the amplification that orthogonal branches would have, sqrt(1 + kappa^2)"""
        orthogonal: Array = np.sqrt(1 + self.kappa**2)
        return orthogonal

    @property
    def angle(self) -> Array:
        """(n, h): what the angle adds to it or takes from it, sqrt(1 - 2 kappa cos / (1 + kappa^2))"""
        return self.amplification / self.energy

    def summary(self) -> dict[str, Any]:
        """Over (image, head) pairs, intervals clustered by image. Pairs with a dead branch are counted and left out;
        a sign within two standard errors of zero is undecided and left out of `negative`.

        Thm 1 amplifies where cos < kappa / 2, of which cos < 0 is only a part (M1.2): both shares are given.
        """
        alive, cos = self.alive, self.cos
        negative = rate(cos < 0, where=self.decided)
        means = {name: _mean(getattr(self, name)[alive]) for name in ("cos", "rho", "kappa")}
        split = {name: _mean(getattr(self, name)[alive]) for name in ("amplification", "energy", "angle")}
        return {
            "layer": self.layer,
            "lambda": self.lam,
            **means,
            **split,
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
                    "cos": _mean(cos[alive[:, h], h]),
                    "amplification": _mean(self.amplification[alive[:, h], h]),
                }
                for h in range(cos.shape[1])
            ],
        }

    def rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        """One row an image and head, raw numbers first."""
        n1, n2, ip = self.means
        derived = {name: getattr(self, name) for name in ("cos", "cos_se", "rho", "amplification", "energy", "angle")}
        tables = {"n1": n1, "n2": n2, "ip": ip, **derived}
        return [
            {"layer": self.layer, "head": h, "image": int(image), "lambda": self.lam, "probes": int(self.probes[i])}
            | {name: _finite(table[i, h]) for name, table in tables.items()}
            for i, image in enumerate(ids)
            for h in range(n1.shape[1])
        ]


def gamma(layer: Alignment, base: Array) -> dict[str, Any]:
    """||J1|| / ||J_base|| and ||J_DA|| / ||J_base|| = gamma s (Thm 2), against a baseline's squared norms: (n, hb, K).

    Twins differ in their number of heads, so both ways of joining them are given, heads stacked and root mean square per
    head, with the share of images on which only one of the two calls the differential map the more sensitive.
    """
    n1, n2, ip = layer.means
    da, norms = n1 + layer.lam**2 * n2 - 2 * layer.lam * ip, np.nanmean(base, axis=-1)
    joined: dict[str, Callable[[Array], Array]] = {
        "stacked": lambda a: a.sum(axis=1),
        "per_head": lambda a: a.mean(axis=1),
    }
    ratios = {name: np.sqrt(over(join(da), join(norms))) for name, join in joined.items()}
    alive = np.isfinite(ratios["stacked"])
    return {
        "layer": layer.layer,
        **{f"gamma_{name}": _mean(np.sqrt(over(join(n1), join(norms)))[alive]) for name, join in joined.items()},
        **{f"ratio_{name}": _mean(ratio[alive]) for name, ratio in ratios.items()},
        **{f"above_one_{name}": rate(ratio > 1, where=alive).plain() for name, ratio in ratios.items()},
        "disagree": rate((ratios["stacked"] > 1) != (ratios["per_head"] > 1), where=alive).plain(),
    }


def jackknife(statistic: Callable[..., Array], *samples: Array) -> Array:
    """Standard error of statistic(means over the last axis), NaN where there is no sample; 0 for a single one.

    `statistic` takes arrays with the axis of left-out samples last and works entry by entry.
    """
    there = np.isfinite(samples[0])
    k = there.sum(axis=-1, keepdims=True)
    several = there & (k > 1)
    left_out = [(np.nansum(a, axis=-1, keepdims=True) - a) / np.maximum(k - 1, 1) for a in samples]
    each = np.where(several, statistic(*(np.where(several, a, 1.0) for a in left_out)), 0.0)
    spread = (np.where(several, each - each.sum(axis=-1, keepdims=True) / k, 0.0) ** 2).sum(axis=-1)
    se: Array = np.sqrt((k - 1)[..., 0] / k[..., 0] * spread)
    return se


def _cosine(n1: Array, n2: Array, ip: Array, alive: NDArray[np.bool_]) -> Array:
    size = np.sqrt(n1 * n2)
    cosine: Array = np.divide(ip, size, out=np.full_like(size, np.nan), where=alive & (size > 0))
    return cosine


def _versus_half(share: Rate) -> str:
    """Is the share of negative signs told apart from a coin's?"""
    if share.interval is None:
        return "undefined"
    low, high = share.interval
    return "above" if low > 0.5 else "below" if high < 0.5 else "not told apart"


def _mean(values: Array) -> float | None:
    return float(values.mean()) if len(values) else None


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


# ------------------------------------------------------------------------------------------------- measures.coupling
# Which two maps are held against each other: a layer's own branches, or a control that must accompany them (M2.2).


# branches: A1 and A2 of each head. shuffled: A1 of a head and A2 of the next. pseudo: heads 2i and 2i+1 of a softmax layer
Coupling = Literal["branches", "shuffled", "pseudo"]
PSEUDO_LAMBDA = 0.8  # what a softmax layer's pairs are weighed with: the usual lambda_init
Coupled = dict[str, tuple[Tensor, Tensor, float]]  # layer -> first map, second map: (B, h, N, M) each, and lambda


def couple(record: Record, coupling: Coupling) -> Coupled:
    """The pairs of every layer that has them."""
    if coupling not in get_args(Coupling):
        raise InputError(f"coupling {coupling!r} is not known: it takes {', '.join(get_args(Coupling))}")
    found = {layer: _coupled(maps, coupling) for layer, maps in record.items()}
    return {layer: pair for layer, pair in found.items() if pair is not None}


def _coupled(maps: Branches, coupling: Coupling) -> tuple[Tensor, Tensor, float] | None:
    heads = maps.signal.shape[1]
    if coupling == "pseudo":
        if maps.noise is not None or heads < 2:
            return None
        return maps.signal[:, 0 : heads - 1 : 2], maps.signal[:, 1::2], PSEUDO_LAMBDA
    if maps.noise is None or (coupling == "shuffled" and heads < 2):
        return None
    noise = maps.noise if coupling == "branches" else maps.noise.roll(1, dims=1)
    return maps.signal, noise, float(maps.lam.detach())


WANTS = {
    "branches": "two branches, and no layer of this model has them (it is all softmax)",
    "shuffled": "a layer with two branches and at least two heads, and this model has none",
    "pseudo": "a softmax layer with at least two heads, and this model has none",
}


def lambdas_of(
    classifier: nn.Module, images: ImageSet, coupling: Coupling, device: torch.device | str
) -> dict[str, float]:
    """lambda of every layer that has such pairs; a model without any is refused."""
    with frozen(classifier), torch.no_grad():
        record = look(classifier, images.batch(np.arange(1)).pixels.to(device))
        found = {layer: lam for layer, (_, _, lam) in couple(record, coupling).items()}
    if not found:
        raise InputError(f"alignment needs {WANTS[coupling]}")
    return found
