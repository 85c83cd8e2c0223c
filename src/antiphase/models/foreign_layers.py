"""Attention layers of timm, torch and Hugging Face: what they are made of, how they are called, and differential layers
that are made of the same parts and called in the same way.

A Hugging Face class is recognised by its name, so that `transformers` need not be installed.
B batch, N tokens, M tokens that are attended to, D width, h differential heads
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from timm.layers import Attention as TimmAttention
from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.models.attention import DifferentialAttention, project


class StackedProjections(nn.Module):
    """Three projections as one module, queries, keys and values side by side: (B, N, D) -> (B, N, 3D)"""

    def __init__(self, query: nn.Linear, key: nn.Linear, value: nn.Linear) -> None:
        super().__init__()
        self.query, self.key, self.value = query, key, value

    @property
    def weight(self) -> Tensor:
        return torch.cat([linear.weight for linear in (self.query, self.key, self.value)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.query(x), self.key(x), self.value(x)], dim=-1)


@dataclass(frozen=True)
class AttentionParts:
    """What a softmax layer is made of; the modules and parameters are the layer's own."""

    qkv: nn.Linear | StackedProjections  # (B, N, D) -> (B, N, 3D)
    proj: nn.Module  # of the joined heads; nn.Identity where the model does it outside of the layer
    width: int  # D
    heads: int
    q_norm: nn.Module = field(default_factory=nn.Identity)  # of each head's queries
    k_norm: nn.Module = field(default_factory=nn.Identity)
    norm: nn.Module = field(default_factory=nn.Identity)  # of the joined heads, before they are projected
    attn_drop: float = 0.0  # dropout of the maps
    proj_drop: float = 0.0  # and of the output


@dataclass(frozen=True)
class HuggingFaceLayout:
    """Where a Hugging Face class keeps its projections."""

    qkv: tuple[str, ...]  # one module for all three, or one each
    out: str | None  # the output projection; None: it is in the module around the layer
    out_elsewhere: str = ""  # where it is then, from the module around the layer


_BERT = HuggingFaceLayout(("query", "key", "value"), None, "output.dense")
_CLIP = HuggingFaceLayout(("q_proj", "k_proj", "v_proj"), "out_proj")
_VIT = HuggingFaceLayout(("q_proj", "k_proj", "v_proj"), "o_proj")
HUGGING_FACE_LAYOUTS = {
    "AlignTextSelfAttention": _BERT,
    "BertSelfAttention": _BERT,
    "BlipAttention": HuggingFaceLayout(("qkv",), "projection"),
    "CLIPAttention": _CLIP,
    "DeiTAttention": _VIT,
    "Dinov2Attention": _VIT,
    "Dinov2WithRegistersAttention": _VIT,
    "RobertaSelfAttention": _BERT,
    "Siglip2Attention": _CLIP,
    "SiglipAttention": _CLIP,
    "ViTAttention": _VIT,
}


IGNORED_ARGUMENTS = {  # passed by Hugging Face's models to every module, used by none of the attention layers known here
    "num_items_in_batch",
    "output_attentions",
    "output_hidden_states",
    "position_ids",  # the positions are in the tokens already
    "return_dict",
    "use_cache",  # a cache itself comes as past_key_values
}


def layout_of(module: nn.Module) -> HuggingFaceLayout | None:
    """The layout of a Hugging Face layer that is known here; None for any other module."""
    kind = type(module)
    return HUGGING_FACE_LAYOUTS.get(kind.__name__) if kind.__module__.startswith("transformers.models.") else None


def is_open_clip(module: nn.Module) -> bool:
    """open_clip's own attention class, which its custom blocks have"""
    kind = type(module)
    return kind.__name__ == "Attention" and kind.__module__ == "open_clip.transformer"


def is_known_layer(module: nn.Module) -> bool:
    """Whether `parts_of` knows this class; a subclass may compute something else, so it is not known."""
    return type(module) in (TimmAttention, nn.MultiheadAttention) or layout_of(module) is not None


