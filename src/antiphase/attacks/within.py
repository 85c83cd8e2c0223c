"""Where a perturbation may live, as a value: the ball, its steepest direction, its projection and a random point in it.

No torch is imported to define these, so budgets are checked before anything heavy is loaded. B examples, any image shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from antiphase.config import Budget, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True)
class Linf:
    """Every pixel within eps of the original."""

    eps: float  # pixel units; a string such as "4/255" is read

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", Budget(self.eps))
        if self.eps > 1:
            raise InputError(
                f"eps={float(self.eps):g} is more than the whole pixel range: did you mean {float(self.eps):g}/255?"
            )

    def __str__(self) -> str:
        return f"Linf {Budget(self.eps)}"

    def ascent(self, grad: Tensor) -> Tensor:
        """The direction of steepest ascent for this norm, of size 1."""
        return grad.sign()

    def project(self, adv: Tensor, x: Tensor) -> Tensor:
        """The nearest point of the ball. In float32 it leaves the ball by up to 6e-8: the contract says eps + 1e-7."""
        return x + (adv - x).clamp(-self.eps, self.eps)

    def spread(self, unit: NDArray[np.float64]) -> NDArray[np.float64]:
        """A point of the ball around 0 from uniform draws on [0,1): uniform in the cube."""
        return (2 * unit - 1) * float(self.eps)

    def size(self, delta: Tensor) -> Tensor:
        """The norm of each perturbation: (B,)"""
        return delta.flatten(1).abs().amax(dim=1)


Within = Linf  # L2 and Patch join with the attack engine
