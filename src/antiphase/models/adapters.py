"""Which modules are attention, and how each is read. An adapter is one small function: a module and what it was called with
-> Heads (queries, keys, values, what happens after mixing). A model of your own needs no more:

    @adapter(MyAttention)
    def _mine(module, x, **_):                         # whatever its block passes: in timm also attn_mask and is_causal
        q, k, v = module.split(x)                      # (B, h, N, d) each
        return Heads(q, k, v, norm=nn.Identity(), project=lambda mixed: module.out(join(mixed)))

q and k of a differential layer are (B, h, 2, N, d), and `lam` is its lambda: a scalar, or any tensor that broadcasts to
(B, h, N, 1) where lambda depends on image, head or token. `check(module, x)` says whether an adapter is right: the layer's own
output must come out of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import Attention as TimmAttention
from timm.layers import DiffAttention as TimmDiffAttention
from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.models.attention import (
    Branches,
    DifferentialAttention,
    DifferentialAttentionV2,
    DintAttention,
    Heads,
    branches,
    for_both,
    project,
    refuse_mask_of_integral,
    sigmoid_gate,
)
from antiphase.models.differential_layouts import layout_adapter
from antiphase.models.foreign_layers import (
    DropInAttention,
    hugging_face_call,
    is_open_clip,
    layout_of,
    parts_of,
    torch_mask,
)

Adapter = Callable[..., Heads]  # (module, *args, **kwargs of its forward) -> Heads
ADAPTERS: dict[type[nn.Module], Adapter] = {}
INTERVENTIONS: dict[nn.Module, Callable[[Branches], Branches]] = {}  # at work now, by layer (models/interventions.py)


def adapter(kind: type[nn.Module]) -> Callable[[Adapter], Adapter]:
    """Register how a kind of module is read. Subclasses are read the same way unless they have an adapter of their own."""

    def register(function: Adapter) -> Adapter:
        ADAPTERS[kind] = function
        return function

    return register


def adapter_of(module: nn.Module) -> Adapter | None:
    """How this module is read; None where it is no attention layer that is known."""
    own = next((ADAPTERS[kind] for kind in type(module).__mro__ if kind in ADAPTERS), None)
    if own is not None:
        return own
    if layout_of(module) is not None:
        return _hugging
    return _open_clip if is_open_clip(module) else layout_adapter(module)


def read(module: nn.Module, *args: Any, **kwargs: Any) -> Branches:
    """The maps of an attention layer for what it is called with, by the explicit path."""
    function = adapter_of(module)
    if function is None and "dex" in type(module).__name__.lower():
        raise InputError(
            f"{type(module).__name__} looks like DEX, which has one map per head and subtracts from its output: there are no two "
            "branches to hold against each other; an adapter without lam reads its map (models/adapters.py)"
        )
    if function is None:
        known = ", ".join(kind.__name__ for kind in ADAPTERS)
        raise InputError(
            f"no adapter reads the attention maps of a {type(module).__name__}; there are some for {known}"
        )
    maps = branches(function(module, *args, **kwargs))
    return INTERVENTIONS[module](maps) if module in INTERVENTIONS else maps


def check(module: nn.Module, *args: Any, tolerance: float = 1e-5, **kwargs: Any) -> None:
    """Refuse an adapter whose explicit path does not give the module's own output (relative, largest entry)."""
    with torch.no_grad():
        theirs, ours = (
            out[0] if isinstance(out, tuple) else out
            for out in (module(*args, **kwargs), read(module, *args, **kwargs).output)
        )
    apart = float((theirs - ours).abs().max() / theirs.abs().max().clamp_min(1e-30))
    if not apart <= tolerance:
        raise InputError(
            f"the adapter of {type(module).__name__} is wrong: its output differs from the module's own by {apart:.1e}"
        )


def join(mixed: Tensor) -> Tensor:
    """(B, h, N, e) -> (B, N, h e)"""
    return mixed.transpose(1, 2).flatten(2)


def _per_head(weight: Tensor, *heads: int) -> Tensor:
    """Rows of a projection, by head: (h d, D) -> (h, d, D)"""
    return weight.reshape(*heads, -1, weight.shape[-1])


def _linear(module: Any) -> bool:
    """Queries and keys are linear in the layer's input."""
    return isinstance(module.q_norm, nn.Identity) and isinstance(module.k_norm, nn.Identity)


