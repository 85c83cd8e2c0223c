"""CLIP, a dual encoder of images and texts. Both towers are timm's blocks; the text tower's are called with is_causal.

B batch, N patches and the class token, T tokens of a text, D width of a tower, E width of the joint space
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from timm.layers import QuickGELU
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from antiphase.models.classifier import Normalized
from antiphase.models.clip_config import CLIPConfig, TextConfig
from antiphase.models.tokenizer import Truncate, tokens_for
from antiphase.models.vit import make_differential, softmax_heads, vision_transformer
from antiphase.runtime import seeded

TEXT_EPS = 1e-5  # of every LayerNorm of the text tower, whatever its attention (docs/method.md 4.3)


class VisionTower(nn.Module):
    """A ViT's class token, projected into the joint space."""

    def __init__(self, vit: VisionTransformer, joint: int) -> None:
        super().__init__()
        self.vit = vit
        self.projection = nn.Parameter(torch.randn(vit.embed_dim, joint) * vit.embed_dim**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        embedding: Tensor = self.vit(x) @ self.projection  # (B, E)
        return embedding


class TextTower(nn.Module):
    """A causal transformer; its output at the end of the text (the largest token id) is projected into the joint space."""

    def __init__(self, config: TextConfig, joint: int) -> None:
        super().__init__()
        width = config.width
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, width)
        self.positions = nn.Parameter(torch.empty(config.context, width))
        block = partial(
            Block,
            width,
            softmax_heads(config),
            config.mlp_ratio,
            qkv_bias=True,
            act_layer=QuickGELU,
            norm_layer=partial(nn.LayerNorm, eps=TEXT_EPS),
        )
        self.blocks = nn.ModuleList(block() for _ in range(config.depth))
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):  # so that the twin draws the same weights
            make_differential(self.blocks, config)
        self.norm = nn.LayerNorm(width, eps=TEXT_EPS)
        self.projection = nn.Parameter(torch.randn(width, joint) * width**-0.5)
        self._initialise(width, config.depth)

    def _initialise(self, width: int, depth: int) -> None:
        """SLIP's, which is OpenAI's; a differential layer's projections begin as its softmax twin's."""
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions, std=0.01)
        inner = width**-0.5 * (2 * depth) ** -0.5
        for block in self.blocks:
            spread = {"attn.qkv": width**-0.5, "attn.proj": inner, "mlp.fc1": (2 * width) ** -0.5, "mlp.fc2": inner}
            for name, std in spread.items():
                linear = block.get_submodule(name)
                assert isinstance(linear, nn.Linear)
                nn.init.normal_(linear.weight, std=std)
                if name.startswith("attn"):
                    nn.init.zeros_(linear.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]  # (B, T, D)
        for block in self.blocks:
            x = block(x, is_causal=True)
        last = self.norm(x)[torch.arange(len(x), device=x.device), tokens.argmax(dim=-1)]  # (B, D)
        embedding: Tensor = last @ self.projection  # (B, E)
        return embedding


class CLIP(nn.Module):
    """Images and texts in one space. Pixels are in [0,1]: the normalisation lives in `visual`."""

    def __init__(self, config: CLIPConfig, seed: int = 0) -> None:
        super().__init__()
        vision = config.vision
        shape = (3, vision.image, vision.image)
        vit = vision_transformer(vision, patch=vision.patch, shape=shape, classes=0, seed=seed)
        with seeded(seed, "clip"):
            self.visual = Normalized(VisionTower(vit, config.joint), config.mean, config.std)
            self.text = TextTower(config.text, config.joint)
            self.logit_scale = nn.Parameter(torch.full((), math.log(1 / 0.07)))  # stored as its logarithm

    def encode_image(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) in [0,1] -> (B, E), not normalised"""
        embedding: Tensor = self.visual(pixels)
        return embedding

    def encode_text(self, tokens: Tensor) -> Tensor:
        """(B, T) token ids -> (B, E), not normalised"""
        embedding: Tensor = self.text(tokens)
        return embedding

    def tokenize(self, texts: Sequence[str], *, truncate: Truncate = "openai") -> Tensor:
        """(B, T) ids by the model's own tokenizer, on its device"""
        return tokens_for(self.text.config, texts, truncate).to(self.logit_scale.device)

    def patch_features(self, pixels: Tensor) -> Tensor:
        """The vision tower's features of each patch, after its last norm and before the projection: (B, N - 1, D)"""
        tower = self.visual.model
        assert isinstance(tower, VisionTower)
        features: Tensor = tower.vit.forward_features(self.visual.normalize(pixels))
        return features[:, 1:]

    def forward(self, pixels: Tensor, tokens: Tensor) -> Tensor:
        """Scaled cosines: (images, texts)"""
        image, text = (F.normalize(e, dim=-1) for e in (self.encode_image(pixels), self.encode_text(tokens)))
        return self.logit_scale.exp() * image @ text.T
