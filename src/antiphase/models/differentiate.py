"""Replace softmax self-attention by differential attention in any model: timm's, torch's or Hugging Face's.

A layer of H softmax heads of width d becomes one of H/2 differential heads with two maps of width d each and values of
width 2d. Its weights can be carried over; what the model computes is not preserved, with or without them.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from timm.layers import Attention as TimmAttention
from timm.layers import DiffAttention as TimmDiffAttention
from torch import nn

from antiphase.config import InputError, shown
from antiphase.models.adapters import check
from antiphase.models.attention import DifferentialAttention
from antiphase.models.config import Differential
from antiphase.models.foreign_layers import (
    AttentionParts,
    DifferentialHuggingFace,
    DifferentialMultihead,
    DropInAttention,
    is_known_layer,
    layout_of,
    parts_of,
)
from antiphase.runtime import frozen, seeded

LayerChoice = Literal["all"] | Collection[str] | Callable[[str, nn.Module], bool]
PAIRED = (
    "q, k: rows of softmax heads 2i and 2i+1 make the signal's and the noise's map of differential head i; "
    "v: values of heads 2i and 2i+1 side by side are the values of head i; "
    "out: as it was, its columns meet the same rows of v"
)
REGROUPED = (
    "q, k, v: rows in their order, cut anew into maps of another width, so softmax heads do not pair; "
    "out: as it was, its columns meet the same rows of v"
)
NOT_CARRIED = "nothing: q, k, v and out begin anew"


def differentiate(
    model: nn.Module,
    attention: Differential = Differential(),
    *,
    layers: LayerChoice = "all",
    carry: bool = True,
    diff_heads: int | None = None,
    seed: int = 0,
    inplace: bool = False,
) -> tuple[nn.Module, DifferentiateReport]:
    """The model with differential attention in place of softmax self-attention, and a report of what was done.

    layers      "all", names of layers or of modules that hold them ("visual"), or a predicate of (name, module). Layers
                that cannot be replaced (cross-attention, unknown kinds) are left and reported; named, they are refused.
    attention   lambda_init is one for all, one for each layer of a stack, or a schedule over the stack's layers.
    carry       the layer's own q, k, v and out weights and biases, else fresh ones (PyTorch's initialisation, from `seed`).
    diff_heads  differential heads of each layer; half of its heads when not given.
    inplace     change `model` itself; otherwise a deep copy is changed and `model` stays as it is.

    Hooks on a replaced layer go with it. Nothing is changed when anything is refused.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"differentiate takes a torch.nn.Module, not {shown(model)}")
    if type(attention) is not Differential:
        raise InputError(
            f"differentiate puts Differential layers into a model, not {type(attention).__name__}: train such a model instead"
        )
    if not inplace:
        model = copy.deepcopy(model)
    candidates = _attention_modules(model)
    reasons = {name: _obstacle(model, name, module) for name, module in candidates.items()}
    chosen = _chosen(candidates, reasons, layers)
    before = _parameter_count(model)
    twins: dict[nn.Module, DifferentialAttention] = {}
    replaced = []
    for name in chosen:
        module = candidates[name]
        parts = parts_of(module)
        layer, depth = _position(name, candidates)
        heads = _diff_heads(name, parts, diff_heads)
        with seeded(seed, "differentiate", name):
            used = parts if carry else _fresh_parts(parts)
            twins[module] = twin = _differential_layer(module, used, attention, heads, layer, depth)
        replaced.append(_replaced(name, module, twin, parts))
    _install(model, twins)
    left = tuple(
        Unchanged(name, _kind(module), reasons[name] or "not asked for")
        for name, module in candidates.items()
        if name not in chosen
    )
    return model, DifferentiateReport(tuple(replaced), left, before, _parameter_count(model), carry, seed)


# ------------------------------------------------------------------------------------------------- which layers


