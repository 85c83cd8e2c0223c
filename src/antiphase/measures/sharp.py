"""Local Lipschitz estimates that look for the worst direction: L-power at the image itself, L-ascent inside the ball.

Both are lower bounds, as any search is; they come nearer to the supremum than sampling does, and by how much is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console
from antiphase.data.imageset import Batch, ImageSet
from antiphase.measures.interval import rate
from antiphase.measures.levels import Level, at_level
from antiphase.measures.lipschitz import draw, size_of
from antiphase.measures.paired import over
from antiphase.measures.probes import PAPER_EPS, Clock, at_rest
from antiphase.measures.singular import sigma_max
from antiphase.models.taps import attention_layers

Array = np.ndarray[Any, np.dtype[np.float64]]
ROUNDING = 1e-4  # relative: what batches of another size may differ by in float32
STEPS = 30


@dataclass(frozen=True)
class Sharp:
    """The three estimates of one layer at one level on the same images, all over ||xi||_2."""

    layer: str
    level: Level
    size: Array  # (n,) norm of what is measured
    sample: Array  # (n,) largest of M random draws
    power: Array  # (n,) ||J(x)||_op from below
    ascent: Array  # (n,) largest ratio that was found inside the ball

    def summary(self) -> dict[str, Any]:
        """Means over images, the order that must hold (checked, not assumed), and by how much sampling falls short."""
        values = {name: getattr(self, name) for name in ("sample", "power", "ascent")}
        return {
            "layer": self.layer,
            "level": self.level,
            **{name: float(value.mean()) for name, value in values.items()},
            **{
                f"relative_{name}": float(np.nan_to_num(over(value, self.size)).mean())
                for name, value in values.items()
            },
            "sample_at_most_ascent": rate(self.sample <= self.ascent * (1 + ROUNDING)).plain(),
            "power_above_ascent": rate(self.power > self.ascent * (1 + ROUNDING)).plain(),
            "sample_short_by": _median(over(self.ascent, self.sample)),
            "n": len(self.sample),
        }

    def rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        values = {name: getattr(self, name) for name in ("sample", "power", "ascent", "size")}
        return [
            {"layer": self.layer, "level": self.level, "image": int(image)}
            | {name: float(value[i]) for name, value in values.items()}
            for i, image in enumerate(ids)
        ]


def l_sharp(
    classifier: nn.Module,
    images: ImageSet,
    *,
    draws: int,
    level: Level = "maps",
    eps: float = PAPER_EPS,
    steps: int = STEPS,
    iterations: int = 50,
    seed: int = 0,
    batch_size: int = 32,
    device: torch.device | str = "cpu",
) -> list[Sharp]:
    """L-sample, L-power and L-ascent (M2.3) of every layer.

    The ascent starts from the top singular vector (scaled to the ball), the best random draw and two more draws, climbs
    log||change|| - log||xi||_2 and keeps the best point of each image, its starts included.
    """
    layers = list(attention_layers(classifier))
    parts: dict[str, list[tuple[Tensor, ...]]] = {layer: [] for layer in layers}
    clock = Clock(f"L-power and L-ascent of {level}", images, "L-sample alone")
    with at_rest(classifier), console.progress(clock.label, total=len(images) * len(layers)) as advance:
        for batch in images.batches(batch_size):
            for layer in layers:
                with clock.part(len(batch.ids) / len(layers)):
                    f = partial(_one, classifier, layer, level)
                    parts[layer].append(_search(f, batch, draws, eps, steps, iterations, seed, layer, device))
                advance(len(batch.ids), layer)
    return [
        Sharp(layer, level, *(torch.cat(c).double().cpu().numpy() for c in zip(*found)))
        for layer, found in parts.items()
    ]


def _median(values: Array) -> float | None:
    """None for a layer that never moves: there is nothing to fall short of."""
    there = values[np.isfinite(values)]
    return float(np.median(there)) if len(there) else None


def _one(classifier: nn.Module, layer: str, level: Level, x: Tensor) -> Tensor:
    return at_level(classifier, x, level, layer)[layer]


def _search(
    f: Any,
    batch: Batch,
    draws: int,
    eps: float,
    steps: int,
    iterations: int,
    seed: int,
    layer: str,
    device: torch.device | str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """size, sample, power, ascent of one layer on one batch, (B,) each."""
    x = batch.pixels.to(device)
    clean = f(x)
    size = size_of(clean, layer)
    random = [draw(batch.ids, tuple(x.shape[1:]), m, eps, seed).to(x) for m in range(max(draws, 3))]
    ratios = torch.stack([_ratio(f(x + xi), clean, xi) for xi in random[:draws]])
    sample, which = ratios.max(dim=0)
    power, v, _, _ = sigma_max(f, x, iterations, ids=batch.ids, seed=seed)
    top = v * (eps / v.flatten(1).abs().amax(dim=1).clamp_min(1e-30))[:, None, None, None]
    drawn = torch.stack(random[:draws])[which, torch.arange(len(x))]
    starts = [(top, False), (drawn, True), (random[-1], True), (random[-2], True)]
    ascent = torch.stack([_climb(f, x, clean, xi, eps, steps, by_signs) for xi, by_signs in starts]).amax(dim=0)
    return size, sample, power, ascent


def _ratio(moved: Tensor, clean: Tensor, xi: Tensor) -> Tensor:
    ratio: Tensor = (moved - clean).flatten(1).norm(dim=1) / xi.flatten(1).norm(dim=1)
    return ratio


def _length(v: Tensor) -> Tensor:
    """(B, 1, 1, 1)"""
    length: Tensor = v.flatten(1).norm(dim=1)
    return length[:, None, None, None]


def _climb(f: Any, x: Tensor, clean: Tensor, xi: Tensor, eps: float, steps: int, by_signs: bool) -> Tensor:
    """The largest ratio on the way up, with steps that shrink: (B,)

    By signs, as in an attack, which goes far from a random start but throws away the direction of a singular vector; or
    along the gradient, by a share of xi's own length.
    """
    best = x.new_zeros(len(x))
    for step in range(steps + 1):
        with torch.enable_grad():
            leaf = xi.detach().requires_grad_()
            ratio = _ratio(f(x + leaf), clean, leaf)
            (grad,) = torch.autograd.grad(ratio.clamp_min(1e-30).log().sum(), leaf)
        best = torch.maximum(best, ratio.detach().nan_to_num())
        left, xi, grad = 1 - step / (steps + 1), leaf.detach(), grad.nan_to_num()
        if by_signs:
            xi = (xi + eps / 4 * left * grad.sign()).clamp(-eps, eps)
        else:
            xi = (xi + 0.3 * left * _length(xi) * grad / _length(grad).clamp_min(1e-30)).clamp(-eps, eps)
    return best
