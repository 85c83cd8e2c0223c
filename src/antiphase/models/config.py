"""What a ViT is, as values. ViT and DiffViT are one `ViTConfig`; the attention of each layer is `Softmax` or one with two maps.

No torch here: a config can be read, checked and written before anything heavy is imported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from antiphase.config import InputError, check_fields, check_most, named_arguments


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """lambda_init(l) = a - b exp(-c (l + index_base)) for layers l = 0, 1, ... (Differential Transformer; DiffCLIP*).

    index_base 0 starts at 0.2 (Microsoft's code, timm), 1 at 0.356 (DiffCLIP's formula), -1 at -0.010 (Motif, Diff-Mamba).
    """

    a: float = 0.8
    b: float = 0.6
    c: float = 0.3
    index_base: int = 0

    def __post_init__(self) -> None:
        check_fields(self, c=0, index_base=-1)
        if self.c > 100:  # exp(c) of layer -1 has to be a number
            raise InputError(f"c={self.c} must be at most 100")

    def at(self, layer: int) -> float:
        return self.a - self.b * math.exp(-self.c * (layer + self.index_base))


@dataclass(frozen=True)
class Softmax:
    """Standard attention: one map, softmax(QK'/sqrt(d)) V."""


@named_arguments
@dataclass(frozen=True, kw_only=True)
class Differential:
    """(A1 - lambda A2) V, then a norm per head and a fixed gain.

    With `learned=False, head_norm="none", out_scale="none"` it is the paper's bare formula and has no extra parameters.
    """

    lambda_init: float | tuple[float, ...] | Schedule = 0.8  # one for all layers, one each, or the schedule
    learned: bool = True  # False: lambda is lambda_init, and there are no lambda parameters
    head_norm: Literal["rms", "none"] = "rms"
    out_scale: Literal["official", "fixed", "none"] = "official"  # gain 1 - lambda_init, 0.2, or 1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.out_scale == "official" and self.lambda_init == 1:
            raise InputError(_degenerate("lambda_init=1"))
        values = self.lambda_init if isinstance(self.lambda_init, tuple) else (self.lambda_init,)
        if not values or not all(isinstance(v, Schedule) or math.isfinite(v) for v in values):
            raise InputError(f"lambda_init={self.lambda_init} must be finite numbers")

    def init_at(self, layer: int, depth: int) -> float:
        """lambda_init of one layer of a model with `depth` layers."""
        value = self.lambda_init
        if isinstance(value, tuple):
            if len(value) != depth:
                raise InputError(
                    f"lambda_init lists {len(value)} values for a model of depth {depth}: give one for each layer"
                )
            value = value[layer]
        start = value.at(layer) if isinstance(value, Schedule) else value
        if self.out_scale == "official" and start == 1:
            raise InputError(_degenerate(f"lambda_init=1 in layer {layer}"))
        return start

    def gain_at(self, layer: int, depth: int) -> float:
        """What the normed head output is multiplied by (docs/method.md 1.3)."""
        if self.out_scale == "official":
            return 1 - self.init_at(layer, depth)
        return 0.2 if self.out_scale == "fixed" else 1.0


def _degenerate(what: str) -> str:
    return (
        f"{what} with out_scale=official makes the attention output exactly zero (it is multiplied by 1 - lambda_init); "
        "use out_scale=fixed or none"
    )


@dataclass(frozen=True, kw_only=True)
class GroupedDifferential(Differential):
    """Differential attention with fewer noise maps than heads: each is subtracted from several signal maps (GDA)."""

    ratio: int = 2  # heads that share a noise map; 1 is `Differential`

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, ratio=1)


@dataclass(frozen=True, kw_only=True)
class BoundedDifferential(Differential):
    """Differential attention with lambda = bound sigmoid(logit(lambda_init / bound) + lq1.lk1 - lq2.lk2), in (0, bound); lq1 and
    lq2 begin at 0, so lambda begins at lambda_init exactly. A bound below 1 keeps kappa = lambda rho below rho."""

    lambda_init: float | tuple[float, ...] | Schedule = 0.25
    bound: float = 0.5  # lambda stays below

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.bound > 0:
            raise InputError(f"bound={self.bound} must be greater than 0")
        if not self.learned:
            raise InputError("learned=false with a bound: a fixed lambda needs none; use differential")

    def init_at(self, layer: int, depth: int) -> float:
        start = super().init_at(layer, depth)
        if not 0 < start < self.bound:
            raise InputError(
                f"lambda_init={start:g} in layer {layer} must lie between 0 and bound={self.bound:g}, both left out"
            )
        return start