def _attention_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Modules of a known attention class, and the innermost ones whose class has attention in its name; by name."""
    modules: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer, m in modules.items() if is_known_layer(m))
        if not inside and (is_known_layer(module) or _is_named_attention(module)):
            modules[name] = module
    outer = {
        name for name in modules for other in modules if other != name and other.startswith(f"{name}." if name else "")
    }
    return {name: module for name, module in modules.items() if name not in outer}


def _is_named_attention(module: nn.Module) -> bool:
    named = re.search("attention|attn", type(module).__name__, re.IGNORECASE)
    return named is not None or isinstance(module, TimmDiffAttention)


def _obstacle(model: nn.Module, name: str, module: Any) -> str | None:
    """Why this layer cannot be replaced; None: it can."""
    path, _, own = name.rpartition(".")
    around = model.get_submodule(path)
    if isinstance(module, TimmDiffAttention):
        return "it is differential already"
    if (
        "cross" in type(module).__name__.lower()
        or (isinstance(around, nn.TransformerDecoderLayer) and own == "multihead_attn")
        or hasattr(around, "ln_1_kv")  # open_clip's blocks with keys from elsewhere
        or "pool" in type(around).__name__.lower()  # open_clip's and SigLIP's heads: learned queries
    ):
        return "it is cross-attention, which is not replaced"
    if not name:
        return "it is the model itself: put it into a module, nn.Sequential(layer)"
    try:
        parts_of(module)
    except InputError as refused:
        return str(refused)
    return None


def _chosen(candidates: dict[str, nn.Module], reasons: dict[str, str | None], layers: LayerChoice) -> list[str]:
    """Names of the layers that are asked for and can be replaced; refused where one is named that cannot, or none is left."""
    able = [name for name, reason in reasons.items() if reason is None]
    if callable(layers):
        able = [name for name in able if layers(name, candidates[name])]
    elif layers != "all":
        names = [layers] if isinstance(layers, str) else list(layers)
        for name in names:
            if reasons.get(name) is not None:
                raise InputError(f"{name!r} cannot be made differential: {reasons[name]}")
            if not any(_is_within(other, name) for other in candidates):
                near = difflib.get_close_matches(name, candidates, n=1)
                raise InputError(
                    f"there is no attention layer {name!r} in this {'model' if candidates else 'model, nor any other'}"
                    + (f"; did you mean {near[0]!r}?" if near else "")
                )
        able = [name for name in able if any(_is_within(name, outer) for outer in names)]
    if not able:
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason) or "none was found or chosen"
        raise InputError(f"no attention layer to replace ({why})")
    return able


def _is_within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")


def _position(name: str, candidates: dict[str, nn.Module]) -> tuple[int, int]:
    """Which layer of its stack this is, of how many: layers whose names differ in numbers only are one stack."""
    stack = [other for other in candidates if _stack(other) == _stack(name)]
    return stack.index(name), len(stack)


def _stack(name: str) -> str:
    return re.sub(r"\d+", "#", name)


# ------------------------------------------------------------------------------------------------- the differential layer


def _diff_heads(name: str, parts: AttentionParts, wanted: int | None) -> int:
    """The number of differential heads of a layer: `wanted`, or half of its softmax heads; refused where it does not fit."""
    if wanted is None and parts.heads % 2:
        raise InputError(
            f"{name} has {parts.heads} heads, which is odd, and a differential head takes two: "
            "leave it out of layers, or set diff_heads"
        )
    heads = parts.heads // 2 if wanted is None else wanted
    if heads < 1 or parts.width % (2 * heads):
        raise InputError(
            f"diff_heads={heads} does not fit the width {parts.width} of {name}: "
            "a head has two maps, so 2 x diff_heads must divide the width"
        )
    if 2 * heads != parts.heads and not isinstance(parts.q_norm, nn.Identity):
        raise InputError(f"{name} has a norm for queries of its {parts.heads} heads: leave diff_heads at half of them")
    return heads


def _fresh_parts(parts: AttentionParts) -> AttentionParts:
    """The same parts with weights of their own, as PyTorch initialises them, to be trained."""
    names = ("qkv", "proj", "q_norm", "k_norm", "norm")
    new = {name: copy.deepcopy(getattr(parts, name)) for name in names}
    for part in new.values():
        part.requires_grad_(True)
        for module in part.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    return replace(parts, **new)


def _differential_layer(
    module: nn.Module, parts: AttentionParts, attention: Differential, heads: int, layer: int, depth: int
) -> DifferentialAttention:
    kind = (
        DifferentialAttention
        if isinstance(module, TimmAttention)
        else DifferentialMultihead
        if isinstance(module, nn.MultiheadAttention)
        else DifferentialHuggingFace
    )
    if kind is DifferentialHuggingFace:
        _verify_parts(module, parts)
    twin = kind.replacing(parts, attention, heads, layer, depth)
    if isinstance(twin, DropInAttention):
        for attribute, default in twin.COPIED.items():
            setattr(twin, attribute, getattr(module, attribute, default))
    twin.train(module.training)
    return twin


def _verify_parts(module: nn.Module, parts: AttentionParts) -> None:
    """Refuse a Hugging Face layer whose output does not follow from its parts: classes are recognised by name, and another
    version may compute something else."""
    weight = next(module.parameters())
    if weight.is_meta:
        return
    tolerance = 1e-4 if weight.dtype in (torch.float32, torch.float64) else 5e-2
    with frozen(module):
        check(module, torch.randn(2, 5, parts.width).to(weight), tolerance=tolerance)


def _install(model: nn.Module, twins: dict[nn.Module, DifferentialAttention]) -> None:
    """Put the new layers in every place of the old ones, since a layer may be shared; torch's encoders lose their fast path."""
    for around in list(model.modules()):
        for name, child in list(around._modules.items()):  # named_children would list a shared one once
            if child in twins:
                setattr(around, name, twins[child])
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder) and any(
            isinstance(m, DropInAttention) for m in encoder.modules()
        ):
            encoder.use_nested_tensor = False  # no attention module of ours takes nested tensors


