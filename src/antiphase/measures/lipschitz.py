"""Local Lipschitz estimates of attention: by sampling, by power iteration and by search (docs/method.md 2.3).

L_r(x) = sup over 0 < ||xi||_inf <= r of ||f(x+xi) - f(x)||_F / ||xi||_2, where f is a layer's map, the output of the attention
layer or the output of its block. The numerator is flattened over all heads, the denominator is the l2 norm of the pixels'
change; the l-infinity denominator is logged too. All are lower bounds of the true constant, never certificates: L-sample takes
random xi, L-power the worst direction at the image itself, L-ascent climbs inside the ball.
B images of a batch, n of all, h heads, N tokens, M draws.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console, runtime
from antiphase.config import InputError
from antiphase.console import Clock
from antiphase.data.imageset import Batch, Images, ImageSet, as_images
from antiphase.measures.ascent import climb
from antiphase.measures.jacobians_forward import PAPER_EPS
from antiphase.measures.power_iteration import sigma_max
from antiphase.measures.stats import Array, median_finite, over
from antiphase.models.taps import Enough, attention_layers, blocks, explicit, look, outputs
from antiphase.rates import rate
from antiphase.runtime import at_rest
from antiphase.tables import Shown, ShownList, Table, number, short_layer

Level = Literal["maps", "branch", "block"]
LEVELS: dict[Level, str] = {
    "maps": "map A1 - lambda A2, all heads",
    "branch": "output of the attention layer",
    "block": "output of the block, residual stream included",
}
ROUNDING = 1e-4  # relative: what batches of another size may differ by in float32
STEPS = 30


# ------------------------------------------------------------------------------------------------- what is measured
def check_level(level: str) -> None:
    """Refuse a level that is not in the table, before anything is computed."""
    if level not in get_args(Level):
        raise InputError(f"level {level!r} is not known: it takes {', '.join(get_args(Level))}")


def at_level(classifier: nn.Module, x: Tensor, level: Level, layer: str | None = None) -> dict[str, Tensor]:
    """What each attention layer (or one) gives for pixels x: (B, h, N, M) or (B, N, D). Differentiable in both modes."""
    check_level(level)
    only = None if layer is None else [layer]
    if level == "maps":
        return {name: maps.combined for name, maps in look(classifier, x, only).items() if only is None or name in only}
    modules = blocks(classifier) if level == "block" else attention_layers(classifier)
    wanted = {name: module for name, module in modules.items() if only is None or name in only}
    last = next(reversed(wanted.values()))
    with explicit(classifier), outputs(wanted) as out, suppress(Enough):
        handle = last.register_forward_hook(_stop)  # after the hook that keeps its output
        try:
            classifier(x)
        finally:
            handle.remove()
    return out


def _stop(*_: object) -> None:
    raise Enough


def _at_layer(classifier: nn.Module, layer: str, level: Level, x: Tensor) -> Tensor:
    return at_level(classifier, x, level, layer)[layer]


def _norm_of(a: Tensor, layer: str) -> Tensor:
    """(B,) Frobenius norm; what is not a number is refused by the layer's name."""
    if not a.isfinite().all():
        raise InputError(f"what {layer} gives is not finite: the weights or the images are broken")
    norm: Tensor = a.flatten(1).norm(dim=1)
    return norm


def draw(batch_ids: NDArray[np.int64], shape: tuple[int, ...], m: int, eps: float, seed: int) -> Tensor:
    """xi number m of each image: uniform on [-eps, eps]^n, the same for every model. (B, *shape) float64"""
    return torch.from_numpy((2 * runtime.uniform((seed, "lipschitz", m), batch_ids, shape) - 1) * eps)


def change_ratio(moved: Tensor, clean: Tensor, xi: Tensor) -> Tensor:
    """||f(x+xi) - f(x)|| / ||xi||_2 of each image: (B,)"""
    ratio: Tensor = (moved - clean).flatten(1).norm(dim=1) / xi.flatten(1).norm(dim=1)
    return ratio


