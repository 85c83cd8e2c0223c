"""The largest singular value of a Jacobian, without the Jacobian: power iteration by forward mode, then reverse mode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphase import runtime

WINDOW = 5  # iterations over which the value must have stood still


def sigma_max(
    f: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    ids: NDArray[np.int64] | None = None,
    seed: int = 0,
    iterations: int = 50,
    tolerance: float = 1e-3,
) -> tuple[Tensor, Tensor]:
    """||J||_op of f at each example of x: (B, ...), where f works on every example alone, and its right singular vector.

    v <- J'(J v) / ||.||. The value is ||J v|| of a unit vector v: a lower bound whatever happened before, L-power of M2.3.
    It stops where no example moved by more than `tolerance` (relative) over the last iterations.
    """
    ids = np.arange(len(x)) if ids is None else ids
    v = torch.from_numpy(runtime.normal((seed, "power"), ids, tuple(x.shape[1:]))).to(x)
    best, best_v = x.new_zeros(len(x)), _unit(v)
    seen: list[Tensor] = []
    pull = torch.func.vjp(f, x)[1]
    v = best_v
    for _ in range(iterations):
        pushed = torch.func.jvp(f, (x,), (v,))[1].detach()
        size = pushed.flatten(1).norm(dim=1)
        better = size > best
        best, best_v = torch.where(better, size, best), torch.where(_like(better, v), v, best_v)
        seen.append(best)
        if len(seen) > WINDOW and bool((best - seen[-1 - WINDOW] <= tolerance * best).all()):
            break
        v = _unit(pull(pushed)[0].detach())
    return best, best_v


def _unit(v: Tensor) -> Tensor:
    return v / _like(v.flatten(1).norm(dim=1).clamp_min(torch.finfo(v.dtype).tiny), v)


def _like(per_example: Tensor, x: Tensor) -> Tensor:
    return per_example.reshape(-1, *[1] * (x.dim() - 1))
