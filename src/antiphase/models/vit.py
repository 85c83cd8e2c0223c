"""ViTConfig -> classifier, on timm's VisionTransformer."""

from __future__ import annotations

from functools import partial

from timm.models.vision_transformer import VisionTransformer
from torch import nn

from antiphase.config import InputError
from antiphase.models.attention import DifferentialAttention
from antiphase.models.classifier import Normalized
from antiphase.models.config import Differential, Softmax, ViTConfig
from antiphase.runtime import seeded

OFFICIAL_EPS = 1e-5  # nn.LayerNorm's own, in DiffCLIP's blocks and final norm; timm's is 1e-6


def build(config: ViTConfig, *, shape: tuple[int, int, int], classes: int, seed: int = 0) -> Normalized:
    """A freshly initialised classifier for (C, H, W) images; the same config, shape and seed give the same weights.

    A differential model is its softmax twin with the attention of some layers replaced: with init="matched" the two
    share every weight they have in common. init="official" then re-initialises each differential block as DiffCLIP does.
    """
    channels, height, side = shape
    if height != side or side % config.patch:
        raise InputError(f"patch={config.patch} does not tile an image of {side} x {height} pixels")
    with seeded(seed, "weights"):
        vit = VisionTransformer(
            img_size=side,
            patch_size=config.patch,
            in_chans=channels,
            num_classes=classes,
            embed_dim=config.width,
            depth=config.depth,
            num_heads=config.heads if Softmax() in config.layers else 1,  # replaced below in differential layers
            mlp_ratio=config.mlp_ratio,
            norm_layer=partial(nn.LayerNorm, eps=1e-6),
        )
    with seeded(seed, "differential"):
        for i, attention in enumerate(config.layers):
            if isinstance(attention, Differential):
                block = vit.blocks[i]
                block.attn = DifferentialAttention.replacing(
                    block.attn, attention, config.effective_diff_heads, i, config.depth
                )
                if config.init == "official":
                    block.apply(_official)
    if config.is_differential and config.init == "official":
        _official(vit.norm)
    return Normalized(vit, config.mean, config.std)


def _official(module: nn.Module) -> None:
    """PyTorch's default initialisation and LayerNorm eps, which DiffCLIP's blocks end up with (M3.1)."""
    if isinstance(module, nn.Linear):
        module.reset_parameters()
    if isinstance(module, nn.LayerNorm):
        module.eps = OFFICIAL_EPS
