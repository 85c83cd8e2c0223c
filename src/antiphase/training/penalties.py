"""Penalties that are to make attention less sensitive, each one term of the loss (docs/method.md 8.3).

They look at the model in full and in float32, on a few images of each batch; of the last layer at the class token's row alone,
since nothing else of it is read. So they work beside the fast path, which computes the loss itself. B images, h heads, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from antiphase import runtime
from antiphase.config import InputError
from antiphase.data.imageset import Batch
from antiphase.measures.branch_pairs import combined_energy, third_energy
from antiphase.measures.jacobians_local import local_moments
from antiphase.measures.mixed_change import relative_change
from antiphase.measures.perturbations import perturbed
from antiphase.models.attention import Branches
from antiphase.models.config import Dint, Softmax, ViTConfig
from antiphase.models.taps import look_at_what_is_read
from antiphase.training.config import OF_BRANCHES, Penalty, PenaltyTerm

TINY = 1e-6  # of an energy: where branches cancel altogether, its logarithm would have no end, and rounding makes it negative
DEAD = 1e-12  # an energy below it is that of a map which does not react
DIRECTIONS = {"noise-change": "sign", "attack-change": "fgsm"}  # by their names in measures/perturbations.py


def check_layers(penalty: Penalty, model: ViTConfig) -> None:
    """Refuse a penalty on branches for a model without them."""
    if penalty.term not in OF_BRANCHES:
        return
    if all(isinstance(layer, Softmax) for layer in model.layers):
        raise InputError(
            f"the penalty {penalty.term} needs two branches, and this model is all softmax: use another penalty"
        )
    if any(isinstance(layer, Dint) for layer in model.layers):
        raise InputError(
            f"the penalty {penalty.term} has no closed form for dint, whose mean is over all rows: use another one"
        )


def penalty_term(penalty: Penalty, model: nn.Module, batch: Batch, *, seed: int = 0, epoch: int = 0) -> Tensor:
    """The term, without its weight: a scalar whose gradient in the weights exists."""
    with torch.autocast(batch.pixels.device.type, enabled=False):
        if penalty.term == "gradient":
            return penalty.eps * _gradient_norm(model, batch)
        clean = look_at_what_is_read(model, batch.pixels)
        if penalty.term in DIRECTIONS:
            draw = runtime.seed_word(seed, "penalty", epoch)
            moved = perturbed(model, batch, DIRECTIONS[penalty.term], penalty.eps, draw).pixels
            after = look_at_what_is_read(model, moved)
            return torch.stack([relative_change(clean[n], after[n]).mean() for n in clean]).mean()
        of_layers = [_OF_MAPS[penalty.term](maps, penalty) for maps in clean.values()]
        return torch.stack([term for term in of_layers if term is not None]).mean()


def _gradient_norm(model: nn.Module, batch: Batch) -> Tensor:
    """||d loss / d pixels||_1, mean over images"""
    pixels = batch.pixels.detach().requires_grad_()
    loss = F.cross_entropy(model(pixels), batch.labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, pixels, create_graph=True)
    norm: Tensor = gradient.abs().flatten(1).sum(dim=1).mean()
    return norm


# ------------------------------------------------------------------------------------------------- of one layer


def _energies(maps: Branches) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """||J1||^2, ||lambda J2||^2, <J1, lambda J2> and ||J1 - lambda J2 - J3||^2 with respect to the layer's input: (B, h) each.

    None for a layer with one map.
    """
    gated = maps.heads.gate is not None
    moments = local_moments(maps, gated=gated)
    if moments is None:
        return None
    lam = torch.ones_like(maps.lam[:, :, 0, 0]) if maps.lam.shape[2] != 1 else maps.lam[:, :, 0, 0]
    n1, n2 = (moments[..., i, i].clamp_min(DEAD) for i in (0, 1))
    ip = moments[..., 0, 1]
    left = combined_energy(n1, n2, ip, lam)
    if gated:
        left = left + third_energy(moments[..., 2, 2], moments[..., 0, 2], moments[..., 1, 2], lam)
    return n1, lam**2 * n2, lam * ip, left


def _amplification(maps: Branches, _: Penalty) -> Tensor | None:
    energies = _energies(maps)
    if energies is None:
        return None
    n1, left = energies[0], energies[-1]
    return 0.5 * (left / n1).clamp_min(TINY).log().mean()


def _kappa(maps: Branches, penalty: Penalty) -> Tensor | None:
    energies = _energies(maps)
    return None if energies is None else F.relu((energies[1] / energies[0]).sqrt() - penalty.above).mean()


def _alignment(maps: Branches, _: Penalty) -> Tensor | None:
    """Of lambda > 0, as the layers begin with: one of lambda < 0 is aligned where J1 and lambda J2 are."""
    energies = _energies(maps)
    if energies is None:
        return None
    n1, n2, ip, _left = energies
    return (1 - ip / (n1 * n2).sqrt()).mean()


def _jasmin(maps: Branches, _: Penalty) -> Tensor:
    """log g bounds the logarithm of the largest singular value of a row's softmax Jacobian, diag(p) - pp'."""
    of_layer = maps.signal if maps.noise is None else torch.cat([maps.signal, maps.noise], dim=1)
    first, second = of_layer.topk(2, dim=-1).values.unbind(-1)  # (B, h or 2h, N)
    return (first * (1 - first + second)).clamp_min(TINY).log().amax(dim=(1, 2)).mean()


_OF_MAPS: dict[PenaltyTerm, Callable[[Branches, Penalty], Tensor | None]] = {
    "amplification": _amplification,
    "kappa": _kappa,
    "alignment": _alignment,
    "jasmin": _jasmin,
}
