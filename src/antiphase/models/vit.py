"""The vision transformer of a config, softmax or differential, built on timm's VisionTransformer."""

from __future__ import annotations

from functools import partial

from timm.models.vision_transformer import VisionTransformer
from torch import nn

from antiphase.config import InputError, check_value, fits, shown
from antiphase.models.attention import differential_twin
from antiphase.models.classifier import Normalized
from antiphase.models.config import Softmax, Tower, ViTConfig, check_normalisation
from antiphase.models.foreign_layers import parts_of
from antiphase.runtime import seeded

OFFICIAL_EPS = 1e-5  # nn.LayerNorm's own, in DiffCLIP's blocks and final norm; timm's is 1e-6


def build(config: ViTConfig, *, shape: tuple[int, int, int], classes: int, seed: int = 0) -> Normalized:
    """A freshly initialised classifier for (C, H, W) images; the same config, shape and seed give the same weights.

    A differential model is its softmax twin with the attention of some layers replaced: with init="matched" the two
    share every weight they have in common. init="official" then re-initialises each differential block as DiffCLIP does.
    """
    check_value("config", config, ViTConfig)
    check_value("seed", seed, int, 0)
    if not fits(tuple(shape), tuple[int, int, int]) or min(shape) < 1:
        raise InputError(f"shape={shown(shape)} must be (channels, height, width) of the images")
    if not fits(classes, int) or classes < 1:
        raise InputError(f"classes={shown(classes)} must be a whole number, at least 1")
    check_normalisation(config.mean, config.std, channels=shape[0])
    vit = vision_transformer(config, patch=config.patch, shape=shape, classes=classes, seed=seed)
    return Normalized(vit, config.mean, config.std)


def vision_transformer(
    config: Tower, *, patch: int, shape: tuple[int, int, int], classes: int, seed: int
) -> VisionTransformer:
    """timm's ViT with the config's attention in each layer; with classes=0 it ends with the class token's features."""
    channels, height, side = shape
    if height != side or side % patch:
        raise InputError(
            f"patch={patch} does not tile an image of {side} x {height} pixels: choose a patch or an image size that does"
        )
    with seeded(seed, "weights"):
        vit = VisionTransformer(
            img_size=side,
            patch_size=patch,
            in_chans=channels,
            num_classes=classes,
            embed_dim=config.width,
            depth=config.depth,
            num_heads=softmax_heads(config),
            mlp_ratio=config.mlp_ratio,
            norm_layer=partial(nn.LayerNorm, eps=1e-6),
        )
    with seeded(seed, "differential"):
        for block in make_differential(vit.blocks, config):
            if config.init == "official":
                block.apply(_official_initialisation)
    if config.is_differential and config.init == "official":
        _official_initialisation(vit.norm)
    return vit


def softmax_heads(config: Tower) -> int:
    """The number of heads timm is asked for: 1 where every layer is replaced, since timm would check heads against the width."""
    return config.heads if Softmax() in config.layers else 1


def make_differential(blocks: nn.ModuleList, config: Tower) -> list[nn.Module]:
    """Replace the attention of the differential layers, keeping their projections; returns the blocks that were changed."""
    changed = []
    for i, (block, attention) in enumerate(zip(blocks, config.layers)):
        if not isinstance(attention, Softmax):
            block.attn = differential_twin(parts_of(block.attn), attention, config.heads_of(attention), i, config.depth)
            changed.append(block)
    return changed


def _official_initialisation(module: nn.Module) -> None:
    """PyTorch's default initialisation and LayerNorm eps, which DiffCLIP's blocks end up with (docs/method.md 3.1)."""
    if isinstance(module, nn.Linear):
        module.reset_parameters()
    if isinstance(module, nn.LayerNorm):
        module.eps = OFFICIAL_EPS
