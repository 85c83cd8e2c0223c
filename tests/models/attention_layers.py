"""Attention layers of every kind that is read, small and in float64."""

import torch
from timm.layers import Attention, DiffAttention
from torch import nn

from antiphase.models.attention import DifferentialAttention

DOUBLE = torch.float64


def ours(width=24, heads=2, **kwargs):
    torch.manual_seed(0)
    given = {"lambda_init": 0.8, "learned": True, "head_norm": True, "gain": 0.2} | kwargs
    return DifferentialAttention(width, heads, **given).double().eval()


def layers():
    """Every kind of attention that is read, with q, k, v weights large enough for maps that are far from uniform."""
    torch.manual_seed(0)
    found = {
        "ours": ours(),
        "ours without norm": ours(head_norm=False, learned=False),
        "timm softmax": Attention(24, num_heads=4, qkv_bias=True),
        "timm gated, normed": Attention(24, 4, qk_norm=True, scale_norm=True, gated=True, norm_layer=nn.LayerNorm),
        "timm differential": DiffAttention(24, num_heads=2, depth=1),
        "timm differential, dual": DiffAttention(24, num_heads=2, dual_lambda=True, qk_norm=True, scale_norm=True),
    }
    for layer in found.values():
        with torch.no_grad():
            layer.qkv.weight.mul_(3)
    return {name: layer.double().eval() for name, layer in found.items()}
