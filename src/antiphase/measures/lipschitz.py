"""Local Lipschitz estimates of attention maps. All are sampled: lower bounds of the true constant, never certificates.

B images, h heads, N tokens, M draws
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from antiphase import console, runtime
from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.models.taps import taps

PAPER_EPS = 8 / 255


@dataclass(frozen=True)
class Ratios:
    """||A(x+xi) - A(x)||_F / ||xi||_2 of one layer, for each image and draw; A is A1 - lambda A2, all heads together."""

    layer: str
    heads: int
    ratios: np.ndarray[Any, np.dtype[np.float64]]  # (n, M)
    map_norm: np.ndarray[Any, np.dtype[np.float64]]  # (n,) ||A(x)||_F, for the relative reading

    def summary(self) -> dict[str, Any]:
        """Means over images: of the largest, mean and root-mean-square ratio over the draws, the largest per head (divided
        by the root of the number of heads, since twins differ in it) and relative to the size of the map."""
        largest = self.ratios.max(axis=1)
        n, draws = self.ratios.shape
        return {
            "layer": self.layer,
            "max": float(largest.mean()),
            "max_se": float(largest.std(ddof=1) / n**0.5) if n > 1 else None,
            "per_head_max": float(largest.mean() / self.heads**0.5),
            "relative_max": float((largest / self.map_norm).mean()),
            "mean": float(self.ratios.mean()),
            "rms": float(np.sqrt((self.ratios**2).mean(axis=1)).mean()),
            "heads": self.heads,
            "n": n,
            "draws": draws,
        }


def l_sample(
    classifier: nn.Module,
    images: ImageSet,
    *,
    draws: int,
    eps: float = PAPER_EPS,
    seed: int = 0,
    batch_size: int = 128,
    device: torch.device | str = "cpu",
) -> list[Ratios]:
    """L-sample (M2.3), per layer: xi uniform on [-eps, eps]^n, not clipped to [0,1], the same xi for every model."""
    if draws < 1:
        raise InputError(f"draws={draws} must be at least 1")
    found: dict[str, list[Tensor]] = {}
    norms: dict[str, list[Tensor]] = {}
    heads: dict[str, int] = {}
    with (
        runtime.frozen(classifier),
        torch.no_grad(),
        console.progress("local Lipschitz", total=len(images) * draws) as advance,
    ):
        for batch in images.batches(batch_size):
            x = batch.pixels.to(device)
            clean = _combined_maps(classifier, x)
            for layer, a in clean.items():
                heads[layer] = a.shape[1]
                norms.setdefault(layer, []).append(a.flatten(1).norm(dim=1).double().cpu())
            columns: dict[str, list[Tensor]] = {layer: [] for layer in clean}
            for m in range(draws):
                unit = runtime.uniform((seed, "lipschitz", m), batch.ids, tuple(x.shape[1:]))
                xi = torch.from_numpy((2 * unit - 1) * eps).to(x)
                for layer, moved in _combined_maps(classifier, x + xi).items():
                    change = (moved - clean[layer]).flatten(1).norm(dim=1)
                    columns[layer].append((change / xi.flatten(1).norm(dim=1)).double().cpu())
                advance(len(x), "")
            for layer, values in columns.items():
                found.setdefault(layer, []).append(torch.stack(values, dim=1))
    return [Ratios(name, heads[name], torch.cat(found[name]).numpy(), torch.cat(norms[name]).numpy()) for name in found]


def _combined_maps(classifier: nn.Module, x: Tensor) -> dict[str, Tensor]:
    with taps(classifier) as record:
        classifier(x)
        return {layer: maps.combined for layer, maps in record.items()}
