"""What the audit of the theory rests on: numbers per image, layer and head, nothing concluded yet.

Every verdict of `theory/table.py` is a function of these, so a stored audit can be judged again without a model.
n images, h heads (hr of the reference), M draws of noise. NaN stands where there is nothing to measure, null in JSON.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from antiphase.measures.branch_pairs import Alignment, ThirdTerm, alpha_tri, cosine
from antiphase.measures.stats import Array


@dataclass(frozen=True)
class PointEvidence:
    """One layer at one point near each image: squared Frobenius norms of Jacobians with respect to the pixels."""

    n1: Array  # (n, h) ||J1||^2
    n2: Array  # (n, h) ||J2||^2
    ip: Array  # (n, h) <J1, J2>
    da: Array  # (n, h) ||J_DA||^2, differentiated by itself and not put together from the others
    ref: Array  # (n, hr) ||J_base||^2 of the baseline's layer; without a baseline ||J1||^2
    cos_se: Array  # (n, h) standard error of the cosine over the probes
    da_se: Array  # (n,) of log ||J_DA||, heads stacked
    ratio_se: Array  # (n,) of log ||J_DA|| / ||J_ref||, heads stacked
    gamma_se: Array  # (n,) of log ||J1|| / ||J_ref||, heads stacked
    n3: Array | None = None  # (n, h) ||J3||^2 of a third term: J_DA = J1 - lambda J2 - J3
    ip13: Array | None = None  # (n, h) <J1, J3>
    ip23: Array | None = None  # (n, h) <J2, J3>

    @property
    def ratio(self) -> Array:
        """(n,): ||J_DA|| / ||J_ref||, heads stacked"""
        ratio: Array = np.sqrt(self.da.sum(axis=1) / self.ref.sum(axis=1))
        return ratio

    @property
    def gamma(self) -> Array:
        """(n,): ||J1|| / ||J_ref||, heads stacked"""
        gamma: Array = np.sqrt(self.n1.sum(axis=1) / self.ref.sum(axis=1))
        return gamma


@dataclass(frozen=True)
class NoiseEvidence:
    """Changes of two maps under the same uniform noise, for each draw."""

    lam: float
    n1: Array  # (n, M, h) ||dA1||^2
    n2: Array  # (n, M, h)
    ip: Array  # (n, M, h) <dA1, dA2>
    da: Array  # (n, M, h) ||dA_DA||^2
    n3: Array | None = None  # (n, M, h) squared norm of the third term's change

    @property
    def stacked(self) -> NoiseEvidence:
        """All heads of the layer as one map: (n, M, 1)"""
        n1, n2, ip, da = (a.sum(axis=-1, keepdims=True) for a in (self.n1, self.n2, self.ip, self.da))
        n3 = None if self.n3 is None else self.n3.sum(axis=-1, keepdims=True)
        return NoiseEvidence(self.lam, n1, n2, ip, da, n3)

    @property
    def alpha_tri(self) -> Array:
        """(n, M, h): ||dA_DA|| / (||dA1|| + |lambda| ||dA2||), between 0 (all is cancelled) and 1   (docs/method.md 2.4)"""
        return alpha_tri(self.da, self.n1, self.n2, self.lam, self.n3)

    @property
    def cos(self) -> Array:
        """(n, M, h): of the changes of the two maps"""
        return cosine(self.n1, self.n2, self.ip)

    @property
    def kappa(self) -> Array:
        """(n, M, h): |lambda| ||dA2|| / ||dA1||"""
        return abs(self.lam) * np.sqrt(self.n2 / self.n1)

    @property
    def third_over_first(self) -> Array:
        """(n, M, h): the third term's change over ||dA1||; 0 where there is none"""
        return np.zeros_like(self.n1) if self.n3 is None else np.sqrt(self.n3 / self.n1)


