"""Local Lipschitz estimates of attention, by sampling. All are lower bounds of the true constant, never certificates.

L_r(x) = sup over 0 < ||xi||_inf <= r of ||A(x+xi) - A(x)||_F / ||xi||_2, for maps, branch and block outputs. The numerator
is flattened over all heads, the denominator is the l2 norm of the pixels' change; the l-infinity denominator is logged too.
B images, h heads, N tokens, M draws
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
from antiphase.measures.levels import Level, at_level
from antiphase.measures.probes import PAPER_EPS, at_rest

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Ratios:
    """||A(x+xi) - A(x)|| / ||xi|| of one layer at one level, for each image and draw."""

    layer: str
    level: Level
    heads: int  # 1 where the level has no heads
    ratios: Array  # (n, M) over ||xi||_2
    linf: Array  # (n, M) over ||xi||_inf
    size: Array  # (n,) ||A(x)||_F, for the relative reading
    spectral: Array | None = None  # (n, M) mean over heads of the operator norm of the N x N change, over ||xi||_2

    def summary(self) -> dict[str, Any]:
        """Means over images: of the largest, mean and root-mean-square ratio over the draws, the largest per head (divided
        by the root of the number of heads, since twins differ in it) and relative to the size of what is measured."""
        largest = self.ratios.max(axis=1)
        n, draws = self.ratios.shape
        doubling = [m for m in (1, 2, 4, 8, 16, 32, 64, 128, 256) if m < draws] + [draws]
        return {
            "layer": self.layer,
            "level": self.level,
            "max": float(largest.mean()),
            "max_se": float(largest.std(ddof=1) / n**0.5) if n > 1 else None,
            "per_head_max": float(largest.mean() / self.heads**0.5),
            "relative_max": float((largest / self.size).mean()),
            "linf_max": float(self.linf.max(axis=1).mean()),
            "spectral_max": None if self.spectral is None else float(self.spectral.max(axis=1).mean()),
            "mean": float(self.ratios.mean()),
            "rms": float(np.sqrt((self.ratios**2).mean(axis=1)).mean()),
            "max_by_draws": {str(m): float(self.ratios[:, :m].max(axis=1).mean()) for m in doubling},
            "heads": self.heads,
            "n": n,
            "draws": draws,
        }

    def rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        return [
            {
                "layer": self.layer,
                "level": self.level,
                "image": int(image),
                "estimator": "sample",
                "max": float(self.ratios[i].max()),
                "mean": float(self.ratios[i].mean()),
                "rms": float(np.sqrt((self.ratios[i] ** 2).mean())),
                "linf_max": float(self.linf[i].max()),
                "size": float(self.size[i]),
            }
            for i, image in enumerate(ids)
        ]


def draw(batch_ids: NDArray[np.int64], shape: tuple[int, ...], m: int, eps: float, seed: int) -> Tensor:
    """xi number m of each image: uniform on [-eps, eps]^n, the same for every model. (B, *shape) float64"""
    return torch.from_numpy((2 * runtime.uniform((seed, "lipschitz", m), batch_ids, shape) - 1) * eps)


def l_sample(
    classifier: nn.Module,
    images: ImageSet,
    *,
    draws: int,
    level: Level = "maps",
    eps: float = PAPER_EPS,
    clip: bool = False,
    spectral: bool = False,
    seed: int = 0,
    batch_size: int = 128,
    device: torch.device | str = "cpu",
) -> list[Ratios]:
    """L-sample (M2.3), per layer: xi uniform on [-eps, eps]^n, the same xi for every model; with `clip`, x+xi in [0,1]."""
    if draws < 1:
        raise InputError(f"draws={draws} must be at least 1")
    if spectral and level != "maps":
        raise InputError(f"the spectral norm per head is of maps: level={level} has none")
    found: dict[str, list[tuple[Tensor, ...]]] = {}
    heads: dict[str, int] = {}
    with at_rest(classifier), console.progress(f"L-sample of {level}", total=len(images) * draws) as advance:
        for batch in images.batches(batch_size):
            x = batch.pixels.to(device)
            clean = at_level(classifier, x, level)
            columns: dict[str, list[tuple[Tensor, ...]]] = {layer: [] for layer in clean}
            for m in range(draws):
                moved = x + draw(batch.ids, tuple(x.shape[1:]), m, eps, seed).to(x)
                moved = moved.clamp(0, 1) if clip else moved
                for layer, a in at_level(classifier, moved, level).items():
                    columns[layer].append(_measured(a - clean[layer], moved - x, spectral))
                advance(len(x), "")
            for layer, values in columns.items():
                heads[layer] = clean[layer].shape[1] if level == "maps" else 1
                stacked = tuple(torch.stack(column, dim=1).double().cpu() for column in zip(*values))
                found.setdefault(layer, []).append((size_of(clean[layer], layer).double().cpu(), *stacked))
    joined = {layer: [torch.cat(column).numpy() for column in zip(*parts)] for layer, parts in found.items()}
    return [
        Ratios(layer, level, heads[layer], l2, linf, size, *spectra)
        for layer, (size, l2, linf, *spectra) in joined.items()
    ]


def _measured(change: Tensor, xi: Tensor, spectral: bool) -> tuple[Tensor, ...]:
    size, step = change.flatten(1).norm(dim=1), xi.flatten(1)
    l2 = step.norm(dim=1)
    found = (size / l2, size / step.abs().amax(dim=1))
    return (*found, torch.linalg.matrix_norm(change, ord=2).mean(dim=1) / l2) if spectral else found


def size_of(a: Tensor, layer: str) -> Tensor:
    """(B,) Frobenius norm; what is not a number is refused by name."""
    if not a.isfinite().all():
        raise InputError(f"what {layer} gives is not finite: the weights or the images are broken")
    size: Tensor = a.flatten(1).norm(dim=1)
    return size