@dataclass(frozen=True, kw_only=True)
class LowRankDifferential(Differential):
    """Differential attention whose second branch is the first with a difference of low rank: Wq2 = Wq1 + Bq Aq of every head,
    Bq of d x rank and Aq of rank x D, and the same for keys. B begins at 0, so A2 = A1: at first everything is common-mode.
    """

    rank: int = 4  # of the difference, at most the width of a map

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, rank=1)


@dataclass(frozen=True, kw_only=True)
class Dint(Differential):
    """A1 - lambda A2 + lambda M, each row of M the mean of A1's rows, so that rows sum to 1 (DINT); then norm and gain."""


@dataclass(frozen=True)
class DifferentialV2:
    """(A1 - lambda A2) V with lambda = sigmoid(W x) of every token and head, one key and value for both maps of a head, no norm
    and no gain (Differential Transformer V2). It has as many heads as the softmax layer and twice its queries.
    """


Attention = (
    Softmax | Differential | GroupedDifferential | BoundedDifferential | LowRankDifferential | Dint | DifferentialV2
)


@dataclass(frozen=True, kw_only=True)
class Tower:
    """A stack of pre-norm blocks in timm's layout, no dropout: what a ViT and both towers of a CLIP have in common."""

    width: int = 192  # of the token embedding
    depth: int = 1  # number of blocks
    heads: int = 6  # of a softmax layer
    diff_heads: int | None = None  # of a differential layer, each with two maps; heads / 2 when not given (V2: heads)
    mlp_ratio: float = 4.0  # hidden width of the MLP over the width
    attention: tuple[Attention, ...] = (Softmax(),)  # one for all layers, or one for each
    init: Literal["official", "matched"] = "official"  # of differential blocks: DiffCLIP's, or the twin's weights

    def __post_init__(self) -> None:
        check_fields(self, width=1, depth=1, heads=1, diff_heads=1)
        check_most(self, width=10**6, depth=10**4, heads=10**6, diff_heads=10**6)
        if not 0 < self.mlp_ratio <= 10**4:
            raise InputError(f"mlp_ratio={self.mlp_ratio} must be greater than 0 and at most 10,000")
        if len(self.attention) not in (1, self.depth):
            raise InputError(
                f"attention lists {len(self.attention)} layers for a model of depth {self.depth}: give one, or one for each"
            )
        layers = self.layers
        if any(isinstance(layer, Softmax) for layer in layers) and self.width % self.heads:
            raise InputError(f"heads={self.heads} does not divide width={self.width}")
        for layer in layers:
            self._check_shared_maps(layer)
        if any(isinstance(layer, Differential) for layer in layers):
            if self.diff_heads is None and self.heads % 2:
                raise InputError(
                    f"heads={self.heads} is odd, and a differential head takes two: make it even or set diff_heads"
                )
            if self.width % (2 * self.effective_diff_heads):
                raise InputError(
                    f"diff_heads={self.effective_diff_heads} does not fit width={self.width}: "
                    "a head has two maps, so 2 x diff_heads must divide the width"
                )
        for i, layer in enumerate(layers):
            if isinstance(layer, Differential):
                layer.gain_at(
                    i, self.depth
                )  # refuses a wrong list or a zero gain here rather than in the middle of a run

    def _check_shared_maps(self, layer: Attention) -> None:
        """Heads that share keys, or a noise map, must come out even."""
        if isinstance(layer, DifferentialV2) and self.width % self.heads_of(layer):
            raise InputError(f"heads={self.heads_of(layer)} of differential-v2 does not divide width={self.width}")
        if isinstance(layer, GroupedDifferential) and self.effective_diff_heads % layer.ratio:
            raise InputError(
                f"ratio={layer.ratio} does not divide diff_heads={self.effective_diff_heads}: so many heads share a noise map"
            )
        if isinstance(layer, LowRankDifferential) and layer.rank > self.width // (2 * self.effective_diff_heads):
            raise InputError(
                f"rank={layer.rank} is above the width of a map, {self.width // (2 * self.effective_diff_heads)}: "
                "the difference would not be of low rank"
            )

    @property
    def least_parameters(self) -> int:
        """At least so many are in its blocks, whatever their attention; counted without building them."""
        return self.depth * self.width * (self.width + 2 * int(self.width * self.mlp_ratio))

    @property
    def layers(self) -> tuple[Attention, ...]:
        """The attention of every layer."""
        return self.attention * self.depth if len(self.attention) == 1 else self.attention

    @property
    def is_differential(self) -> bool:
        """Whether any layer has two maps per head."""
        return any(not isinstance(layer, Softmax) for layer in self.layers)

    @property
    def has_lambda_parameters(self) -> bool:
        """Whether any layer has a lambda that is in its weights, and not computed from the input."""
        return any(isinstance(layer, Differential) for layer in self.layers)

    def heads_of(self, layer: Attention) -> int:
        """The number of heads of a layer with this attention."""
        if isinstance(layer, DifferentialV2):
            return self.heads if self.diff_heads is None else self.diff_heads
        return self.heads if isinstance(layer, Softmax) else self.effective_diff_heads

    @property
    def effective_diff_heads(self) -> int:
        return self.heads // 2 if self.diff_heads is None else self.diff_heads


