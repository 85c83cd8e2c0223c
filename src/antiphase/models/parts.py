"""A softmax self-attention layer taken apart: timm's, torch's and Hugging Face's, so that another can be made of its parts.

A Hugging Face class is known by its name, so that `transformers` is needed by nobody who does not use it.
B batch, N tokens, D width
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from timm.layers import Attention as TimmAttention
from torch import Tensor, nn

from antiphase.config import InputError


class Stacked(nn.Module):
    """Three projections that answer as one, queries, keys and values side by side: (B, N, D) -> (B, N, 3D)"""

    def __init__(self, query: nn.Linear, key: nn.Linear, value: nn.Linear) -> None:
        super().__init__()
        self.query, self.key, self.value = query, key, value

    @property
    def weight(self) -> Tensor:
        return torch.cat([linear.weight for linear in (self.query, self.key, self.value)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.query(x), self.key(x), self.value(x)], dim=-1)


@dataclass(frozen=True)
class Parts:
    """What a softmax layer is made of. The modules and parameters are the layer's own."""

    qkv: nn.Linear | Stacked  # (B, N, D) -> (B, N, 3D)
    proj: nn.Module  # of the joined heads; nn.Identity where the model does it outside of the layer
    width: int  # D
    heads: int
    q_norm: nn.Module = field(default_factory=nn.Identity)  # of each head's queries
    k_norm: nn.Module = field(default_factory=nn.Identity)
    norm: nn.Module = field(default_factory=nn.Identity)  # of the joined heads, before they are projected
    attn_drop: float = 0.0  # dropout of the maps
    proj_drop: float = 0.0  # and of the output


@dataclass(frozen=True)
class Layout:
    """Where a Hugging Face class keeps its projections."""

    qkv: tuple[str, ...]  # one module for all three, or one each
    out: str | None  # None: in the module around it
    out_elsewhere: str = ""  # there, from the module around it


_BERT = Layout(("query", "key", "value"), None, "output.dense")
_CLIP = Layout(("q_proj", "k_proj", "v_proj"), "out_proj")
HUGGING = {
    "AlignTextSelfAttention": _BERT,
    "BertSelfAttention": _BERT,
    "BlipAttention": Layout(("qkv",), "projection"),
    "CLIPAttention": _CLIP,
    "RobertaSelfAttention": _BERT,
    "SiglipAttention": _CLIP,
    "ViTAttention": Layout(("q_proj", "k_proj", "v_proj"), "o_proj"),
}


def layout_of(module: nn.Module) -> Layout | None:
    """Of a Hugging Face layer that is known here; None of any other module."""
    kind = type(module)
    return HUGGING.get(kind.__name__) if kind.__module__.startswith("transformers.models.") else None


def is_known(module: nn.Module) -> bool:
    """`parts_of` takes this kind apart. A subclass may compute something else, so it is not the kind."""
    return type(module) in (TimmAttention, nn.MultiheadAttention) or layout_of(module) is not None


def parts_of(module: Any) -> Parts:
    """The parts of a softmax layer; an option that a differential layer has no place for is refused by name."""
    if type(module) is TimmAttention:
        return _timm(module)
    if type(module) is nn.MultiheadAttention:
        return _torch(module)
    layout = layout_of(module)
    if layout is None:
        raise InputError(f"{type(module).__name__} is a kind that is not known here")
    return _hugging(module, layout)


def _timm(module: Any) -> Parts:
    if module.gate is not None:
        raise InputError("timm's Attention with gated=True is not replaced: a differential layer has no gate")
    width = module.qkv.in_features
    if module.attn_dim != width or module.proj.out_features != width:
        raise InputError(
            f"timm's Attention with heads of another width than {width} / heads, or dim_out, is not replaced"
        )
    return Parts(
        module.qkv,
        module.proj,
        width,
        module.num_heads,
        module.q_norm,
        module.k_norm,
        module.norm,
        module.attn_drop.p,
        module.proj_drop.p,
    )


def _torch(module: Any) -> Parts:
    if not module._qkv_same_embed_dim:
        raise InputError("nn.MultiheadAttention with kdim or vdim is cross-attention, which is not replaced")
    if module.bias_k is not None or module.add_zero_attn:
        raise InputError("nn.MultiheadAttention with add_bias_kv or add_zero_attn is not replaced")
    width = module.embed_dim
    qkv = nn.Linear(width, 3 * width, bias=module.in_proj_bias is not None, device="meta")
    qkv.weight, qkv.bias = module.in_proj_weight, module.in_proj_bias
    return Parts(qkv, module.out_proj, width, module.num_heads, attn_drop=module.dropout)


def _hugging(module: Any, layout: Layout) -> Parts:
    kind = type(module).__name__
    linears: dict[str, Any] = {name: getattr(module, name, None) for name in (*layout.qkv, *filter(None, [layout.out]))}
    for name, linear in linears.items():
        if not isinstance(linear, nn.Linear):
            raise InputError(
                f"{name} of this {kind} is a {type(linear).__name__}, not an nn.Linear: it is not replaced"
            )
    first, *_ = projections = [linears[name] for name in layout.qkv]
    width = first.in_features
    if sum(linear.out_features for linear in projections) != 3 * width or any(
        p.in_features != width for p in projections
    ):
        raise InputError(f"the projections of this {kind} are not from {width} to {width}: it is not replaced")
    drop = next(d for d in (getattr(module, n, None) for n in ("attention_dropout", "dropout")) if d is not None)
    return Parts(
        first if len(projections) == 1 else Stacked(*projections),
        nn.Identity() if layout.out is None else linears[layout.out],
        width,
        next(n for n in (getattr(module, a, None) for a in ("num_attention_heads", "num_heads")) if n is not None),
        attn_drop=drop.p if isinstance(drop, nn.Dropout) else float(drop),
    )
