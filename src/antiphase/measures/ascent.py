"""How far an adversary moves the sensitivity: gradient ascent on ||J_DA|| / ||J_ref|| inside the ball (the "exists" of Thm 3).

The Jacobians' norms are estimated with a few fixed directions by forward mode, and the estimate is differentiated by reverse
mode. Such an estimate flatters the point it was driven to: judge it with fresh directions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from antiphase import runtime
from antiphase.attacks.losses import cross_entropy
from antiphase.data.imageset import Batch
from antiphase.models.taps import attention_layers, explicit

Objective = Callable[[Tensor], Tensor]  # pixels (B, C, H, W) -> (B,)
STEPS = 10
DIRECTIONS = 4


def climb(objective: Objective, x: Tensor, start: Tensor, eps: float, steps: int) -> Tensor:
    """The best point on the way up by signs, with steps that shrink, inside the Linf ball and [0,1]."""
    z, best_z, best = start.clamp(0, 1), start.clamp(0, 1), x.new_full((len(x),), -torch.inf)
    for step in range(steps + 1):
        with torch.enable_grad():
            leaf = z.detach().requires_grad_()
            value = objective(leaf)
            (grad,) = torch.autograd.grad(value.sum(), leaf)
        better = value.detach().nan_to_num(nan=-torch.inf) > best
        best = torch.where(better, value.detach(), best)
        best_z = torch.where(better[:, None, None, None], z, best_z)
        size = eps / 2 * (1 - step / (steps + 1))
        z = (x + (z + size * grad.nan_to_num().sign() - x).clamp(-eps, eps)).clamp(0, 1)
    return best_z


def amplified(
    classifier: nn.Module,
    base: nn.Module | None,
    batch: Batch,
    *,
    eps: float,
    steps: int = STEPS,
    directions: int = DIRECTIONS,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Pixels near each image at which the differential maps are as sensitive as they can be made, next to the reference.

    The reference is the baseline's map at the same depth, or A1 of the same layer. All layers are driven together.
    """
    x = batch.pixels.to(device)
    vs = [
        torch.from_numpy(runtime.normal((seed, "sway", k), batch.ids, tuple(x.shape[1:]))).to(x)
        for k in range(directions)
    ]
    start = x + torch.from_numpy(2 * runtime.uniform((seed, "sway"), batch.ids, tuple(x.shape[1:])) - 1).to(x) * eps / 4

    def objective(z: Tensor) -> Tensor:
        above, below = _energies(classifier, z, vs), None if base is None else _energies(base, z, vs)
        total = z.new_zeros(len(z))
        for layer, (first, combined) in above.items():
            if combined is not None:
                total = total + combined.log() - (first if below is None else below[layer][0]).log()
        return total

    return climb(objective, x, start, eps, steps)


def _energies(classifier: nn.Module, z: Tensor, vs: list[Tensor]) -> dict[int, tuple[Tensor, Tensor | None]]:
    """sum over v of ||J1 v||^2 and, where there are two branches, of ||J_DA v||^2, by the layer's place: (B,) each"""
    names = list(attention_layers(classifier))

    def maps(pixels: Tensor) -> dict[int, tuple[Tensor, ...]]:
        with explicit(classifier) as record:
            classifier(pixels)
            return {
                i: (record[n].signal,) if record[n].noise is None else (record[n].signal, record[n].combined)
                for i, n in enumerate(names)
            }

    found: dict[int, list[Tensor]] = {}
    for v in vs:
        for i, pushed in torch.func.jvp(maps, (z,), (v,))[1].items():
            energy = torch.stack([p.flatten(1).pow(2).sum(dim=1) for p in pushed])
            found.setdefault(i, []).append(energy)
    return {
        i: (e[0], e[1] if len(e) > 1 else None) for i, e in ((i, torch.stack(es).sum(0)) for i, es in found.items())
    }


def attacked(
    classifier: nn.Module, batch: Batch, *, eps: float, steps: int = STEPS, device: torch.device | str = "cpu"
) -> Tensor:
    """PGD on the cross-entropy from the image itself: where an ordinary attack ends, whether it succeeds or not."""
    x, y = batch.pixels.to(device), batch.labels.to(device)
    return climb(lambda z: cross_entropy(classifier(z), y), x, x, eps, steps)
