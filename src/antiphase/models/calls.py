"""How attention layers of other libraries are called, and differential layers that are called in the same way.

B batch, N tokens, D width, h differential heads
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from antiphase.config import InputError
from antiphase.models.attention import DifferentialAttention, project


@dataclass(frozen=True)
class Call:
    """What a self-attention layer was given, and how it answers."""

    x: Tensor  # (B, N, D)
    mask: Tensor | None  # as `attention_maps` takes it, and one for two maps a head as `for_both` makes it
    answer: Callable[[Tensor, Tensor | None], Any]  # the output (B, N, D) and a map -> what the layer returns
    is_causal: bool = False
    wants_map: bool = False


class Called(DifferentialAttention):
    """Differential attention that is called as the layer in whose place it stands."""

    KEPT: ClassVar[dict[str, Any]] = {}  # attributes of that layer which it or its callers need, and their defaults

    def understood(self, *args: Any, **kwargs: Any) -> Call:
        raise NotImplementedError

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        call = self.understood(*args, **kwargs)
        if not call.wants_map:
            return call.answer(super().forward(call.x, call.mask, call.is_causal), None)
        q, k, v = project(self, call.x)
        combined = self.combined(q, k, call.mask, call.is_causal)
        return call.answer(self.finish(combined @ v), combined)


class DifferentialMultihead(Called):
    """Called as nn.MultiheadAttention, on itself: `attn(x, x, x, ...)`.

    The weights it returns are A1 - lambda A2 of its h heads, or their mean; their rows do not sum to one.
    """

    KEPT: ClassVar[dict[str, Any]] = {"batch_first": False}
    in_proj_bias = None  # without one, torch's encoder layers do not take the fast path around their attention module

    batch_first: bool

    def understood(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Call:
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
        if mask is not None and mask.shape[1] > 1:  # one for each map: those of head i are 2i and 2i+1
            mask = self._of_both_maps(mask)

        def answer(out: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
            out = out if self.batch_first else out.transpose(0, 1)
            return out, weights.mean(dim=1) if weights is not None and average_attn_weights else weights

        return Call(x, mask, answer, wants_map=need_weights)

    def _of_both_maps(self, mask: Tensor) -> Tensor:
        if mask.shape[1] != 2 * self.num_heads:
            raise InputError(
                f"attn_mask has {mask.shape[1]} masks an example, and this layer {2 * self.num_heads} maps"
            )
        return mask.reshape(len(mask), self.num_heads, 2, *mask.shape[2:])  # (B, h, 2, N, N)


class DifferentialHugging(Called):
    """Called as the attention of a Hugging Face encoder: `attn(hidden_states, attention_mask, ...)` -> (output, None)."""

    KEPT: ClassVar[dict[str, Any]] = {"is_causal": False, "config": None}

    is_causal: bool
    config: Any

    def understood(self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> Call:
        if kwargs.pop("output_attentions", None) or getattr(self.config, "output_attentions", False):
            raise InputError(
                "output_attentions is refused: differential attention has two maps a head; read them with antiphase.taps"
            )
        return hugging_call(self, hidden_states, attention_mask, **kwargs)


# ------------------------------------------------------------------------------------------------- masks


def torch_mask(attn_mask: Tensor | None, padding: Tensor | None, like: Tensor) -> Tensor | None:
    """nn.MultiheadAttention's two masks (True or -inf: not to be seen) as one that is added to the scores of a batch
    `like` (B, ...): (1 or B, 1 or heads, N or 1, M)"""
    total = None
    if attn_mask is not None:
        leading = (len(like), -1) if attn_mask.dim() == 3 else (1, 1)
        total = _added(attn_mask, like).reshape(*leading, *attn_mask.shape[-2:])
    if padding is not None:
        hidden = _added(padding, like)[:, None, None, :]
        total = hidden if total is None else total + hidden
    return total


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask, -torch.inf)
    return mask.to(like.dtype)


HARMLESS = {  # what Hugging Face's models pass on to every module, and no attention layer of theirs that is known here uses
    "num_items_in_batch",
    "output_attentions",
    "output_hidden_states",
    "position_ids",  # the positions are in the tokens already
    "return_dict",
    "use_cache",  # a cache itself comes as past_key_values
}


def hugging_call(
    module: nn.Module,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> Call:
    """A call of a Hugging Face layer: a mask of four dimensions or none; whatever else changes the result is refused."""
    for name, value in kwargs.items():
        if name not in HARMLESS and value is not None and value is not False:
            raise InputError(
                f"attention was called with {name}, which is not supported here: call the model without it"
            )
    if attention_mask is not None and (not isinstance(attention_mask, Tensor) or attention_mask.dim() != 4):
        raise InputError(
            "attention was given a mask that is not (B, 1, N, N): "
            "build the model with attn_implementation='eager' or 'sdpa'"
        )
    causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal)
    return Call(
        hidden_states,
        attention_mask,
        lambda out, _: (out, None),
        is_causal=causal and attention_mask is None,  # a mask that is given is causal already
    )