@adapter(TimmAttention)
def _softmax(module: Any, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Heads:
    batch, tokens, _ = x.shape
    q, k, v = module.qkv(x).view(batch, tokens, 3, module.num_heads, -1).permute(2, 0, 3, 1, 4)
    gate = None if module.gate is None else module.gate(x).sigmoid()

    def out(mixed: Tensor) -> Any:
        normed = module.norm(join(mixed))
        return module.proj_drop(module.proj(normed if gate is None else normed * gate))

    wq, wk, _ = module.qkv.weight.chunk(3)
    weights = (_per_head(wq, module.num_heads), _per_head(wk, module.num_heads)) if _linear(module) else None
    q, k = module.q_norm(q), module.k_norm(k)
    return Heads(q, k, v, nn.Identity(), out, mask=attn_mask, is_causal=is_causal, weights=weights)


@adapter(TimmDiffAttention)
def _differential(module: Any, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Heads:
    ours, integral = isinstance(module, DifferentialAttention), isinstance(module, DintAttention)
    if integral:
        refuse_mask_of_integral(attn_mask, is_causal)
    q, k, v = module.project(x) if ours else project(module, x)

    def norm(mixed: Tensor) -> Tensor:
        if isinstance(module, DifferentialAttention):
            return module.normed(mixed)
        out: Tensor = module.sub_norm(mixed) * (1 - module.lambda_init)
        return out

    def out(normed: Tensor) -> Any:
        return module.proj_drop(module.proj(module.norm(join(normed))))

    weights = None
    if _linear(module):
        wq, wk, *_ = module.query_key_weights if ours else module.qkv.weight.chunk(3)
        weights = (wq, wk) if ours else (_per_head(wq, module.num_heads, 2), _per_head(wk, module.num_heads, 2))
    lam, mask = module._compute_lambda().reshape(1, 1, 1, 1), for_both(attn_mask)
    return Heads(q, k, v, norm, out, lam=lam, mask=mask, is_causal=is_causal, weights=weights, integral=integral)


@adapter(DifferentialAttentionV2)
def _differential_v2(module: Any, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Heads:
    q, k, v = module.project(x)
    lam = module.lam(x)
    return Heads(
        q,
        k.expand_as(q),
        v,
        nn.Identity(),
        module.finish,
        lam=lam,
        mask=for_both(attn_mask),
        is_causal=is_causal,
        weights=module.query_key_weights,
        gate=sigmoid_gate(lam, module.lambda_proj.weight),
    )


@adapter(DropInAttention)
def _drop_in(module: Any, *args: Any, **kwargs: Any) -> Heads:
    call = module.read_call(*args, **kwargs)
    inner = _differential(module, call.x, call.mask, call.is_causal)

    def out(normed: Tensor) -> Any:
        return call.result(inner.project(normed), branches(inner).combined if call.wants_map else None)

    return replace(inner, project=out)


def _hugging(module: Any, *args: Any, **kwargs: Any) -> Heads:
    """A softmax layer of a Hugging Face encoder; `models/foreign_layers.py` lists which."""
    parts, call = parts_of(module), hugging_face_call(module, *args, **kwargs)
    q, k, v = (t.unflatten(-1, (parts.heads, -1)).transpose(1, 2) for t in parts.qkv(call.x).chunk(3, dim=-1))
    wq, wk, _ = parts.qkv.weight.chunk(3)
    return Heads(
        q,
        k,
        v,
        nn.Identity(),
        lambda mixed: call.result(parts.proj(join(mixed)), None),
        mask=call.mask,
        is_causal=call.is_causal,
        weights=(_per_head(wq, parts.heads), _per_head(wk, parts.heads)),
    )


def _open_clip(module: Any, x: Tensor, attn_mask: Tensor | None = None) -> Heads:
    """open_clip's own Attention, of its custom blocks; the usual blocks have nn.MultiheadAttention."""
    if module.logit_scale is not None:
        raise InputError(
            "open_clip's Attention with scaled_cosine=True is not read: its scores are cosines, not products"
        )
    heads = module.num_heads
    stacked = F.linear(x, module.in_proj_weight, module.in_proj_bias)
    q, k, v = (t.reshape(*x.shape[:2], heads, -1).transpose(1, 2) for t in stacked.chunk(3, dim=-1))
    mask = None if attn_mask is None else torch_mask(attn_mask, None, x)
    wq, wk, _ = module.in_proj_weight.chunk(3)
    linear = isinstance(module.ln_q, nn.Identity) and isinstance(module.ln_k, nn.Identity)
    return Heads(
        module.ln_q(q),
        module.ln_k(k),
        v,
        lambda mixed: mixed if module.head_scale is None else mixed * module.head_scale,
        lambda scaled: module.out_drop(module.out_proj(module.ln_inner(join(scaled)))),
        mask=mask,
        weights=(_per_head(wq, heads), _per_head(wk, heads)) if linear else None,
    )


@adapter(nn.MultiheadAttention)
def _multihead(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,  # noqa: ARG001 - a hint only: torch wants the mask beside it
) -> Heads:
    if module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn:
        raise InputError("nn.MultiheadAttention with kdim, vdim, add_bias_kv or add_zero_attn is not read")
    if query.dim() != 3:
        raise InputError("nn.MultiheadAttention is read on batches: (B, N, D), or (N, B, D) without batch_first")
    heads = module.num_heads

    def split(x: Tensor, part: int) -> Tensor:
        weight = module.in_proj_weight.chunk(3)[part]
        bias = None if module.in_proj_bias is None else module.in_proj_bias.chunk(3)[part]
        x = F.linear(x if module.batch_first else x.transpose(0, 1), weight, bias)
        return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)

    q, k, v = (split(x, part) for part, x in enumerate((query, key, value)))
    mask = torch_mask(attn_mask, key_padding_mask, q)

    def out(mixed: Tensor) -> Any:
        joined = module.out_proj(join(mixed))
        maps = None
        if need_weights:
            maps = branches(heads_of_call).signal
            maps = maps.mean(dim=1) if average_attn_weights else maps
        return (joined if module.batch_first else joined.transpose(0, 1)), maps

    wq, wk, _ = module.in_proj_weight.chunk(3)
    weights = (_per_head(wq, heads), _per_head(wk, heads)) if query is key else None
    heads_of_call = Heads(q, k, v, nn.Identity(), out, mask=mask, weights=weights)
    return heads_of_call