@dataclass(frozen=True)
class LayerEvidence:
    """A layer with two branches, and the layer of the baseline at the same depth."""

    name: str
    lam: float  # 1 where lambda is not one number: it is then in J2
    points: dict[str, PointEvidence]  # clean, random, pgd, found (where the sensitivity was driven up)
    op: dict[str, Array]  # (n,) sigma_max of the Jacobian of: da, first, second, third (where there is one), base
    sample: dict[str, Array]  # (n,) L-sample of: da, base
    ascent: dict[str, Array]  # (n,) L-ascent
    noise: NoiseEvidence
    pseudo: NoiseEvidence | None  # heads 2i and 2i+1 of the baseline in place of two branches
    loss_cos: Array  # (n, h) of the loss's gradients with respect to A1 and A2
    row_sum: Array  # (n,) how far a row of A1, A2 is from 1 and of A_DA from 1 - lambda, the worst row
    row_sum_moves: Array  # (n,) ||J|| of the row sums over ||J|| of the map, in one random direction
    rescaled: Array  # (n,) relative change of what is projected when A_DA is doubled
    projected: Array  # (n,) size of what is projected: norm and gain times the mixed values
    mean_lambda: float | None = None  # over images, heads and tokens, where lambda is not one number
    third: Literal["gate", "integral"] | None = None  # what J3 is, where there is one

    def aligned(self, point: str = "clean") -> Alignment:
        """The two branches at one of the points."""
        p = self.points[point]
        third = None
        if self.third is not None and p.n3 is not None and p.ip13 is not None and p.ip23 is not None:
            third = ThirdTerm(self.third, p.n3[..., None], p.ip13[..., None], p.ip23[..., None])
        return Alignment(self.name, self.lam, p.n1[..., None], p.n2[..., None], p.ip[..., None], third)

    @property
    def shown_lambda(self) -> float:
        """Lambda, or its mean"""
        return self.lam if self.mean_lambda is None else self.mean_lambda


@dataclass(frozen=True)
class ModelEvidence:
    """A whole network on the images."""

    margin: Array  # (n,) logit of the true class over the best other; negative where the image is classified wrongly
    power: Array  # (n,) sigma_max of the logits' Jacobian at the image
    sampled: Array  # (n,) largest ||F(x+xi)-F(x)||_2 / ||xi||_2 over random draws
    first_l2: Array  # (n,) first-order distance to the nearest boundary, l2; NaN where the image is classified wrongly
    first_linf: Array  # (n,)
    per_logit: Array  # (n,) min over i of (F_y - F_i) / (L_y + L_i) with the gradients at the image
    broken_l2: Array  # (n,) smallest distance at which an attack succeeded; NaN where none did or it is wrong anyway
    broken_linf: Array  # (n,)
    block: Array  # (n,) sigma_max of a block with respect to its own input, geometric mean over the blocks
    gain: Array  # (n,) root mean square over noise of ||change of the last block|| / ||xi||: the product of realised gains
    relative_gain: Array  # (n,) the same, both sides relative to what they change

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(n,): classified correctly"""
        correct: NDArray[np.bool_] = self.margin > 0
        return correct


@dataclass(frozen=True)
class Evidence:
    """A run, and its baseline if there is one."""

    depth: int
    eps: float  # radius of the ball, Linf
    tolerance: float  # what rounding may do to an identity, relative
    layers: list[LayerEvidence]
    da: ModelEvidence
    base: ModelEvidence | None

    def pool(self, what: Callable[[LayerEvidence], Array]) -> Array:
        """(n, all layers and heads): (n,) or (n, h) of each layer side by side, so that an image stays one row."""
        return np.concatenate([np.atleast_2d(what(layer).T).T for layer in self.layers], axis=1)


# ------------------------------------------------------------------------------------------------- on disk
def plain(value: Any) -> Any:
    """For JSON: arrays become lists, NaN null; full precision, so that `read` gives the same numbers back."""
    if dataclasses.is_dataclass(value):
        fields = [f for f in dataclasses.fields(value) if not (f.default is None and getattr(value, f.name) is None)]
        return {f.name: plain(getattr(value, f.name)) for f in fields}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return None if isinstance(value, float) and not np.isfinite(value) else value


def read(kind: Any, stored: Any) -> Any:
    """The inverse of `plain` for a type."""
    if isinstance(kind, types.UnionType):
        return None if stored is None else read(typing.get_args(kind)[0], stored)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        optional = {f.name for f in dataclasses.fields(kind) if f.default is None} - set(
            stored
        )  # written only where it is
        return kind(**{n: read(hint, stored[n]) for n, hint in hints.items() if n not in optional})  # type: ignore[operator]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return [read(args[0], v) for v in stored]
    if origin is dict:
        return {k: read(args[1], v) for k, v in stored.items()}
    return np.array(stored, dtype=np.float64) if origin is np.ndarray else stored