# ------------------------------------------------------------------------------------------------- the report


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """One attention layer that is differential now."""

    name: str
    kind: str  # library and class of what it was
    heads: int  # of the softmax layer
    diff_heads: int
    map_width: int  # of each of a head's two queries and keys
    value_width: int  # of a head's values: twice that
    lambda_init: float
    gain: float  # of the normed output
    carried: dict[str, str]  # parameter here -> parameter of the old layer that it is
    new: dict[str, int]  # parameter -> its number of entries
    out_elsewhere: str | None  # the model's own output projection outside of the layer, which stays as it was

    @property
    def projections(self) -> dict[str, str]:
        """q, k, v and out: what became of weight and bias."""
        state = {part: self._state(prefix) for part, prefix in _PREFIX.items()}
        if self.out_elsewhere is not None:
            state["out"] = f"left as it is, outside of the layer: {self.out_elsewhere}"
        return state

    def _state(self, prefixes: tuple[str, ...]) -> str:
        states = []
        for what in ("weight", "bias"):
            names = [f"{prefix}.{what}" for prefix in prefixes]
            carried, new = (next((n for n in names if n in group), None) for group in (self.carried, self.new))
            states.append(f"{what} {'carried' if carried else 'new' if new else 'none'}")
        return ", ".join(states)

    @property
    def mapping(self) -> str:
        """How weights that were carried over meet the two branches."""
        if not self.carried:
            return NOT_CARRIED
        return PAIRED if self.heads == 2 * self.diff_heads else REGROUPED


_PREFIX = {
    "q": ("qkv", "qkv.query"),
    "k": ("qkv", "qkv.key"),
    "v": ("qkv", "qkv.value"),
    "out": ("proj",),
}


@dataclass(frozen=True)
class Unchanged:
    """An attention layer that was not replaced."""

    name: str
    kind: str
    reason: str


@dataclass(frozen=True)
class DifferentiateReport:
    """What `differentiate` replaced, what it did not and why. `str` of it is a page to read."""

    layers: tuple[Replaced, ...]
    left: tuple[Unchanged, ...]
    parameters_before: int
    parameters_after: int
    carry: bool
    seed: int

    def __str__(self) -> str:
        more = self.parameters_after - self.parameters_before
        lines = [
            f"{len(self.layers)} attention layers are differential now; what the model computes is not what it computed",
            f"parameters: {self.parameters_before:,} before, {self.parameters_after:,} after ({more:+,})",
        ]
        for row in self.layers:
            extra = {name: n for name, n in row.new.items() if not name.startswith(("qkv.", "proj."))}
            lines += [
                f"{row.name} ({row.kind}): {row.heads} heads -> {row.diff_heads} of two maps of width {row.map_width}, "
                f"values of width {row.value_width}; lambda_init {row.lambda_init:.3g}, gain {row.gain:.3g}",
                *(f"  {', '.join(parts)}: {state}" for state, parts in _by_state(row.projections).items()),
                f"  added: {', '.join(extra) or 'nothing'} ({sum(extra.values()):,})",
            ]
        lines += [f"carried over: {mapping}" for mapping in dict.fromkeys(row.mapping for row in self.layers)]
        lines += [f"left: {row.name} ({row.kind}): {row.reason}" for row in self.left]
        return "\n".join(lines)


def _by_state(projections: dict[str, str]) -> dict[str, list[str]]:
    states: dict[str, list[str]] = {}
    for part, state in projections.items():
        states.setdefault(state, []).append(part)
    return states


def _parameter_count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _kind(module: nn.Module) -> str:
    library = type(module).__module__.partition(".")[0]
    return f"{library} {type(module).__name__}"


def _replaced(name: str, module: nn.Module, twin: DifferentialAttention, parts: AttentionParts) -> Replaced:
    old = {id(p): n for n, p in module.named_parameters()}
    own = dict(twin.named_parameters())
    layout = layout_of(module)
    elsewhere = f"{name.rpartition('.')[0]}.{layout.out_elsewhere}" if layout and layout.out is None else None
    return Replaced(
        name=name,
        kind=_kind(module),
        heads=parts.heads,
        diff_heads=twin.num_heads,
        map_width=twin.head_dim,
        value_width=2 * twin.head_dim,
        lambda_init=twin.lambda_init,
        gain=twin.gain,
        carried={n: old[id(p)] for n, p in own.items() if id(p) in old},
        new={n: p.numel() for n, p in own.items() if id(p) not in old},
        out_elsewhere=elsewhere,
    )
