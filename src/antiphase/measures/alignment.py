"""Do the two branches pull against each other? Frobenius inner products of their Jacobians with respect to the pixels.

One forward-mode pass with tangent v gives J1 v and J2 v for all layers, heads and images at once (E1 of the methods);
over Gaussian v, E||Jb v||^2 = ||Jb||_F^2 and E<J1 v, J2 v> = <J1, J2>_F. B images, h heads, K probes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console, runtime
from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.measures.interval import rate
from antiphase.models.taps import explicit, taps

Array = np.ndarray[Any, np.dtype[np.float64]]
DEAD = 1e-8  # a squared norm this far below the median is no reaction: 1e-4 of the typical norm


@dataclass(frozen=True)
class Alignment:
    """Per image and head of one layer, K probes each; every other number is derived from these."""

    layer: str
    lam: float
    n1: Array  # (n, h, K) ||J1 v||^2
    n2: Array  # (n, h, K) ||J2 v||^2
    ip: Array  # (n, h, K) <J1 v, J2 v>

    @property
    def means(self) -> tuple[Array, Array, Array]:
        """||J1||^2, ||J2||^2 and <J1, J2>, each (n, h)"""
        return self.n1.mean(-1), self.n2.mean(-1), self.ip.mean(-1)

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
        """(n, h): jackknife standard error of cos over the probes."""
        k = self.ip.shape[-1]
        n1, n2, ip = ((a.sum(-1, keepdims=True) - a) / (k - 1) for a in (self.n1, self.n2, self.ip))
        each = _cosine(n1, n2, ip, self.alive[..., None])  # (n, h, K)
        se: Array = np.sqrt((k - 1) / k * ((each - each.mean(-1, keepdims=True)) ** 2).sum(-1))
        return se

    @property
    def kappa(self) -> Array:
        """(n, h): lambda ||J2|| / ||J1||"""
        n1, n2, _ = self.means
        ratio: Array = np.sqrt(np.divide(n2, n1, out=np.full_like(n1, np.nan), where=self.alive))
        return self.lam * ratio

    @property
    def amplification(self) -> Array:
        """(n, h): ||J1 - lambda J2||_F / ||J1||_F = sqrt(1 + kappa^2 - 2 kappa cos)   (Thm 1)"""
        s: Array = np.sqrt(1 + self.kappa**2 - 2 * self.kappa * self.cos)
        return s

    def summary(self) -> dict[str, Any]:
        """Over (image, head) pairs, intervals clustered by image. Pairs with a dead branch are counted and left out;
        a sign within two standard errors of zero is undecided and left out of `negative`.

        The amplification is split into its causes (M1.2): what orthogonal branches would give, and what the angle adds.
        """
        alive = self.alive
        cos, se, s = self.cos, self.cos_se, self.amplification
        decided = np.abs(np.nan_to_num(cos)) > 2 * np.nan_to_num(se)
        energy = np.sqrt(1 + self.kappa**2)
        return {
            "layer": self.layer,
            "lambda": self.lam,
            "cos": _mean(cos[alive]),
            "kappa": _mean(self.kappa[alive]),
            "amplification": _mean(s[alive]),
            "energy": _mean(energy[alive]),
            "angle": _mean((s / energy)[alive]),
            "negative": rate(cos < 0, where=alive & decided).plain(),
            "amplifying": rate(s > 1, where=alive).plain(),
            "undecided": rate(~decided, where=alive).plain(),
            "dead": int((~alive).sum()),
            "images": cos.shape[0],
            "heads": cos.shape[1],
            "probes": self.ip.shape[-1],
        }


def branch_alignment(
    classifier: nn.Module,
    images: ImageSet,
    *,
    probes: int,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> list[Alignment]:
    """E1 for every differential layer, end to end from the pixels; layers without two branches are left out."""
    if probes < 2:
        raise InputError(f"probes={probes}: a standard error needs at least 2")
    parts: dict[str, list[tuple[Tensor, ...]]] = {}
    lam: dict[str, float] = {}
    with (
        runtime.frozen(classifier),
        explicit(classifier),
        torch.no_grad(),
        console.progress("branch alignment", total=len(images) * probes) as advance,
    ):
        for batch in images.batches(batch_size):
            x = batch.pixels.to(device)
            with taps(classifier) as record:
                classifier(x[:1])
                lam = {layer: maps.lam.item() for layer, maps in record.items() if maps.noise is not None}
            if not lam:
                raise InputError(
                    "alignment needs two branches, and no layer of this model has them (it is all softmax)"
                )
            columns: dict[str, list[tuple[Tensor, ...]]] = {layer: [] for layer in lam}
            for k in range(probes):
                v = torch.from_numpy(runtime.normal((seed, "probe", k), batch.ids, tuple(x.shape[1:]))).to(x)
                for layer, (j1, j2) in _pushed(classifier, x, v, tuple(lam)).items():
                    columns[layer].append((_dot(j1, j1), _dot(j2, j2), _dot(j1, j2)))
                advance(len(x), "")
            for layer, probes_done in columns.items():
                parts.setdefault(layer, []).append(tuple(torch.stack(c, dim=-1) for c in zip(*probes_done)))
    return [
        Alignment(layer, lam[layer], *(torch.cat([p[i] for p in found]).cpu().numpy() for i in range(3)))
        for layer, found in parts.items()
    ]


def _pushed(classifier: nn.Module, x: Tensor, v: Tensor, layers: tuple[str, ...]) -> dict[str, tuple[Tensor, Tensor]]:
    """J1 v and J2 v of each layer: (B, h, N, N) each."""

    def maps(pixels: Tensor) -> tuple[tuple[Tensor, Tensor | None], ...]:
        with taps(classifier) as record:
            classifier(pixels)
            return tuple((record[layer].signal, record[layer].noise) for layer in layers)

    tangents = torch.func.jvp(maps, (x,), (v,))[1]
    return dict(zip(layers, tangents))


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """(B, h)"""
    return (a * b).flatten(2).sum(-1).double()


def _cosine(n1: Array, n2: Array, ip: Array, alive: NDArray[np.bool_]) -> Array:
    size = np.sqrt(n1 * n2)
    cosine: Array = np.divide(ip, size, out=np.full_like(size, np.nan), where=alive & (size > 0))
    return cosine


def _mean(values: Array) -> float | None:
    return float(values.mean()) if len(values) else None
