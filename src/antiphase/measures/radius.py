"""Margins over Lipschitz constants as radii (appendix B of the paper), and the distances at which attacks succeed.

Every constant here is taken at the image or by sampling, hence a lower bound of the one over a ball, and the radius is too
large: each is an estimate, not a certificate (docs/method.md 1.2). B images, K classes, k competitors, P pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from antiphase import console, runtime
from antiphase.attacks import engine
from antiphase.attacks.config import PGD
from antiphase.attacks.losses import margin
from antiphase.attacks.threat_model import L2, Linf
from antiphase.data.imageset import Batch, ImageSet
from antiphase.measures.jacobians_forward import PAPER_EPS
from antiphase.measures.lipschitz import change_ratio, draw
from antiphase.measures.power_iteration import sigma_max
from antiphase.measures.questions import NEAREST
from antiphase.measures.stats import Array
from antiphase.models.taps import explicit

LABEL = "estimate, not a certificate"
LINF = tuple(2.0 ** (k / 2) / 255 for k in range(-8, 9))  # a distance is known to a factor of sqrt2
L2S = tuple(0.01 * 2.0 ** (k / 2) for k in range(17))


def radius(m: Any, lipschitz: Any, form: Literal["paper", "sqrt2", "two"] = "paper") -> Any:
    """m / L as printed is right only where L is of every margin function; m / (sqrt2 L) for L of the logit vector (l2),
    m / (2 L) for L of every single logit."""
    return m / (lipschitz * {"paper": 1.0, "sqrt2": 2**0.5, "two": 2.0}[form])


def radii(
    classifier: nn.Module,
    images: ImageSet,
    *,
    draws: int,
    eps: float = PAPER_EPS,
    steps: int = 20,
    seed: int = 0,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> dict[str, Array]:
    """margin, power, sampled, first_l2, first_linf, per_logit, broken_l2, broken_linf: (n,) each."""

    def measured(batch: Batch, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        by_gradients = first_order(classifier, x, y)
        with torch.no_grad():
            power = _power(classifier, x, batch.ids, seed)
            return {**by_gradients, "power": power, "sampled": _sampled(classifier, x, batch.ids, draws, eps, seed)}

    joined = _by_batch(classifier, images, measured, batch_size, device)
    for name, budgets in (("broken_l2", [L2(e) for e in L2S]), ("broken_linf", [Linf(e) for e in LINF])):
        joined[name] = _broken(
            classifier, images, [PGD(within=b, steps=steps) for b in budgets], seed, joined["margin"]
        )
    return joined


def margins(
    classifier: nn.Module, images: ImageSet, *, batch_size: int = 64, device: torch.device | str = "cpu"
) -> dict[str, Array]:
    """margin, first_l2, first_linf, per_logit: (n,) each, as in `first_order`."""
    return _by_batch(classifier, images, lambda _, x, y: first_order(classifier, x, y), batch_size, device)


def _by_batch(
    classifier: nn.Module,
    images: ImageSet,
    measured: Callable[[Batch, Tensor, Tensor], dict[str, Tensor]],
    batch_size: int,
    device: torch.device | str,
) -> dict[str, Array]:
    """What is measured of each batch, its pixels and labels, as one array per name: (n,) each."""
    parts: list[dict[str, Tensor]] = []
    with runtime.frozen(classifier), console.progress("margins and radii", total=len(images)) as advance:
        for batch in images.batches(batch_size):
            parts.append(measured(batch, batch.pixels.to(device), batch.labels.to(device)))
            advance(len(batch.ids), "")
    return {name: torch.cat([p[name] for p in parts]).double().cpu().numpy() for name in parts[0]}


def first_order(classifier: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Radii by the gradients at the image, (B,) each; NaN where the image is classified wrongly.

    min over i of (F_y - F_i) / ||grad (F_y - F_i)||_q with q dual to the norm of the perturbation: 2 to 2, 1 to infinity.
    """
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        logits = classifier(leaf)
        m = margin(logits, y).detach()
        others = logits.detach().scatter(1, y[:, None], -torch.inf)
        classes = torch.cat([y[:, None], others.topk(min(NEAREST, logits.shape[1] - 1), dim=1).indices], dim=1)
        own = logits.gather(1, classes)  # (B, 1 + k)
        grads = torch.stack(
            [torch.autograd.grad(own[:, j].sum(), leaf, retain_graph=True)[0].flatten(1) for j in range(own.shape[1])],
            dim=1,
        )  # (B, 1 + k, P)
    gaps, apart = (own[:, :1] - own[:, 1:]).detach(), grads[:, :1] - grads[:, 1:]
    sizes = grads.norm(dim=2)
    correct = m > 0

    def nearest(slopes: Tensor) -> Tensor:
        return torch.where(correct, (gaps / slopes.clamp_min(1e-30)).amin(dim=1), torch.nan)

    return {
        "margin": m,
        "first_l2": nearest(apart.norm(dim=2)),
        "first_linf": nearest(apart.abs().sum(dim=2)),
        "per_logit": nearest(sizes[:, :1] + sizes[:, 1:]),
    }


def _logits(classifier: nn.Module, x: Tensor) -> Tensor:
    with explicit(classifier):  # a fused kernel has no forward-mode derivative
        logits: Tensor = classifier(x)
        return logits


def _power(classifier: nn.Module, x: Tensor, ids: Any, seed: int) -> Tensor:
    return sigma_max(lambda z: _logits(classifier, z), x, ids=ids, seed=seed)[0]


def _sampled(classifier: nn.Module, x: Tensor, ids: Any, draws: int, eps: float, seed: int) -> Tensor:
    clean, best = classifier(x), x.new_zeros(len(x))
    for k in range(draws):
        xi = draw(ids, tuple(x.shape[1:]), k, eps, seed).to(x)
        best = torch.maximum(best, change_ratio(classifier(x + xi), clean, xi))
    return best


def _broken(classifier: nn.Module, images: ImageSet, attacks: list[PGD], seed: int, margins: Array) -> Array:
    """The distance at which the smallest successful budget changed a correct prediction; NaN where none did."""
    correct = np.flatnonzero(margins > 0)
    distance = np.full(len(images), np.nan)
    if len(correct):
        batch = images.take(correct).all
        last = engine.sweep(classifier, batch.pixels, batch.labels, attacks, ids=batch.ids, seed=seed)[-1]
        distance[correct] = np.where(last.success.numpy(), last.distance.numpy(), np.nan)
    return distance
