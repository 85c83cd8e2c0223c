"""Gradient ascent inside a ball, and where it leads: to the largest sensitivity of the maps, or of the loss.

`climb` is the one ascent loop of the measures. `amplified` drives ||J_DA|| / ||J_ref|| up (the "exists" of Theorem 3,
docs/method.md 1.2): the Jacobians' norms are estimated with a few fixed directions by forward mode, and the estimate is
differentiated by reverse mode. Such an estimate flatters the point it was driven to: judge it with fresh directions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from antiphase import runtime
from antiphase.attacks.losses import cross_entropy
from antiphase.data.imageset import Batch
from antiphase.models.taps import attention_layers, look

Objective = Callable[[Tensor], Tensor]  # points (B, C, H, W) -> (B,)
Step = Callable[[Tensor, Tensor, float], Tensor]  # point, gradient, share of the full step -> the next point, projected
STEPS = 10
DIRECTIONS = 4


def climb(
    objective: Objective,
    start: Tensor,
    step: Step,
    steps: int,
    *,
    slope_of: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The best point on the way up and its value (B,), the start included; -inf where every value was NaN.

    Steps shrink linearly. The gradient is that of the objective, or of `slope_of(objective)`, an increasing function of it.
    """
    point, best_point, best = start, start, start.new_full((len(start),), -torch.inf)
    for k in range(steps + 1):
        with torch.enable_grad():
            leaf = point.detach().requires_grad_()
            value = objective(leaf)
            (gradient,) = torch.autograd.grad((value if slope_of is None else slope_of(value)).sum(), leaf)
        reached = value.detach().nan_to_num(nan=-torch.inf)
        better = reached > best
        best = torch.where(better, reached, best)
        best_point = torch.where(better[:, None, None, None], point, best_point)
        point = step(leaf.detach(), gradient.nan_to_num(), 1 - k / (steps + 1))
    return best_point, best


def climb_near(objective: Objective, x: Tensor, start: Tensor, eps: float, steps: int) -> Tensor:
    """The best point that ascent by signs finds within eps of x in every pixel, and within [0,1]."""

    def step(z: Tensor, gradient: Tensor, share: float) -> Tensor:
        return (x + (z + eps / 2 * share * gradient.sign() - x).clamp(-eps, eps)).clamp(0, 1)

    return climb(objective, start.clamp(0, 1), step, steps)[0]


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
    shape = tuple(x.shape[1:])  # "sway" below names the random stream: stored audits were drawn from it
    vs = [torch.from_numpy(runtime.normal((seed, "sway", k), batch.ids, shape)).to(x) for k in range(directions)]
    start = x + torch.from_numpy(2 * runtime.uniform((seed, "sway"), batch.ids, shape) - 1).to(x) * eps / 4

    def objective(z: Tensor) -> Tensor:
        above, below = _energies(classifier, z, vs), None if base is None else _energies(base, z, vs)
        total = z.new_zeros(len(z))
        for layer, (first, combined) in above.items():
            if combined is not None:
                total = total + combined.log() - (first if below is None else below[layer][0]).log()
        return total

    return climb_near(objective, x, start, eps, steps)


def _energies(classifier: nn.Module, z: Tensor, vs: list[Tensor]) -> dict[int, tuple[Tensor, Tensor | None]]:
    """sum over v of ||J1 v||^2 and, where there are two branches, of ||J_DA v||^2, by the layer's place: (B,) each"""
    names = list(attention_layers(classifier))

    def maps(pixels: Tensor) -> dict[int, tuple[Tensor, ...]]:
        record = look(classifier, pixels)
        return {
            i: (record[n].signal,) if record[n].noise is None else (record[n].signal, record[n].combined)
            for i, n in enumerate(names)
        }

    by_layer: dict[int, list[Tensor]] = {}
    for v in vs:
        for i, pushed in runtime.jvp(maps, z, v).items():
            energy = torch.stack([p.flatten(1).pow(2).sum(dim=1) for p in pushed])
            by_layer.setdefault(i, []).append(energy)
    sums = {i: torch.stack(energies).sum(0) for i, energies in by_layer.items()}
    return {i: (total[0], total[1] if len(total) > 1 else None) for i, total in sums.items()}


def attacked(
    classifier: nn.Module, batch: Batch, *, eps: float, steps: int = STEPS, device: torch.device | str = "cpu"
) -> Tensor:
    """PGD on the cross-entropy from the image itself: where an ordinary attack ends, whether it succeeds or not."""
    x, y = batch.pixels.to(device), batch.labels.to(device)
    return climb_near(lambda z: cross_entropy(classifier(z), y), x, x, eps, steps)
