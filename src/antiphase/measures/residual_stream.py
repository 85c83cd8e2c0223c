"""How a perturbation travels along the residual stream: its size after every block, gains, and what the gains could be.

h^(0) enters the first block, h^(k) leaves block k; d^(k) is the difference of h^(k) between a perturbed and the clean image
(docs/method.md 2.4). Defined for softmax and differential models alike; lambda may depend on the input. B images of a batch, n of
all, L blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console
from antiphase.config import InputError
from antiphase.console import Clock
from antiphase.data.imageset import ImageSet
from antiphase.measures.jacobians_forward import PAPER_EPS
from antiphase.measures.perturbations import check_names, eps_of, perturbed
from antiphase.measures.power_iteration import sigma_max
from antiphase.measures.stats import Array, finite, geometric_interval, mean_interval, over, sign_of
from antiphase.models.adapters import adapter_of
from antiphase.models.attention import branches
from antiphase.models.forwards import replaced
from antiphase.models.taps import Record, attention_layers, blocks, explicit
from antiphase.rates import rate
from antiphase.runtime import at_rest


@dataclass(frozen=True)
class Propagation:
    """All blocks of a model under one perturbation."""

    layers: tuple[str, ...]  # attention layer of each block
    perturbation: str
    eps: float | None  # None for corruptions, which have a size of their own
    change: Array  # (n, L+1) ||d^(k)||
    stream: Array  # (n, L+1) ||h^(k)|| on the clean image
    without: Array  # (n, L) ||d^(k)|| of block k alone had lambda = 0 there, same d^(k-1); NaN for softmax layers
    sigma: Array  # (n, L) sigma_max of the block's Jacobian at the clean point, a lower bound; NaN if not measured
    l2: Array  # (n,) of the perturbation, as it was reached
    linf: Array  # (n,)

    @property
    def relative(self) -> Array:
        """(n, L+1): ||d^(k)|| / ||h^(k)||"""
        return over(self.change, self.stream)

    @property
    def gains(self) -> Array:
        """(n, L): g^(k) = ||d^(k)|| / ||d^(k-1)||"""
        return over(self.change[:, 1:], self.change[:, :-1])

    @property
    def slack(self) -> Array:
        """(n, L): alpha_slack, the gain as a share of the largest that the block has for small changes. It may exceed 1:
        the change is finite and the block is not linear, and sigma is a lower bound."""
        return over(self.gains, self.sigma)

    @property
    def counterfactual(self) -> Array:
        """(n, L): alpha_cf, ||d^(k)|| over what it would be without the subtraction in block k, its norm active"""
        return over(self.change[:, 1:], self.without)

    @property
    def mean_gain(self) -> Array:
        """(n,): geometric mean over the blocks; the product of the gains telescopes"""
        mean: Array = over(self.change[:, -1], self.change[:, 0]) ** (1 / len(self.layers))
        return mean

    def summary(self) -> dict[str, Any]:
        """Means over images. `mean_gain` is geometric over blocks and images; perturbations are attenuated iff its interval
        is below 1 (`attenuates`: true, false, or None where the interval holds 1)."""
        gain = geometric_interval(self.mean_gain)
        below = sign_of(gain, zero=1.0)
        return {
            "perturbation": self.perturbation,
            "eps": self.eps,
            "layers": list(self.layers),
            "change": [mean_interval(column) for column in self.change.T],
            "relative": [mean_interval(column) for column in self.relative.T],
            "gains": [geometric_interval(column) for column in self.gains.T],
            "mean_gain": gain,
            "attenuates": None if below is None else below < 0,
            "sigma": [mean_interval(column) for column in self.sigma.T],
            "slack": [mean_interval(column) for column in self.slack.T],
            "slack_exceeds_1": [rate(column > 1, where=np.isfinite(column)).plain() for column in self.slack.T],
            "counterfactual": [geometric_interval(column) for column in self.counterfactual.T],
            "l2": float(self.l2.mean()),
            "linf": float(self.linf.max()),
            "images": len(self.l2),
        }

    def rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        """One row per image and depth, raw numbers first; depth 0 is the stream before the first block."""
        tables = {"change": self.change, "stream": self.stream, "relative": self.relative}
        for name in ("without", "sigma", "gains", "slack", "counterfactual"):  # of a block: nothing at depth 0
            tables[name.removesuffix("s")] = np.pad(getattr(self, name), [(0, 0), (1, 0)], constant_values=np.nan)
        return [
            {"layer": layer, "depth": k, "image": int(image), "perturbation": self.perturbation}
            | {"eps": self.eps, "l2": float(self.l2[i]), "linf": float(self.linf[i])}
            | {name: finite(table[i, k]) for name, table in tables.items()}
            | {"exceeds_1": bool(k and self.slack[i, k - 1] > 1)}
            for i, image in enumerate(ids)
            for k, layer in enumerate((None, *self.layers))
        ]


def propagation(
    classifier: nn.Module,
    images: ImageSet,
    *,
    perturbations: tuple[str, ...] = ("sign", "fgsm", "pgd"),
    eps: float = PAPER_EPS,
    sigma: Array | None = None,
    clip: bool = True,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> list[Propagation]:
    """Depth curves under each perturbation. alpha_slack needs `sigma=block_sigma(classifier, images)`: it is the costly part
    and the same for every perturbation and eps."""
    check_names(perturbations)
    layers: tuple[str, ...] = ()
    parts: dict[str, list[list[Array]]] = {name: [] for name in perturbations}
    with at_rest(classifier), console.progress("propagation", total=len(images) * len(perturbations)) as advance:
        for raw in images.batches(batch_size):
            batch = raw.to(device)
            clean = block_calls(classifier, batch.pixels)
            layers = tuple(call.layer for call in clean)
            bound = _checked(sigma, len(images), len(layers))
            for name in perturbations:
                moved = perturbed(classifier, batch, name, eps, seed, clip=clip)
                parts[name].append([*_curves(clean, block_calls(classifier, moved.pixels)), moved.l2, moved.linf])
                advance(len(batch.ids), name)
    joined = {name: [np.concatenate(column) for column in zip(*part)] for name, part in parts.items()}
    return [
        Propagation(layers, name, eps_of(name, eps), change, stream, without, bound, l2, linf)
        for name, (change, stream, without, l2, linf) in joined.items()
    ]


def _checked(sigma: Array | None, images: int, blocks: int) -> Array:
    if sigma is None:
        return np.full((images, blocks), np.nan)
    if sigma.shape != (images, blocks):
        raise InputError(f"sigma is for {sigma.shape} images and blocks, these are {(images, blocks)}")
    return sigma


def block_sigma(
    classifier: nn.Module,
    images: ImageSet,
    *,
    iterations: int = 50,
    tolerance: float = 1e-3,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> Array:
    """sigma_max(dh^(k) / dh^(k-1)) of every block at the clean images, lower bounds: (n, L)"""
    parts: list[Array] = []
    clock = Clock("block Lipschitz", images, "fewer iterations")
    with at_rest(classifier), console.progress("block Lipschitz", total=len(images)) as advance:
        for raw in images.batches(batch_size):
            with clock.part(len(raw.ids)), explicit(classifier):
                values = [
                    call.sigma(iterations, tolerance, raw.ids, seed)
                    for call in block_calls(classifier, raw.to(device).pixels)
                ]
            parts.append(torch.stack(values, dim=1).numpy())
            advance(len(raw.ids), "")
    return np.concatenate(parts)


def _curves(clean: list[BlockCall], moved: list[BlockCall]) -> tuple[Array, Array, Array]:
    """||d^(k)||, ||h^(k)||: (B, L+1) each, and ||d^(k)|| without the subtraction in block k: (B, L)"""
    streams = [clean[0].before, *(call.after for call in clean)]
    perturbed_streams = [moved[0].before, *(call.after for call in moved)]
    change = [_norm(b - a) for a, b in zip(streams, perturbed_streams)]
    without = [_without(a, b) for a, b in zip(clean, moved)]
    return np.stack(change, axis=1), np.stack([_norm(h) for h in streams], axis=1), np.stack(without, axis=1)


def _without(clean: BlockCall, moved: BlockCall) -> Array:
    """(B,); NaN for a layer that has nothing to subtract"""
    if not clean.subtracts:
        return np.full(len(clean.before), np.nan)
    with without_subtraction(clean.attention):
        return _norm(clean.block(moved.before) - clean.block(clean.before))


def _norm(h: Tensor) -> Array:
    norm: Array = h.flatten(1).cpu().double().norm(dim=1).numpy()
    return norm


# ------------------------------------------------------------------------------------------------- the blocks as they were called
class BlockCall(NamedTuple):
    """One block of the residual stream as it was called."""

    layer: str
    attention: nn.Module
    subtracts: bool  # it has two branches
    before: Tensor  # (B, ...)
    after: Tensor  # (B, ...)
    block: Callable[[Tensor], Tensor]  # the block itself, with whatever else it was called with
    alone: bool  # it was called with nothing else that could belong to single examples

    def sigma(self, iterations: int, tolerance: float, ids: NDArray[np.int64], seed: int) -> Tensor:
        """sigma_max(dh^(k) / dh^(k-1)) at `before`, a lower bound: (B,)"""
        return sigma_max(self.block, self.before, iterations, tolerance, ids=ids, seed=seed, whole=not self.alone).value


def block_calls(classifier: nn.Module, pixels: Tensor) -> list[BlockCall]:
    """The residual stream through every block, in the order of the calls. Blocks must follow one another."""
    calls: list[BlockCall] = []
    attentions = attention_layers(classifier)
    handles = []
    with explicit(classifier) as record:
        for layer, block in blocks(classifier).items():
            tap = partial(_keep, calls, record, layer, attentions[layer])
            handles.append(block.register_forward_hook(tap, with_kwargs=True))
        try:
            classifier(pixels)
        finally:
            for handle in handles:
                handle.remove()
    if not calls:
        raise InputError(f"this {type(classifier).__name__} never calls the blocks around its attention layers")
    for one, two in pairwise(calls):
        if not torch.equal(one.after, two.before):
            raise InputError(
                f"what leaves the block of {one.layer} is not what enters that of {two.layer}: no single stream"
            )
    for call in calls:
        if not call.after.isfinite().all():
            raise InputError(
                f"the output of the block of {call.layer} is not finite: the weights or the images are broken"
            )
    return calls


def _keep(
    calls: list[BlockCall],
    record: Record,
    layer: str,
    attention: nn.Module,
    block: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    out: Any,
) -> None:
    again = partial(_call, block, args[1:], kwargs)
    alone = all(more is None or isinstance(more, bool | int | float | str) for more in (*args[1:], *kwargs.values()))
    calls.append(BlockCall(layer, attention, record[layer].noise is not None, args[0], _first(out), again, alone))


def _call(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], h: Tensor) -> Tensor:
    return _first(block(h, *args, **kwargs))


def _first(out: Any) -> Tensor:
    first: Tensor = out[0] if isinstance(out, tuple) else out
    return first


@contextmanager
def without_subtraction(attention: nn.Module) -> Iterator[None]:
    """Inside, lambda of this layer is 0; norm, gain and projection are as they were."""
    adapter = adapter_of(attention)
    assert adapter is not None

    def forward(*args: Any, **kwargs: Any) -> Any:
        heads = adapter(attention, *args, **kwargs)
        assert heads.lam is not None
        return branches(replace(heads, lam=torch.zeros_like(heads.lam))).output

    with replaced({attention: forward}):
        yield
