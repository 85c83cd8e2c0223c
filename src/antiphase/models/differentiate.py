"""What `differentiate` did to a model, as plain values."""

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

from antiphase.config import InputError
from antiphase.models.adapters import check
from antiphase.models.attention import DifferentialAttention
from antiphase.models.config import Differential
from antiphase.models.foreign_layers import (
    Called,
    DifferentialHugging,
    DifferentialMultihead,
    Parts,
    is_known,
    layout_of,
    parts_of,
)
from antiphase.runtime import frozen, seeded

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
        told = []
        for what in ("weight", "bias"):
            names = [f"{prefix}.{what}" for prefix in prefixes]
            carried, new = (next((n for n in names if n in group), None) for group in (self.carried, self.new))
            told.append(f"{what} {'carried' if carried else 'new' if new else 'none'}")
        return ", ".join(told)

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
class Left:
    """An attention layer that is as it was."""

    name: str
    kind: str
    reason: str


@dataclass(frozen=True)
class Swap:
    """What was replaced, what was not and why. `str` of it is a page to read."""

    layers: tuple[Replaced, ...]
    left: tuple[Left, ...]
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


# ------------------------------------------------------------------------------------------------- models.differentiate
# Softmax self-attention replaced by differential attention in a model that is none of ours.
#
# A layer of H softmax heads of width d becomes one of H/2 differential heads with two maps of width d each and values of
# width 2d. Its weights can be carried over; what the model computes is not preserved, with or without them.


Which = Literal["all"] | Collection[str] | Callable[[str, nn.Module], bool]


def differentiate(
    model: nn.Module,
    attention: Differential = Differential(),
    *,
    layers: Which = "all",
    carry: bool = True,
    diff_heads: int | None = None,
    seed: int = 0,
    inplace: bool = False,
) -> tuple[nn.Module, Swap]:
    """The model with differential attention in place of softmax self-attention, and a report of what was done.

    layers      "all", names of layers or of modules that hold them ("visual"), or a predicate of (name, module). Layers
                that cannot be replaced (cross-attention, unknown kinds) are left and reported; named, they are refused.
    attention   lambda_init is one for all, one for each layer of a stack, or a schedule over the stack's layers.
    carry       the layer's own q, k, v and out weights and biases, else fresh ones (PyTorch's initialisation, from `seed`).
    diff_heads  differential heads of each layer; half of its heads when not given.
    inplace     change `model` itself; otherwise a deep copy is changed and `model` stays as it is.

    Hooks on a replaced layer go with it. Nothing is changed when anything is refused.
    """
    if not inplace:
        model = copy.deepcopy(model)
    found = _attention_like(model)
    reasons = {name: _why_not(model, name, module) for name, module in found.items()}
    chosen = _chosen(found, reasons, layers)
    before = _count(model)
    twins: dict[nn.Module, DifferentialAttention] = {}
    rows = []
    for name in chosen:
        layer, depth = _place(name, found)
        parts = parts_of(found[name])
        heads = _diff_heads(name, parts, diff_heads)
        with seeded(seed, "differentiate", name):
            twins[found[name]] = twin = _twin(
                found[name], parts if carry else _fresh(parts), attention, heads, layer, depth
            )
        rows.append(_row(name, found[name], twin, parts))
    _put(model, twins)
    left = tuple(Left(n, _kind(found[n]), reasons[n] or "not asked for") for n in found if n not in chosen)
    return model, Swap(tuple(rows), left, before, _count(model), carry, seed)


# ------------------------------------------------------------------------------------------------- which layers
def _attention_like(model: nn.Module) -> dict[str, nn.Module]:
    """Modules that are attention, or have it in their name and none inside, by name."""
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer, m in found.items() if is_known(m))
        if not inside and (is_known(module) or _sounds_like(module)):
            found[name] = module
    outer = {
        name for name in found for other in found if other != name and other.startswith(f"{name}." if name else "")
    }
    return {name: module for name, module in found.items() if name not in outer}


def _sounds_like(module: nn.Module) -> bool:
    named = re.search("attention|attn", type(module).__name__, re.IGNORECASE)
    return named is not None or isinstance(module, TimmDiffAttention)


def _why_not(model: nn.Module, name: str, module: Any) -> str | None:
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


def _chosen(found: dict[str, nn.Module], reasons: dict[str, str | None], layers: Which) -> list[str]:
    able = [name for name, reason in reasons.items() if reason is None]
    if callable(layers):
        able = [name for name in able if layers(name, found[name])]
    elif layers != "all":
        names = [layers] if isinstance(layers, str) else list(layers)
        for name in names:
            if reasons.get(name) is not None:
                raise InputError(f"{name!r} cannot be made differential: {reasons[name]}")
            if not any(_under(other, name) for other in found):
                near = difflib.get_close_matches(name, found, n=1)
                raise InputError(
                    f"there is no attention layer {name!r} in this {'model' if found else 'model, nor any other'}"
                    + (f"; did you mean {near[0]!r}?" if near else "")
                )
        able = [name for name in able if any(_under(name, asked) for asked in names)]
    if not able:
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason) or "none was found or chosen"
        raise InputError(f"no attention layer to replace ({why})")
    return able


