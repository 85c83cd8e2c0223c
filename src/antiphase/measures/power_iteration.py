"""The largest singular value of a Jacobian, one per example, without holding a Jacobian (L-power of docs/method.md 2.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphase import runtime
from antiphase.config import InputError

WINDOW = 5  # iterations over which the value must stand still
FEWER = 0.8  # of the examples that are looked at: from here on those that stand still are left out


class SingularValue(NamedTuple):
    """What power iteration found for each example."""

    value: Tensor  # (B,) float64; a lower bound of sigma_max, whatever the number of iterations
    direction: Tensor  # (B, ...) of length 1: where in the input it was found
    iterations: Tensor  # (B,) until it stood still
    converged: Tensor  # (B,) whether it did


def sigma_max(
    f: Callable[[Tensor], Tensor],
    x: Tensor,
    iterations: int = 50,
    tolerance: float = 1e-3,
    *,
    ids: NDArray[np.int64] | None = None,
    seed: int = 0,
    whole: bool = False,
) -> SingularValue:
    """sigma_max(df/dx) of each example of f: (B, ...) -> (B, ...), by v <- J'(J v) / ||.||, forward then reverse mode.

    Row i of f may depend on row i of x alone. Each example stops on its own, when its value has grown by less than
    `tolerance` (relative) over 5 iterations, and is left out from then on; the others do not notice but for the rounding of a
    batch of another size. `whole` is for an f that holds something of each row, and so takes all of them or none. The start
    is drawn from the stream of `ids` (0, 1, ... when not given). The value is sqrt(||J'J v||), between ||J v|| and sigma_max.
    A fused kernel has no forward mode: call it inside `taps.explicit(model)` where f is a model or a part of one.
    """
    if iterations < 1:
        raise InputError(f"iterations={iterations} must be at least 1")
    keys = np.arange(len(x)) if ids is None else ids
    v = _unit(torch.from_numpy(runtime.normal((seed, "singular"), keys, tuple(x.shape[1:]))).to(x))
    pull = torch.func.vjp(f, x)[1]
    value, direction = torch.zeros(len(x), dtype=torch.float64), v.clone()
    taken, active = torch.zeros(len(x), dtype=torch.int64), torch.ones(len(x), dtype=torch.bool)
    rows = torch.arange(len(x))  # that are looked at; x, v and the history are theirs
    history: list[Tensor] = []
    for _ in range(iterations):
        (back,) = pull(runtime.jvp(f, x, v))
        history.append(_length(back).sqrt())
        if not history[-1].isfinite().all():
            raise InputError("the Jacobian is not finite: the weights or the images are broken")
        going = active[rows]
        better = going & (history[-1] >= value[rows])
        value[rows[better]] = history[-1][better]
        direction[rows[better]] = v[better]
        taken[rows[going]] += 1
        v = _unit(back, v)
        if len(history) > WINDOW:
            going &= history[-1] - history[-1 - WINDOW] > tolerance * history[-1]
            active[rows] = going
        if not going.any():
            break
        if not whole and int(going.sum()) <= FEWER * len(rows):
            rows, x, v, history = rows[going], x[going], v[going], [past[going] for past in history[-WINDOW:]]
            pull = torch.func.vjp(f, x)[1]
    return SingularValue(value, direction, taken, ~active)


def _length(v: Tensor) -> Tensor:
    """(B,) float64"""
    length: Tensor = v.flatten(1).norm(dim=1)
    return length.cpu().double()


def _unit(v: Tensor, otherwise: Tensor | None = None) -> Tensor:
    """Each row at length 1; a row that is zero as it was before."""
    length: Tensor = v.flatten(1).norm(dim=1).reshape(-1, *[1] * (v.dim() - 1))
    unit: Tensor = torch.where(length > 0, v / length.clamp_min(1e-30), v if otherwise is None else otherwise)
    return unit