def parts_of(module: Any) -> AttentionParts:
    """The parts of a softmax layer; an option that a differential layer has no place for is refused by name."""
    if type(module) is TimmAttention:
        return _timm_parts(module)
    if type(module) is nn.MultiheadAttention:
        return _torch_parts(module)
    layout = layout_of(module)
    if layout is None:
        raise InputError(f"{type(module).__name__} is a kind that is not known here")
    return _hugging_face_parts(module, layout)


def _timm_parts(module: Any) -> AttentionParts:
    if module.gate is not None:
        raise InputError("timm's Attention with gated=True is not replaced: a differential layer has no gate")
    width = module.qkv.in_features
    if module.attn_dim != width or module.proj.out_features != width:
        raise InputError(
            f"timm's Attention with heads of another width than {width} / heads, or dim_out, is not replaced"
        )
    return AttentionParts(
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


def _torch_parts(module: Any) -> AttentionParts:
    if not module._qkv_same_embed_dim:
        raise InputError("nn.MultiheadAttention with kdim or vdim is cross-attention, which is not replaced")
    if module.bias_k is not None or module.add_zero_attn:
        raise InputError("nn.MultiheadAttention with add_bias_kv or add_zero_attn is not replaced")
    width = module.embed_dim
    qkv = nn.Linear(width, 3 * width, bias=module.in_proj_bias is not None, device="meta")
    qkv.weight, qkv.bias = module.in_proj_weight, module.in_proj_bias
    return AttentionParts(qkv, module.out_proj, width, module.num_heads, attn_drop=module.dropout)


def _hugging_face_parts(module: Any, layout: HuggingFaceLayout) -> AttentionParts:
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
    return AttentionParts(
        first if len(projections) == 1 else StackedProjections(*projections),
        nn.Identity() if layout.out is None else linears[layout.out],
        width,
        next(n for n in (getattr(module, a, None) for a in ("num_attention_heads", "num_heads")) if n is not None),
        attn_drop=drop.p if isinstance(drop, nn.Dropout) else float(drop),
    )


# ------------------------------------------------------------------------------------------------- layers to put in their place


@dataclass(frozen=True)
class AttentionCall:
    """The arguments of one call of a self-attention layer, in one form for all libraries, and the form of its return value."""

    x: Tensor  # (B, N, D)
    mask: Tensor | None  # as `attention_maps` takes it, or with a mask for each of a head's two maps (B, h, 2, N, M)
    result: Callable[[Tensor, Tensor | None], Any]  # from the output (B, N, D) and the map to what the layer returns
    is_causal: bool = False
    wants_map: bool = False


class DropInAttention(DifferentialAttention):
    """Differential attention that is called like the layer it replaces."""

    COPIED: ClassVar[dict[str, Any]] = {}  # attributes of that layer which it or its callers need, and their defaults

    def read_call(self, *args: Any, **kwargs: Any) -> AttentionCall:
        """The arguments of `forward` in one form for all libraries."""
        raise NotImplementedError

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        call = self.read_call(*args, **kwargs)
        if not call.wants_map:
            return call.result(super().forward(call.x, call.mask, call.is_causal), None)
        q, k, v = project(self, call.x)
        combined = self.combined(q, k, call.mask, call.is_causal)
        return call.result(self.finish(combined @ v), combined)


class DifferentialMultihead(DropInAttention):
    """Called like nn.MultiheadAttention as self-attention: `attn(x, x, x, ...)`.

    The weights it returns are A1 - lambda A2 of its h heads, or their mean; their rows do not sum to one.
    """

    COPIED: ClassVar[dict[str, Any]] = {"batch_first": False}
    in_proj_bias = None  # without one, torch's encoder layers do not take their fast path around the attention module

    batch_first: bool

    def read_call(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> AttentionCall:
        if key is not query or value is not query:
            raise InputError(
                "differential attention was called as cross-attention (its keys or values are not its queries' tokens): "
                "leave this layer out of differentiate's layers"
            )
        if query.dim() != 3 or query.is_nested:
            raise InputError(
                "differential attention takes batches, (B, N, D), or (N, B, D) without batch_first; "
                f"it was given {'a nested tensor' if query.is_nested else tuple(query.shape)}"
            )
        if is_causal and attn_mask is None:
            raise InputError("is_causal is a hint only, as in nn.MultiheadAttention: give the mask beside it")
        x = query if self.batch_first else query.transpose(0, 1)
        mask = torch_mask(attn_mask, key_padding_mask, x)
        if mask is not None and mask.shape[1] > 1:  # one mask for each map: those of head i are 2i and 2i+1
            mask = self._by_head(mask)

        def result(out: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
            out = out if self.batch_first else out.transpose(0, 1)
            return out, weights.mean(dim=1) if weights is not None and average_attn_weights else weights

        return AttentionCall(x, mask, result, wants_map=need_weights)

    def _by_head(self, mask: Tensor) -> Tensor:
        """(B, 2h, N, N) -> (B, h, 2, N, N)"""
        if mask.shape[1] != 2 * self.num_heads:
            raise InputError(
                f"attn_mask has {mask.shape[1]} masks per example, and this layer {2 * self.num_heads} maps"
            )
        return mask.reshape(len(mask), self.num_heads, 2, *mask.shape[2:])


class DifferentialHuggingFace(DropInAttention):
    """Called like the attention of a Hugging Face encoder: `attn(hidden_states, attention_mask, ...)` -> (output, None)."""

    COPIED: ClassVar[dict[str, Any]] = {"is_causal": False, "config": None}

    is_causal: bool
    config: Any

    def read_call(self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> AttentionCall:
        if kwargs.pop("output_attentions", None) or getattr(self.config, "output_attentions", False):
            raise InputError(
                "output_attentions is refused: differential attention has two maps per head; read them with antiphase.taps"
            )
        return hugging_face_call(self, hidden_states, attention_mask, **kwargs)


# ------------------------------------------------------------------------------------------------- masks and calls


def torch_mask(attn_mask: Tensor | None, padding: Tensor | None, like: Tensor) -> Tensor | None:
    """nn.MultiheadAttention's two masks (True or -inf: not attended to) as one that is added to the scores.

    (1 or B, 1 or heads, N or 1, M), of the dtype and on the device of `like`, whose first dimension is B
    """
    total = None
    if attn_mask is not None:
        leading = (len(like), -1) if attn_mask.dim() == 3 else (1, 1)
        total = _additive(attn_mask, like).reshape(*leading, *attn_mask.shape[-2:])
    if padding is not None:
        padded = _additive(padding, like)[:, None, None, :]
        total = padded if total is None else total + padded
    return total


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask that is True where nothing is attended to, as one of 0 and -inf; one of numbers as it is."""
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask, -torch.inf)
    return mask.to(like.dtype)


def hugging_face_call(
    module: nn.Module,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> AttentionCall:
    """The arguments of a Hugging Face layer: a mask of four dimensions or none; anything else that would change the result is
    refused."""
    for name, value in kwargs.items():
        if name not in IGNORED_ARGUMENTS and value is not None and value is not False:
            raise InputError(
                f"attention was called with {name}, which is not supported here: call the model without it"
            )
    if attention_mask is not None and (not isinstance(attention_mask, Tensor) or attention_mask.dim() != 4):
        raise InputError(
            "attention was given a mask that is not (B, 1, N, N): "
            "build the model with attn_implementation='eager' or 'sdpa'"
        )
    causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal)
    return AttentionCall(
        hidden_states,
        attention_mask,
        lambda out, _: (out, None),
        is_causal=causal and attention_mask is None,  # a mask that is given is causal already
    )