def _under(name: str, asked: str) -> bool:
    return name == asked or name.startswith(f"{asked}.")


def _place(name: str, found: dict[str, nn.Module]) -> tuple[int, int]:
    """Which layer of its stack, of how many: layers whose names differ in numbers only are one stack."""
    stack = [other for other in found if _stack(other) == _stack(name)]
    return stack.index(name), len(stack)


def _stack(name: str) -> str:
    return re.sub(r"\d+", "#", name)


# ------------------------------------------------------------------------------------------------- the twin
def _diff_heads(name: str, parts: Parts, asked: int | None) -> int:
    if asked is None and parts.heads % 2:
        raise InputError(
            f"{name} has {parts.heads} heads, which is odd, and a differential head takes two: "
            "leave it out of layers, or set diff_heads"
        )
    heads = parts.heads // 2 if asked is None else asked
    if heads < 1 or parts.width % (2 * heads):
        raise InputError(
            f"diff_heads={heads} does not fit the width {parts.width} of {name}: "
            "a head has two maps, so 2 x diff_heads must divide the width"
        )
    if 2 * heads != parts.heads and not isinstance(parts.q_norm, nn.Identity):
        raise InputError(f"{name} has a norm for queries of its {parts.heads} heads: leave diff_heads at half of them")
    return heads


def _fresh(parts: Parts) -> Parts:
    """The same parts with weights of their own, as PyTorch initialises them, to be trained."""
    names = ("qkv", "proj", "q_norm", "k_norm", "norm")
    new = {name: copy.deepcopy(getattr(parts, name)) for name in names}
    for part in new.values():
        part.requires_grad_(True)
        for module in part.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    return replace(parts, **new)


def _twin(
    module: nn.Module, parts: Parts, attention: Differential, heads: int, layer: int, depth: int
) -> DifferentialAttention:
    kind = (
        DifferentialAttention
        if isinstance(module, TimmAttention)
        else DifferentialMultihead
        if isinstance(module, nn.MultiheadAttention)
        else DifferentialHugging
    )
    if kind is DifferentialHugging:
        _prove(module, parts)
    twin = kind.replacing(parts, attention, heads, layer, depth)
    if isinstance(twin, Called):
        for attribute, default in twin.KEPT.items():
            setattr(twin, attribute, getattr(module, attribute, default))
    twin.train(module.training)
    return twin


def _prove(module: nn.Module, parts: Parts) -> None:
    """Classes are known by name, and another version may compute something else: its output must come out of its parts."""
    given = next(module.parameters())
    if given.is_meta:
        return
    exact = 1e-4 if given.dtype in (torch.float32, torch.float64) else 5e-2
    with frozen(module):
        check(module, torch.randn(2, 5, parts.width).to(given), tolerance=exact)


def _put(model: nn.Module, twins: dict[nn.Module, DifferentialAttention]) -> None:
    """Every place of a replaced layer, since a layer may be shared; torch's encoders lose their fast path."""
    for around in list(model.modules()):
        for name, child in list(around._modules.items()):  # named_children would tell a shared one once
            if child in twins:
                setattr(around, name, twins[child])
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder) and any(isinstance(m, Called) for m in encoder.modules()):
            encoder.use_nested_tensor = False  # no attention module of ours takes nested tensors


# ------------------------------------------------------------------------------------------------- what is reported
def _count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _kind(module: nn.Module) -> str:
    library = type(module).__module__.partition(".")[0]
    return f"{library} {type(module).__name__}"


def _row(name: str, module: nn.Module, twin: DifferentialAttention, parts: Parts) -> Replaced:
    old = {id(p): n for n, p in module.named_parameters()}
    mine = dict(twin.named_parameters())
    layout = layout_of(module)
    outside = f"{name.rpartition('.')[0]}.{layout.out_elsewhere}" if layout and layout.out is None else None
    return Replaced(
        name=name,
        kind=_kind(module),
        heads=parts.heads,
        diff_heads=twin.num_heads,
        map_width=twin.head_dim,
        value_width=2 * twin.head_dim,
        lambda_init=twin.lambda_init,
        gain=twin.gain,
        carried={n: old[id(p)] for n, p in mine.items() if id(p) in old},
        new={n: p.numel() for n, p in mine.items() if id(p) not in old},
        out_elsewhere=outside,
    )
