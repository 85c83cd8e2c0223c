"""Threat models: where a perturbation may live, as a value with its steepest direction, projection, random start and size.

No torch is imported to define these, so budgets are checked before anything heavy is loaded. B examples of any image shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from antiphase.config import Budget, InputError, check_fields

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


Key = tuple[int | str, ...]
Shape = tuple[int, ...]  # (C, H, W)
SLACK = 1e-7  # float32 leaves a ball by up to 6e-8


def budget_text(eps: float) -> str:
    """A number as it was most probably written: a decimal if that is exact ("0.5"), else a fraction of 255 ("128/255")."""
    decimal = f"{eps:g}"
    return decimal if math.isclose(float(decimal), eps, rel_tol=1e-9) else str(Budget(eps))


def pixel_budget(eps: float, name: str = "eps") -> Budget:
    """A budget for single pixels, at most 1; `name` is the argument that a refusal names."""
    budget = Budget(eps)
    if budget > 1:
        written = budget_text(budget)
        meant = f"{written}/255" if budget <= 255 and "/" not in written else None
        remedy = f"did you mean {meant}?" if meant else "give at most 1, such as 8/255"
        raise InputError(f"{name}={written} is more than the whole pixel range, from 0 to 1: {remedy}")
    return budget


@dataclass(frozen=True)
class Linf:
    """Every pixel within eps of the original."""

    eps: float  # pixel units; a string such as "4/255" is read

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", pixel_budget(self.eps))

    def __str__(self) -> str:
        return f"Linf {Budget(self.eps)}"

    def check(self, shape: Shape) -> None:
        """Refuse images that this set makes no sense for."""

    def ascent(self, grad: Tensor) -> Tensor:
        """The direction of steepest ascent for this norm, of size 1."""
        return grad.sign()

    def project(self, adv: Tensor, x: Tensor) -> Tensor:
        """The nearest point of the ball. In float32 it leaves the ball by up to 6e-8: the contract says eps + 1e-7."""
        return x + (adv - x).clamp(-self.eps, self.eps)

    def start(self, key: Key, ids: NDArray[np.int64], shape: Shape) -> NDArray[np.float64]:
        """A perturbation uniform in the cube, from each example's own stream. (B, C, H, W)"""
        from antiphase.runtime import uniform

        return (2 * uniform(key, ids, shape) - 1) * float(self.eps)

    def size(self, delta: Tensor) -> Tensor:
        """The norm of each perturbation: (B,)"""
        return delta.flatten(1).abs().amax(dim=1)


@dataclass(frozen=True)
class L2:
    """Within a Euclidean distance of eps, all pixel values of an image together."""

    eps: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", Budget(self.eps))

    def __str__(self) -> str:
        return f"L2 {budget_text(self.eps)}"

    def check(self, shape: Shape) -> None:
        values = math.prod(shape)
        if self.eps > math.sqrt(values):
            raise InputError(
                f"L2 eps={float(self.eps):g} is more than sqrt({values}) = {math.sqrt(values):.4g}, "
                "the distance from all black to all white"
            )

    def ascent(self, grad: Tensor) -> Tensor:
        return grad / _wide(self.size(grad).clamp_min(1e-30))

    def project(self, adv: Tensor, x: Tensor) -> Tensor:
        """The nearest point of the ball, by a ten millionth inside it where that is another point.

        The float32 norm of a photograph is off by more than the judgement allows, so it is taken in float64 (but for Apple's
        GPUs, which have none).
        """
        import torch

        delta = adv - x
        norm = delta.flatten(1).norm(dim=1, dtype=delta.dtype if delta.device.type == "mps" else torch.float64)
        shrunk = (self.eps * (1 - SLACK) / norm.clamp_min(1e-30)).where(norm > self.eps, 1.0)
        return x + delta * _wide(shrunk.to(delta.dtype))

    def start(self, key: Key, ids: NDArray[np.int64], shape: Shape) -> NDArray[np.float64]:
        """Uniform in the ball: a normal direction, a radius that fills the volume evenly."""
        import numpy as np

        from antiphase.runtime import normal, uniform

        direction = normal(key, ids, shape)
        length = np.sqrt((direction**2).sum(axis=(1, 2, 3), keepdims=True))
        radius = uniform((*key, "radius"), ids, (1, 1, 1)) ** (1 / math.prod(shape))
        point: NDArray[np.float64] = direction / length * radius * float(self.eps)
        return point

    def size(self, delta: Tensor) -> Tensor:
        norm: Tensor = delta.flatten(1).norm(dim=1)
        return norm


@dataclass(frozen=True)
class Unbounded(L2):
    """Any image, measured by its L2 distance: for minimum-norm attacks, which have no budget."""

    eps: float = math.inf

    def __post_init__(self) -> None:
        """Nothing to check."""

    def __str__(self) -> str:
        return "smallest L2"

    def check(self, shape: Shape) -> None:
        """Nothing to check."""


@dataclass(frozen=True)
class Patch(Linf):
    """Free pixels (up to eps) in one square of width x width, none elsewhere.

    The place is random by each example's own stream, given as (top, left), or where the model's own maps attend most.
    """

    eps: float = 1.0
    width: int = 4  # pixels
    place: Literal["random", "attention"] | tuple[int, int] = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self)
        if self.width < 1:
            raise InputError(f"patch width={self.width} must be at least 1 pixel")
        if not isinstance(self.place, str) and min(self.place) < 0:
            raise InputError(f"patch place={self.place} must be (top, left) inside the image")

    def __str__(self) -> str:
        return f"patch {self.width}x{self.width}"

    def check(self, shape: Shape) -> None:
        _, height, width = shape
        top, left = (0, 0) if isinstance(self.place, str) else self.place
        patch, image = f"a patch of {self.width} x {self.width}", f"an image of {height} x {width}"
        if self.width > min(height, width):
            raise InputError(f"{patch} is larger than {image}: choose a smaller --width")
        if top + self.width > height or left + self.width > width:
            raise InputError(f"{patch} at ({top}, {left}) leaves {image}: choose another --place or a smaller --width")

    def corners(self, key: Key, ids: NDArray[np.int64], shape: Shape) -> NDArray[np.int64]:
        """(B, 2): top and left of each example's square, where it is random or given."""
        import numpy as np

        from antiphase.runtime import uniform

        if not isinstance(self.place, str):
            return np.tile(np.array(self.place, dtype=np.int64), (len(ids), 1))
        room = np.array(shape[1:]) - self.width + 1
        corners: NDArray[np.int64] = (uniform((*key, "place"), ids, (2,)) * room).astype(np.int64)
        return corners


ThreatModel = Linf | L2 | Patch


def _wide(per_example: Tensor) -> Tensor:
    """(B,) -> (B, 1, 1, 1)"""
    return per_example[:, None, None, None]