TITLES: dict[type[Attention], str] = {  # of a model with this attention, given its name with softmax
    Softmax: "{}",
    Differential: "Diff{}",
    GroupedDifferential: "grouped Diff{}",
    BoundedDifferential: "bounded Diff{}",
    LowRankDifferential: "low-rank Diff{}",
    Dint: "DINT {}",
    DifferentialV2: "Diff{} V2",
}


def check_normalisation(
    mean: float | tuple[float, ...], std: float | tuple[float, ...], channels: int | None = None
) -> None:
    """Refuse values that cannot normalise pixels; with `channels`, also another number of values than one or one each."""
    for name, value in (("mean", mean), ("std", std)):
        values = value if isinstance(value, tuple) else (value,)
        if not values or not all(map(math.isfinite, values)):
            raise InputError(f"{name}={value} must be finite numbers, one for all channels or one for each")
        if name == "std" and min(values) <= 0:
            raise InputError(f"std={value} must be greater than 0")
        if max(map(abs, values)) > 1e6 or (name == "std" and min(values) < 1e-6):
            raise InputError(
                f"{name}={value} cannot normalise pixels in [0,1]: it is larger or smaller than any that could"
            )
        if channels is not None and isinstance(value, tuple) and len(values) != channels:
            raise InputError(
                f"{name}={value} has {len(values)} values for images of {channels} channels: give one, or one for each"
            )


@named_arguments
@dataclass(frozen=True, kw_only=True)
class ViTConfig(Tower):
    """A vision transformer with a class token. Defaults are the paper scale."""

    patch: int = 4  # side of a patch in pixels
    mean: float | tuple[float, ...] = 0.5  # subtracted from the pixels inside the model: for all channels, or one each
    std: float | tuple[float, ...] = 0.5  # the pixels are then divided by this: for all channels, or one each

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, patch=1)
        check_most(self, patch=10**5)
        check_normalisation(self.mean, self.std)
        for name in ("mean", "std"):  # one value in a tuple and the value itself are the same config
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) == 1:
                object.__setattr__(self, name, value[0])

    def least_parameters_for(self, shape: tuple[int, int, int], classes: int) -> int:
        """At least so many, of a model for (C, H, W) images of so many classes."""
        channels, height, width = shape
        tokens = (height // self.patch) * (width // self.patch)
        return self.least_parameters + self.width * (channels * self.patch**2 + tokens + classes)

    @property
    def title(self) -> str:
        """Its name in tables and figures."""
        kinds = {type(layer) for layer in self.layers}
        return "mixed ViT" if len(kinds) > 1 else TITLES[kinds.pop()].format("ViT")
