"""The same logits for less: where only the class token is read, the last block need not compute the other tokens.

At depth 1 that is most of a ViT's work. Outside the context manager the model is untouched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from antiphase.models.attention import first_token, has_first_token


@contextmanager
def lean(model: nn.Module) -> Iterator[None]:
    """Inside, the last block of every plain timm ViT in the model returns the class token alone: (B, 1, D).

    Equal to the full computation but for the rounding of matrix products of another shape. A model that anybody watches
    by hooks, or whose last block is of a kind not known here, runs in full.
    """
    last = [vit.blocks[-1] for vit in model.modules() if isinstance(vit, VisionTransformer) and _can(vit)]
    for block in last:
        block.forward = partial(_class_token_only, block)
    try:
        yield
    finally:
        for block in last:
            del block.forward  # the class's own shows again


def _can(vit: Any) -> bool:
    block = vit.blocks[-1]
    plain = [block.ls1, block.ls2, block.drop_path1, block.drop_path2, vit.fc_norm] if type(block) is Block else []
    watched = any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in block.modules())
    return (
        bool(plain)
        and not watched
        and not vit.training
        and vit.global_pool == "token"
        and vit.attn_pool is None
        and all(isinstance(m, nn.Identity) for m in plain)
        and has_first_token(block.attn)
        and "forward" not in vars(block)
    )


def _class_token_only(block: Any, x: Tensor) -> Tensor:
    token = x[:, :1] + first_token(block.attn, block.norm1(x))
    out: Tensor = token + block.mlp(block.norm2(token))
    return out
