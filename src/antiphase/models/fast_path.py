"""A faster way to the same logits: where only the class token is read, the last block computes no other token.

At depth 1 that saves most of a ViT's work. Patches are embedded by a matrix product, whose gradient takes a quarter of the
time of a convolution's. Outside the context manager the model is unchanged.
B batch, C channels, N tokens, D width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch.nn.functional as F
from timm.layers import PatchEmbed
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from antiphase.models.attention import first_token, has_first_token
from antiphase.models.folded_norms import folded_norms
from antiphase.models.forwards import replaced, untouched


@contextmanager
def fast_path(model: nn.Module, image: Tensor | None = None) -> Iterator[None]:
    """Inside, every plain timm ViT embeds patches by a matrix product, and its last block returns the class token only. With an
    image, (1, C, H, W), batch norms are computed with the convolutions before them (models/folded_norms.py): eval mode only.

    Equal to the full computation but for the rounding of matrix products of another shape. A ViT with hooks, or with parts of a
    kind that is not known here, runs in full, and so does one of which a model calls something else than the ViT itself:
    whoever calls `forward_features` may read every token.
    """
    forwards: dict[nn.Module, Callable[..., Any]] = {} if image is None else folded_norms(model, image)
    for vit in model.modules():
        if not isinstance(vit, VisionTransformer):
            continue
        if _reads_class_token_only(vit) and untouched(vit):
            forwards[vit], under_way = announced(vit)
            forwards[vit.blocks[-1]] = partial(_class_token_only, vit.blocks[-1], under_way)
        if _takes_patch_product(vit.patch_embed):
            forwards[vit.patch_embed] = partial(_embed_patches, vit.patch_embed)
    with replaced(forwards):
        yield


_UNDER_WAY: WeakKeyDictionary[Any, list[bool]] = WeakKeyDictionary()  # whether a ViT is being called: one list for each


def read_at_class_token(model: nn.Module) -> dict[nn.Module, Any]:
    """The attention layers of plain timm ViTs, each with its ViT, of whose output nothing but the class token is read while the
    ViT itself is called (`announced`): the last ones."""
    vits = (vit for vit in model.modules() if isinstance(vit, VisionTransformer))
    return {vit.blocks[-1].attn: vit for vit in vits if _reads_class_token_only(vit)}


def announced(vit: Any) -> tuple[Callable[..., Any], list[bool]]:
    """A forward for a ViT that computes what its own does, and a list whose only entry is True meanwhile."""
    under_way = _UNDER_WAY.setdefault(vit, [False])
    return partial(_announce, vit, vars(vit).get("forward"), under_way), under_way


def _announce(vit: Any, replaced: Callable[..., Any] | None, under_way: list[bool], *args: Any, **kwargs: Any) -> Any:
    """Nothing of it is made anew for each call of `announced`: torch.compile would take that for another model."""
    under_way[0] = True
    try:
        return type(vit).forward(vit, *args, **kwargs) if replaced is None else replaced(*args, **kwargs)
    finally:
        under_way[0] = False


def _reads_class_token_only(vit: Any) -> bool:
    """Whether a call of the ViT reads nothing but the class token of the last block, and that block is a plain one."""
    block = vit.blocks[-1]
    plain = [block.ls1, block.ls2, block.drop_path1, block.drop_path2, vit.fc_norm] if type(block) is Block else []
    return (
        bool(plain)
        and type(vit) is VisionTransformer
        and not {"forward_features", "forward_head"} & vars(vit).keys()
        and vit.global_pool == "token"
        and vit.attn_pool is None
        and all(isinstance(m, nn.Identity) for m in plain)
        and has_first_token(block.attn)
    )


def _class_token_only(block: Any, under_way: list[bool], x: Tensor) -> Tensor:
    """(B, N, D) -> (B, 1, D); in full where not the ViT itself was called, or its attention layer computes otherwise by now, as
    in an intervention"""
    if not under_way[0] or "forward" in vars(block.attn):
        whole: Tensor = type(block).forward(block, x)
        return whole
    token = x[:, :1] + first_token(block.attn, block.norm1(x))
    out: Tensor = token + block.mlp(block.norm2(token))
    return out


def _takes_patch_product(embed: Any) -> bool:
    """Whether the patches tile the image and each is embedded on its own."""
    if type(embed) is not PatchEmbed or type(embed.proj) is not nn.Conv2d:
        return False
    conv = embed.proj
    return (
        untouched(embed)
        and embed.flatten
        and isinstance(embed.norm, nn.Identity)
        and conv.kernel_size == conv.stride
        and conv.padding == (0, 0)
        and conv.dilation == (1, 1)
        and conv.groups == 1
    )


def _embed_patches(embed: Any, x: Tensor) -> Tensor:
    """(B, C, H, W) -> (B, N, D)"""
    height, width = embed.proj.kernel_size
    if tuple(x.shape[-2:]) != embed.img_size or x.shape[-2] % height or x.shape[-1] % width:
        whole: Tensor = type(embed).forward(embed, x)
        return whole
    batch, channels, rows, columns = len(x), x.shape[1], x.shape[2] // height, x.shape[3] // width
    cut = x.reshape(batch, channels, rows, height, columns, width)
    flat = cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, channels * height * width)
    return F.linear(flat, embed.proj.weight.flatten(1), embed.proj.bias)