# ------------------------------------------------------------------------------------------------- L-sample
@dataclass(frozen=True, repr=False)
class SampledLipschitz(Shown):
    """||f(x+xi) - f(x)|| / ||xi|| of one layer at one level, for each image and draw."""

    layer: str
    level: Level
    heads: int  # 1 where the level has no heads
    ratios: Array  # (n, M) over ||xi||_2
    linf: Array  # (n, M) over ||xi||_inf
    size: Array  # (n,) ||f(x)||_F, for the relative reading
    spectral: Array | None = None  # (n, M) mean over heads of the operator norm of the N x N change, over ||xi||_2
    ids: NDArray[np.int64] | None = None  # (n,) of the images, where they are known

    def __repr__(self) -> str:
        return f"<SampledLipschitz of {self.layer}, {self.level}: {len(self.ratios)} images>"

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
        """One row per image."""
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

    def table(self) -> Table:
        """That of all layers, with one row."""
        return SampledLayers([self]).table()

    def records(self) -> list[dict[str, Any]]:
        """One per image; images go by their ids, or by their places where these are not known."""
        return self.rows(np.arange(len(self.ratios)) if self.ids is None else self.ids)


class SampledLayers(ShownList[SampledLipschitz]):
    """L-sample of several layers on the same images."""

    def table(self) -> Table:
        """A row for each layer."""
        layers, keys = self.summary(), ("max", "max_se", "per_head_max", "relative_max", "mean", "rms")
        first = layers[0]
        return Table(
            f"local Lipschitz estimate of {first['level']}: {first['n']:,} images, {first['draws']} draws; means over images, "
            "lower bounds",
            ("layer", *(key.replace("_", " ") for key in keys)),
            [(short_layer(row["layer"]), *(number(row[key]) for key in keys)) for row in layers],
        )


def l_sample(
    classifier: nn.Module,
    images: Images,
    *,
    draws: int,
    level: Level = "maps",
    eps: float = PAPER_EPS,
    clip: bool = False,
    spectral: bool = False,
    seed: int = 0,
    batch_size: int = 128,
    device: torch.device | str = "cpu",
) -> SampledLayers:
    """L-sample of every layer: xi uniform on [-eps, eps]^n, the same xi for every model; with `clip`, x+xi in [0,1]."""
    images = as_images(images)
    if draws < 1:
        raise InputError(f"draws={draws} must be at least 1")
    if not 0 < eps < float("inf"):  # NaN fails both comparisons
        raise InputError(f"eps={eps} must be a finite number above 0")
    if spectral and level != "maps":
        raise InputError(f"the spectral norm per head is of maps: level={level} has none")
    parts: dict[str, list[tuple[Tensor, ...]]] = {}
    heads: dict[str, int] = {}
    clock = Clock(f"L-sample of {level}", images, "fewer draws")
    with at_rest(classifier), console.progress(clock.label, total=len(images) * draws) as advance:
        for batch in images.batches(batch_size):
            x = batch.pixels.to(device)
            clean = at_level(classifier, x, level)
            by_draw: dict[str, list[tuple[Tensor, ...]]] = {layer: [] for layer in clean}
            for m in range(draws):
                moved = x + draw(batch.ids, tuple(x.shape[1:]), m, eps, seed).to(x)
                moved = moved.clamp(0, 1) if clip else moved
                with clock.part(len(x) / draws):
                    for layer, a in at_level(classifier, moved, level).items():
                        by_draw[layer].append(_ratios(a - clean[layer], moved - x, spectral))
                advance(len(x), "")
            for layer, values in by_draw.items():
                heads[layer] = clean[layer].shape[1] if level == "maps" else 1
                stacked = tuple(torch.stack(column, dim=1).double().cpu() for column in zip(*values))
                if not all(column.isfinite().all() for column in stacked):
                    raise InputError(f"eps={eps:g} is lost when {layer} or its pixels are rounded: take a larger one")
                parts.setdefault(layer, []).append((_norm_of(clean[layer], layer).double().cpu(), *stacked))
    joined = {layer: [torch.cat(column).numpy() for column in zip(*part)] for layer, part in parts.items()}
    return SampledLayers(
        SampledLipschitz(layer, level, heads[layer], l2, linf, size, spectra[0] if spectra else None, images.ids)
        for layer, (size, l2, linf, *spectra) in joined.items()
    )


