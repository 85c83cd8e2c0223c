"""Differential attention layers of other projects, recognised by what they are made of, so that none need be installed:
unilm's Differential Transformer (V1 and V2), the DiffCLIP authors' layer, transformers' DiffLlama.

A layer with the same parts may compute something else: `adapters.check(module, ...)` says whether it does.
B batch, N tokens, h differential heads, d width of a map's queries, D width of the layer
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.models.attention import Heads, for_both, sigmoid_gate

LAMBDA = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
Rotary = tuple[Tensor, Tensor]  # cos and sin


def layout_adapter(module: nn.Module) -> Callable[..., Heads] | None:
    """How a layer of these projects is read; None for any other module."""
    kind = type(module)
    if kind.__name__ == "DiffLlamaAttention" and kind.__module__.startswith("transformers."):
        return _diffllama
    known: dict[Callable[..., Heads], tuple[str, ...]] = {
        _unilm_v1: (
            "q_proj",
            "k_proj",
            "v_proj",
            "out_proj",
            "subln",
            "lambda_init",
            "num_heads",
            "num_kv_heads",
            *LAMBDA,
        ),
        _unilm_v2: ("q_proj", "k_proj", "v_proj", "o_proj", "lambda_proj", "num_heads", "num_kv_heads", "head_dim"),
        _diffclip: ("q_proj", "k_proj", "v_proj", "out_proj", "diff_norm", "lambda_init", "num_heads", *LAMBDA),
    }
    return next((read for read, parts in known.items() if all(hasattr(module, part) for part in parts)), None)


def _lambda(module: Any) -> Tensor:
    """exp(lq1.lk1) - exp(lq2.lk2) + lambda_init: (1, 1, 1, 1)"""
    first, second = (
        (q * k).sum().float().exp()
        for q, k in ((module.lambda_q1, module.lambda_k1), (module.lambda_q2, module.lambda_k2))
    )
    lam: Tensor = first - second + module.lambda_init
    return lam.reshape(1, 1, 1, 1)


def _maps_first(projected: Tensor, maps: int) -> Tensor:
    """(B, N, maps d) -> (B, maps, N, d)"""
    return projected.reshape(*projected.shape[:2], maps, -1).transpose(1, 2)


def _repeated(heads: Tensor, times: int) -> Tensor:
    """Each key or value head for the `times` query heads that share it: (B, g, ...) -> (B, g times, ...)"""
    return heads.repeat_interleave(times, dim=1)


def _in_pairs(maps: Tensor) -> Tensor:
    """Maps 2i and 2i+1 belong to head i: (B, 2h, ...) -> (B, h, 2, ...)"""
    return maps.reshape(len(maps), -1, 2, *maps.shape[2:])


def _weights_in_pairs(weight: Tensor, maps: int, times: int = 1) -> Tensor:
    """(maps d, D) -> (h, 2, d, D)"""
    rows = weight.reshape(maps, -1, weight.shape[-1]).repeat_interleave(times, dim=0)
    return rows.reshape(-1, 2, *rows.shape[1:])


def _joined(mixed: Tensor) -> Tensor:
    """(B, h, N, e) -> (B, N, h e)"""
    return mixed.transpose(1, 2).flatten(2)


def _rotated(x: Tensor, rotary: Rotary | None) -> Tensor:
    """Positions by rotation, neighbouring entries in pairs, as unilm does it. x: (B, maps, N, d), cos and sin: (N, d / 2)"""
    if rotary is None:
        return x
    cos, sin = rotary
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


# ------------------------------------------------------------------------------------------------- unilm
def _unilm_v1(module: Any, x: Tensor, rel_pos: Rotary | None = None, attn_mask: Tensor | None = None) -> Heads:
    """Maps 2i and 2i+1 of head i, values of width 2d, keys and values of groups of heads; causal where no mask is given."""
    heads, groups = module.num_heads, module.num_kv_heads
    q, k = (
        _rotated(_maps_first(linear(x), 2 * n), rel_pos)
        for linear, n in ((module.q_proj, heads), (module.k_proj, groups))
    )
    k, v = _repeated(k, heads // groups), _repeated(_maps_first(module.v_proj(x), groups), heads // groups)
    weights = None
    if rel_pos is None:
        wq = _weights_in_pairs(module.q_proj.weight, 2 * heads)
        weights = wq, _weights_in_pairs(module.k_proj.weight, 2 * groups, heads // groups)
    return Heads(
        _in_pairs(q),
        _in_pairs(k),
        v,
        lambda mixed: module.subln(mixed) * (1 - module.lambda_init),
        lambda normed: module.out_proj(_joined(normed)),
        lam=_lambda(module),
        mask=for_both(attn_mask),
        is_causal=attn_mask is None,
        weights=weights,
    )


def _unilm_v2(module: Any, x: Tensor, rel_pos: Rotary | None = None) -> Heads:
    """Queries 2i and 2i+1 of head i share a key and a value; lambda = sigmoid(W x) of every token and head; always causal."""
    heads, groups = module.num_heads, module.num_kv_heads
    two = module.lambda_proj is not None  # without it, it is a softmax layer
    maps = 2 * heads if two else heads
    times = maps // groups
    if two and times % 2:
        raise InputError(
            f"{type(module).__name__} has {groups} key heads for {maps} queries: the two queries of a head do not share their "
            "values, so that it is no difference of two maps"
        )
    q, k = (
        _rotated(_maps_first(linear(x), n), rel_pos) for linear, n in ((module.q_proj, maps), (module.k_proj, groups))
    )
    v, k = _repeated(_maps_first(module.v_proj(x), groups), heads // groups), _repeated(k, times)
    out: dict[str, Any] = {"norm": nn.Identity(), "project": lambda mixed: module.o_proj(_joined(mixed))}
    if not two:
        return Heads(q, k, v, **out, is_causal=True)
    lam = module.lambda_proj(x).sigmoid().transpose(1, 2)[..., None]
    weights = None
    if rel_pos is None:
        wq = _weights_in_pairs(module.q_proj.weight, maps)
        weights = wq, _weights_in_pairs(module.k_proj.weight, groups, times)
    gate = sigmoid_gate(lam, module.lambda_proj.weight)
    return Heads(_in_pairs(q), _in_pairs(k), v, **out, lam=lam, is_causal=True, weights=weights, gate=gate)


# ------------------------------------------------------------------------------------------------- DiffCLIP
def _diffclip(module: Any, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Heads:
    """As unilm's V1 with biases and without positions; `num_heads` counts the maps, twice the heads (docs/method.md 4.3)."""
    maps = module.num_heads
    q, k = (_in_pairs(_maps_first(linear(x), maps)) for linear in (module.q_proj, module.k_proj))
    drop = getattr(module, "proj_drop", nn.Identity())
    return Heads(
        q,
        k,
        _maps_first(module.v_proj(x), maps // 2),
        lambda mixed: module.diff_norm(mixed) * (1 - module.lambda_init),
        lambda normed: drop(module.out_proj(_joined(normed))),
        lam=_lambda(module),
        mask=for_both(attn_mask),
        is_causal=is_causal,
        weights=(_weights_in_pairs(module.q_proj.weight, maps), _weights_in_pairs(module.k_proj.weight, maps)),
    )


# ------------------------------------------------------------------------------------------------- DiffLlama
def _diffllama(
    module: Any,
    hidden_states: Tensor,
    position_embeddings: Rotary,
    attention_mask: Tensor | None = None,
    past_key_values: Any = None,
    **_: Any,
) -> Heads:
    """Maps i and i + h of head i; a pair shares the values [V_j, V_j+g/2] of its key head j; a norm without weight."""
    if past_key_values is not None:
        raise InputError("DiffLlamaAttention was called with past_key_values: run the model with use_cache=False")
    cos, sin = (t[:, None] for t in position_embeddings)  # (B, 1, N, d)
    groups = module.k_proj.out_features // module.head_dim

    def rotated(t: Tensor) -> Tensor:
        low, high = t.chunk(2, dim=-1)
        return t * cos + torch.cat([-high, low], dim=-1) * sin

    maps = groups * module.num_key_value_groups
    q = rotated(_maps_first(module.q_proj(hidden_states), maps))
    k = _repeated(rotated(_maps_first(module.k_proj(hidden_states), groups)), module.num_key_value_groups)
    v = _maps_first(module.v_proj(hidden_states), groups)
    shared = torch.cat(v.chunk(2, dim=1), dim=-1)  # (B, g / 2, N, 2d)
    eager = getattr(module.config, "_attn_implementation", None) == "eager"  # which is not causal without a mask
    return Heads(
        torch.stack(q.chunk(2, dim=1), dim=2),
        torch.stack(k.chunk(2, dim=1), dim=2),
        _repeated(shared, module.num_key_value_groups),
        lambda mixed: (1 - module.lambda_init) * module.groupnorm(mixed),
        lambda normed: (module.o_proj(_joined(normed)), None),
        lam=_lambda(module),
        mask=for_both(attention_mask),
        is_causal=attention_mask is None and not eager,
    )
