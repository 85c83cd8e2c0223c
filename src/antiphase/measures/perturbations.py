"""Named perturbations of stated size, so that noise, attacks and corruptions are held against each other on the same images.

Size. noise and attacks are bounded by eps in every pixel, except `gaussian`, which has the l2 size of `sign`. Corruptions have
the size of their kind. Equal eps is not equal l2: `uniform` has 1/sqrt(3) of the l2 of `sign`, PGD .8 to .9 of it. So the l2
that was reached is part of every row, and `scrambled` is the exact control: PGD's own change of every pixel, its sign random.

Range. Attacks stay in [0,1]. Noise is clipped to it too, so that both are held by the same box; `clip=False` leaves noise as
drawn (the paper's L-sample). Corruptions are pictures and always in [0,1].

Every draw is from the image's own stream: a perturbation does not depend on the batch. B images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.transforms.functional import gaussian_blur

from antiphase import runtime
from antiphase.attacks.config import PGD, fgsm
from antiphase.attacks.pgd import perturb
from antiphase.attacks.threat_model import Linf
from antiphase.config import InputError
from antiphase.data.corruptions import through_jpeg
from antiphase.data.imageset import Batch
from antiphase.measures.stats import Array

Make = Callable[[nn.Module, Batch, float, int], Tensor]  # (classifier, batch, eps, seed) -> pixels (B, C, H, W)
Kind = Literal["noise", "attack", "corruption"]
PGD_STEPS = 20


@dataclass(frozen=True)
class Perturbation:
    """How the pixels of a batch are changed."""

    kind: Kind
    size: str  # what bounds it
    make: Make


@dataclass(frozen=True)
class Perturbed:
    """Images after a perturbation, and how far they really are from before."""

    pixels: Tensor  # (B, C, H, W)
    l2: Array  # (B,)
    linf: Array  # (B,)


# ------------------------------------------------------------------------------------------------- noise
def _uniform(_: nn.Module, batch: Batch, eps: float, seed: int) -> Tensor:
    return batch.pixels + _cast((2 * runtime.uniform((seed, "uniform"), batch.ids, _shape(batch)) - 1) * eps, batch)


def _signs(batch: Batch, seed: int, purpose: str) -> Tensor:
    """+1 or -1 for every pixel value"""
    return _cast(np.where(runtime.uniform((seed, purpose), batch.ids, _shape(batch)) < 0.5, -1.0, 1.0), batch)


def _sign(_: nn.Module, batch: Batch, eps: float, seed: int) -> Tensor:
    return batch.pixels + eps * _signs(batch, seed, "sign")


def _gaussian(_: nn.Module, batch: Batch, eps: float, seed: int) -> Tensor:
    draw = runtime.normal((seed, "gaussian"), batch.ids, _shape(batch))
    length = np.sqrt((draw**2).sum(axis=(1, 2, 3), keepdims=True))
    return batch.pixels + _cast(draw / length * eps * np.sqrt(draw[0].size), batch)


def _scrambled(classifier: nn.Module, batch: Batch, eps: float, seed: int) -> Tensor:
    """|delta| of PGD in every pixel; the sign is random wherever both signs stay in [0,1], else it is as it was."""
    delta = _pgd(classifier, batch, eps, seed) - batch.pixels
    flipped = batch.pixels - delta
    free = (flipped >= 0) & (flipped <= 1) & (_signs(batch, seed, "scrambled") < 0)
    return batch.pixels + torch.where(free, -delta, delta)


# ------------------------------------------------------------------------------------------------- attacks
def _fgsm(classifier: nn.Module, batch: Batch, eps: float, seed: int) -> Tensor:
    return _attacked(classifier, batch, fgsm(Linf(eps)), seed)


def _pgd(classifier: nn.Module, batch: Batch, eps: float, seed: int) -> Tensor:
    return _attacked(classifier, batch, PGD(within=Linf(eps), steps=PGD_STEPS), seed)


def _attacked(classifier: nn.Module, batch: Batch, attack: PGD, seed: int) -> Tensor:
    """Away from the true label, all steps for every image, fooled or not: a perturbation of full size for each of them."""
    with torch.enable_grad():
        return perturb(classifier, batch.pixels, batch.labels, batch.ids, attack, (seed, "start", 0))


# ------------------------------------------------------------------------------------------------- corruptions
def _gaussian_of(levels: int) -> Make:
    """Gaussian noise of a standard deviation in 8-bit levels; all of them scale the same draw."""

    def make(_: nn.Module, batch: Batch, __: float, seed: int) -> Tensor:
        return batch.pixels + _cast(
            runtime.normal((seed, "corruption"), batch.ids, _shape(batch)) * levels / 255, batch
        )

    return make


def _blur(_: nn.Module, batch: Batch, __: float, ___: int) -> Tensor:
    blurred: Tensor = gaussian_blur(batch.pixels, kernel_size=[5, 5], sigma=[1.0, 1.0])
    return blurred


def _jpeg_of(quality: int) -> Make:
    """Through 8 bits, JPEG and back, in memory."""

    def make(_: nn.Module, batch: Batch, __: float, ___: int) -> Tensor:
        channels = batch.pixels.shape[1]
        if channels not in (1, 3):
            raise InputError(f"JPEG holds images of 1 or 3 channels, these have {channels}")
        eight = (batch.pixels.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
        decoded = np.stack([through_jpeg(image, quality) for image in eight])
        return torch.from_numpy(decoded).permute(0, 3, 1, 2).to(batch.pixels)

    return make


# ------------------------------------------------------------------------------------------------- the table
PERTURBATIONS: Mapping[str, Perturbation] = MappingProxyType(
    {
        "uniform": Perturbation("noise", "linf <= eps", _uniform),
        "sign": Perturbation("noise", "linf = eps, l2 = eps sqrt(n)", _sign),
        "gaussian": Perturbation("noise", "l2 = eps sqrt(n)", _gaussian),
        "scrambled": Perturbation("noise", "|pgd| in every pixel", _scrambled),
        "fgsm": Perturbation("attack", "linf <= eps", _fgsm),
        "pgd": Perturbation("attack", "linf <= eps", _pgd),
        "gaussian8": Perturbation("corruption", "sigma 8/255", _gaussian_of(8)),
        "gaussian16": Perturbation("corruption", "sigma 16/255", _gaussian_of(16)),
        "gaussian32": Perturbation("corruption", "sigma 32/255", _gaussian_of(32)),
        "blur": Perturbation("corruption", "sigma 1 pixel", _blur),
        "jpeg50": Perturbation("corruption", "quality 50", _jpeg_of(50)),
        "jpeg25": Perturbation("corruption", "quality 25", _jpeg_of(25)),
    }
)
EQUAL_SIZE = ("uniform", "sign", "gaussian", "scrambled", "fgsm", "pgd")  # of a given eps
CORRUPTIONS = ("gaussian8", "gaussian16", "gaussian32", "blur", "jpeg50", "jpeg25")


def perturbed(
    classifier: nn.Module, batch: Batch, name: str, eps: float, seed: int = 0, *, clip: bool = True
) -> Perturbed:
    """The images of a batch under a perturbation of the table. `eps` is in pixel units and means nothing to corruptions."""
    check_names((name,))
    chosen = PERTURBATIONS[name]
    pixels = chosen.make(classifier, batch, float(Linf(eps).eps), seed)
    if clip or chosen.kind != "noise":
        pixels = pixels.clamp(0, 1)
    return displaced(batch, pixels)


def displaced(batch: Batch, pixels: Tensor) -> Perturbed:
    """These pixels in place of those of a batch, whatever made them."""
    delta = (pixels - batch.pixels).flatten(1).cpu().double()
    return Perturbed(pixels, delta.norm(dim=1).numpy(), delta.abs().amax(dim=1).numpy())


def check_names(names: tuple[str, ...]) -> None:
    """Refuse a perturbation that is not in the table, before anything is computed."""
    unknown = [name for name in names if name not in PERTURBATIONS]
    if unknown or not names:
        wrong = repr(unknown[0]) if unknown else "none at all"
        raise InputError(f"perturbation {wrong} is not known: it takes {', '.join(PERTURBATIONS)}")


def eps_of(name: str, eps: float) -> float | None:
    """The eps that a perturbation was given, None for corruptions: they have a size of their own."""
    return None if PERTURBATIONS[name].kind == "corruption" else float(Linf(eps).eps)


def points(batch: Batch, around: float, seed: int) -> Tensor:
    """The images, or a point near each: uniform within `around`, from the image's own stream, not clipped to [0,1]."""
    if not around:
        return batch.pixels
    unit = runtime.uniform((seed, "point"), batch.ids, _shape(batch))
    return batch.pixels + _cast((2 * unit - 1) * around, batch)


def _shape(batch: Batch) -> tuple[int, ...]:
    return tuple(batch.pixels.shape[1:])


def _cast(draw: Array, batch: Batch) -> Tensor:
    return torch.from_numpy(draw).to(batch.pixels)
