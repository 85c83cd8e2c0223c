"""Structural facts of a differential layer that the paper leaves out (M1.3), measured on a running model.

B images, h heads, N tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from antiphase import runtime
from antiphase.attacks.losses import cross_entropy
from antiphase.data.imageset import Batch, ImageSet
from antiphase.models.attention import Branches
from antiphase.models.taps import Record, explicit

Array = np.ndarray[Any, np.dtype[np.float64]]


def facts(
    classifier: nn.Module, images: ImageSet, *, seed: int = 0, batch_size: int = 64, device: torch.device | str = "cpu"
) -> dict[str, dict[str, Array]]:
    """loss_cos, row_sum, row_sum_moves, rescaled and projected of every layer with two branches, as `evidence.Layer` has them."""
    parts: dict[str, list[dict[str, Tensor]]] = {}
    with runtime.frozen(classifier):
        for batch in images.batches(batch_size):
            moves = _row_sum_moves(classifier, batch, seed, device)
            for name, (maps, cosine) in _loss_gradients(classifier, batch, device).items():
                measured = {"loss_cos": cosine, "row_sum_moves": moves[name], **_static(maps)}
                parts.setdefault(name, []).append(measured)
    return {
        name: {k: torch.cat([p[k] for p in found]).detach().double().cpu().numpy() for k in found[0]}
        for name, found in parts.items()
    }


def _loss_gradients(
    classifier: nn.Module, batch: Batch, device: torch.device | str
) -> dict[str, tuple[Branches, Tensor]]:
    """cos of dl/dA1 and dl/dA2, (B, h): dl/dA2 = -lambda dl/dA1, whatever the weights. NaN where there is no gradient."""
    with torch.enable_grad(), explicit(classifier) as record:
        x = batch.pixels.to(device).requires_grad_()
        loss = cross_entropy(classifier(x), batch.labels.to(device)).sum()
        two = {name: maps for name, maps in record.items() if maps.noise is not None}
        wanted = [m for maps in two.values() for m in (maps.signal, maps.noise)]
        grads = [g.flatten(2).double() for g in torch.autograd.grad(loss, wanted)]  # type: ignore[arg-type]
    found = {}
    for (name, maps), first, second in zip(two.items(), grads[0::2], grads[1::2]):
        found[name] = maps, (first * second).sum(-1) / (first.norm(dim=-1) * second.norm(dim=-1))
    return found


def _static(maps: Branches) -> dict[str, Tensor]:
    """What the maps of one call say by themselves, (B,) each."""
    assert maps.noise is not None
    with torch.no_grad():
        off = [maps.signal.sum(-1) - 1, maps.noise.sum(-1) - 1, maps.combined.sum(-1) - (1 - maps.lam)]
        normed = maps.normed
        doubled = maps.heads.norm(2 * maps.mixed)
        size = normed.flatten(1).norm(dim=1)
        return {
            "row_sum": torch.stack([o.flatten(1).abs().amax(dim=1) for o in off]).amax(dim=0),
            "rescaled": (doubled - normed).flatten(1).norm(dim=1) / size.clamp_min(1e-30),
            "projected": size,
        }


def _row_sum_moves(classifier: nn.Module, batch: Batch, seed: int, device: torch.device | str) -> dict[str, Tensor]:
    """||J v|| of the row sums of A_DA over ||J v|| of A_DA itself, for one random v: (B,)"""
    x = batch.pixels.to(device)
    v = torch.from_numpy(runtime.normal((seed, "rows"), batch.ids, tuple(x.shape[1:]))).to(x)

    def maps(pixels: Tensor) -> dict[str, Tensor]:
        with explicit(classifier) as record:
            classifier(pixels)
            return _combined(record)

    with torch.no_grad():
        pushed = torch.func.jvp(maps, (x,), (v,))[1]
    return {
        name: p.sum(-1).flatten(1).norm(dim=1) / p.flatten(1).norm(dim=1).clamp_min(1e-30) for name, p in pushed.items()
    }


def _combined(record: Record) -> dict[str, Tensor]:
    return {name: maps.combined for name, maps in record.items() if maps.noise is not None}