def _ratios(change: Tensor, xi: Tensor, spectral: bool) -> tuple[Tensor, ...]:
    """||change|| over ||xi||_2 and over ||xi||_inf, and the spectral one where it is wanted: (B,) each"""
    size, flat = change.flatten(1).norm(dim=1), xi.flatten(1)
    l2 = flat.norm(dim=1)
    ratios = (size / l2, size / flat.abs().amax(dim=1))
    return (*ratios, torch.linalg.matrix_norm(change, ord=2).mean(dim=1) / l2) if spectral else ratios


# ------------------------------------------------------------------------------------------------- L-power, L-ascent
@dataclass(frozen=True)
class SearchedLipschitz:
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
            "sample_short_by": median_finite(over(self.ascent, self.sample)),  # None for a layer that never moves
            "n": len(self.sample),
        }

    def rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        """One row per image."""
        values = {name: getattr(self, name) for name in ("sample", "power", "ascent", "size")}
        return [
            {"layer": self.layer, "level": self.level, "image": int(image)}
            | {name: float(value[i]) for name, value in values.items()}
            for i, image in enumerate(ids)
        ]


def l_search(
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
) -> list[SearchedLipschitz]:
    """L-sample, L-power and L-ascent of every layer.

    The ascent starts from the top singular vector (scaled to the ball), the best random draw and two more draws, climbs
    log||change|| - log||xi||_2 and keeps the best point of each image, its starts included.
    """
    layers = list(attention_layers(classifier))
    parts: dict[str, list[tuple[Tensor, ...]]] = {layer: [] for layer in layers}
    clock = Clock(f"L-power and L-ascent of {level}", images, "L-sample alone")
    with at_rest(classifier), console.progress(clock.label, total=len(images) * len(layers)) as advance:
        for batch in images.batches(batch_size):
            for number, layer in enumerate(layers, 1):
                with clock.part(len(batch.ids) * number / sum(range(len(layers) + 1))):  # all blocks before it are run
                    f = partial(_at_layer, classifier, layer, level)
                    parts[layer].append(_search(f, batch, draws, eps, steps, iterations, seed, layer, device))
                advance(len(batch.ids), layer)
    return [
        SearchedLipschitz(layer, level, *(torch.cat(c).double().cpu().numpy() for c in zip(*part)))
        for layer, part in parts.items()
    ]


def _search(
    f: Callable[[Tensor], Tensor],
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
    size = _norm_of(clean, layer)
    random = [draw(batch.ids, tuple(x.shape[1:]), m, eps, seed).to(x) for m in range(max(draws, 3))]
    ratios = torch.stack([change_ratio(f(x + xi), clean, xi) for xi in random[:draws]])
    sample, which = ratios.max(dim=0)
    power, v, _, _ = sigma_max(f, x, iterations, ids=batch.ids, seed=seed)
    top = v * (eps / v.flatten(1).abs().amax(dim=1).clamp_min(1e-30))[:, None, None, None]
    drawn = torch.stack(random[:draws])[which, torch.arange(len(x))]
    starts = [(top, False), (drawn, True), (random[-1], True), (random[-2], True)]
    ascent = torch.stack([_largest_ratio(f, x, clean, xi, eps, steps, by_signs) for xi, by_signs in starts])
    return size, sample, power, ascent.amax(dim=0)


def _largest_ratio(
    f: Callable[[Tensor], Tensor], x: Tensor, clean: Tensor, start: Tensor, eps: float, steps: int, by_signs: bool
) -> Tensor:
    """The largest ratio on the way up from xi = start: (B,)

    By signs, as in an attack, which goes far from a random start but throws away the direction of a singular vector; or
    along the gradient, by a share of xi's own length.
    """

    def step(xi: Tensor, gradient: Tensor, share: float) -> Tensor:
        if by_signs:
            return (xi + eps / 4 * share * gradient.sign()).clamp(-eps, eps)
        return (xi + 0.3 * share * _length(xi) * gradient / _length(gradient).clamp_min(1e-30)).clamp(-eps, eps)

    _, best = climb(
        lambda xi: change_ratio(f(x + xi), clean, xi),
        start,
        step,
        steps,
        slope_of=lambda ratio: ratio.clamp_min(1e-30).log(),
    )
    return best.clamp_min(0)


def _length(v: Tensor) -> Tensor:
    """(B, 1, 1, 1)"""
    length: Tensor = v.flatten(1).norm(dim=1)
    return length[:, None, None, None]
