"""How much of what attention passes on a perturbation changes: the mixed values (A1 - lambda A2) V, relative to their size.

The head norm divides by the size of the mixed values, so it is their relative change that propagates (docs/method.md 1.3, 8.1).
B images of a batch, n of all, h heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console
from antiphase.data.imageset import ImageSet
from antiphase.measures.perturbations import check_names, perturbed
from antiphase.measures.stats import Array, mean_interval
from antiphase.models.attention import Branches
from antiphase.models.taps import look_at_what_is_read
from antiphase.runtime import at_rest


def relative_change(before: Branches, after: Branches) -> Tensor:
    """||m(x + xi) - m(x)|| / ||m(x)|| of the mixed values m of each head, over all its tokens: (B, h)"""
    m = before.mixed
    change: Tensor = (after.mixed - m).flatten(2).norm(dim=2) / m.flatten(2).norm(dim=2)
    return change


@dataclass(frozen=True)
class MixedChange:
    """One layer under one perturbation; of the last layer the class token's values alone, where nothing else is read."""

    layer: str
    perturbation: str
    change: Array  # (n, h)

    def summary(self) -> dict[str, Any]:
        """The mean over heads and images."""
        of_images = mean_interval(self.change.mean(axis=1))
        return {"layer": self.layer, "perturbation": self.perturbation, "relative_change": of_images}

    def rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        """One row per image, mean over heads."""
        return [
            {"image": int(i), "layer": self.layer, "perturbation": self.perturbation, "relative_change": float(value)}
            for i, value in zip(ids, self.change.mean(axis=1))
        ]


def mixed_change(
    classifier: nn.Module,
    images: ImageSet,
    *,
    perturbations: tuple[str, ...] = ("sign", "pgd"),
    eps: float,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> list[MixedChange]:
    """Every attention layer under every perturbation (measures/perturbations.py)."""
    check_names(perturbations)
    parts: dict[tuple[str, str], list[Array]] = {}
    with at_rest(classifier), console.progress("mixed values", total=len(images) * len(perturbations)) as advance:
        for raw in images.batches(batch_size):
            batch = raw.to(device)
            clean = look_at_what_is_read(classifier, batch.pixels)
            for name in perturbations:
                moved = look_at_what_is_read(classifier, perturbed(classifier, batch, name, eps, seed).pixels)
                for layer, maps in clean.items():
                    change = relative_change(maps, moved[layer]).cpu().double().numpy()
                    parts.setdefault((layer, name), []).append(change)
                advance(len(batch.ids), name)
    return [MixedChange(layer, name, np.concatenate(changes)) for (layer, name), changes in parts.items()]
