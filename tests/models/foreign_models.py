"""Small models of other libraries, how each is run, and what its attention is made of."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field

import open_clip
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from tests.conftest import _missing

WIDTH, HEADS = 24, 4
IDS = torch.tensor([[5, 7, 9, 11, 13, 2], [6, 8, 10, 12, 14, 2]])
PADDED = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]]).bool()  # True: not to be seen


@dataclass
class Foreign:
    """A model, its input, and the first attention layer in it."""

    model: nn.Module
    run: Callable[[nn.Module, Tensor], Tensor]
    given: Tensor
    layer: str
    weights: Callable[[nn.Module], dict[str, tuple[Tensor, Tensor]]]  # q, k, v, out: weight and bias
    seen: Tensor | None = None  # (1 or B, N, N): which tokens a token sees
    library: str = field(default="")


def three(weight: Tensor, bias: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    return dict(zip("qkv", zip(weight.chunk(3), bias.chunk(3))))


def torch_weights(m):
    return three(m.in_proj_weight, m.in_proj_bias) | {"out": (m.out_proj.weight, m.out_proj.bias)}


def pairs(*names: str):
    def weights(m):
        linears = [getattr(m, name) for name in names]
        return {part: (linear.weight, linear.bias) for part, linear in zip(("q", "k", "v", "out"), linears)}

    return weights


def timm_vit(**kwargs) -> Foreign:
    vit = VisionTransformer(
        img_size=16, patch_size=8, embed_dim=WIDTH, depth=2, num_heads=HEADS, num_classes=10, **kwargs
    )
    weights = lambda m: three(m.qkv.weight, m.qkv.bias) | {"out": (m.proj.weight, m.proj.bias)}  # noqa: E731
    return Foreign(vit, lambda m, x: m(x), torch.rand(3, 3, 16, 16), "blocks.0.attn", weights)


def clip() -> nn.Module:
    vision = {"image_size": 16, "patch_size": 8, "width": WIDTH, "layers": 2, "head_width": WIDTH // HEADS}
    text = {"width": WIDTH, "layers": 2, "heads": HEADS, "context_length": 6, "vocab_size": 20}
    return open_clip.CLIP(12, vision, text)


def clip_vision() -> Foreign:
    x = torch.rand(3, 3, 16, 16)
    return Foreign(clip(), lambda m, x: m.encode_image(x), x, "visual.transformer.resblocks.0.attn", torch_weights)


def clip_text() -> Foreign:
    causal = torch.ones(1, 6, 6).tril().bool()
    return Foreign(clip(), lambda m, x: m.encode_text(x), IDS, "transformer.resblocks.0.attn", torch_weights, causal)


def encoder(batch_first: bool, masks: str, dropout: float = 0.0) -> Foreign:
    block = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, dropout, batch_first=batch_first)
    kwargs, seen = {}, torch.ones(1, 6, 6).bool()
    if "padding" in masks:
        kwargs["src_key_padding_mask"], seen = PADDED, seen & ~PADDED[:, None]
    if "causal" in masks:
        kwargs["mask"], seen = torch.ones(6, 6).triu(1).bool(), seen.tril()
        kwargs["is_causal"] = "hint" in masks

    def run(m, x):
        out = m(x if batch_first else x.transpose(0, 1), **kwargs)
        return out if batch_first else out.transpose(0, 1)

    x = torch.randn(2, 6, WIDTH)
    model = nn.TransformerEncoder(block, 2, enable_nested_tensor=batch_first)
    return Foreign(model, run, x, "layers.0.self_attn", torch_weights, seen)


SMALL = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 32}
IMAGES = {"image_size": 16, "patch_size": 8}
TEXT = {"vocab_size": 20, "max_position_embeddings": 12}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def transformers():
    if importlib.util.find_spec("transformers") is None:
        _missing("pip install 'antiphase[hf]' to run the tests on Hugging Face models")
    import transformers

    return transformers


def _images(name: str, layer: str, names: tuple[str, ...], **more) -> Foreign:
    hf = transformers()
    model = getattr(hf, f"{name}Model")(getattr(hf, f"{name}Config")(**SMALL, **IMAGES, **more))
    run = lambda m, x: m(x).last_hidden_state  # noqa: E731
    return Foreign(model, run, torch.rand(3, 3, 16, 16), layer, pairs(*names), library="hf")


def _texts(name: str, layer: str, names: tuple[str, ...], seen: Tensor, **more) -> Foreign:
    hf = transformers()
    model = getattr(hf, f"{name}Model")(getattr(hf, f"{name}Config")(**SMALL, **TEXT, **more))
    run = lambda m, x: m(x, attention_mask=(~PADDED).long()).last_hidden_state  # noqa: E731
    weights = pairs(*names)
    if len(names) == 3:  # out is in the module around: what the layer returns is not projected
        one, zero = torch.eye(WIDTH, dtype=torch.float64), torch.zeros(WIDTH, dtype=torch.float64)
        return Foreign(model, run, IDS, layer, lambda m: weights(m) | {"out": (one, zero)}, seen, "hf")
    return Foreign(model, run, IDS, layer, weights, seen, "hf")


def blip_vision() -> Foreign:
    case = _images("BlipVision", "encoder.layers.0.self_attn", ())
    case.weights = lambda m: three(m.qkv.weight, m.qkv.bias) | {"out": (m.projection.weight, m.projection.bias)}
    return case


BERT = ("query", "key", "value")
CLIP = ("q_proj", "k_proj", "v_proj", "out_proj")
VIT = ("q_proj", "k_proj", "v_proj", "o_proj")
UNPADDED = ~PADDED[:, None].expand(2, 6, 6)
CASES: dict[str, Callable[[], Foreign]] = {
    "timm": timm_vit,
    "timm qk_norm": lambda: timm_vit(qk_norm=True),
    "open_clip vision": clip_vision,
    "open_clip text": clip_text,
    "encoder": lambda: encoder(True, ""),
    "encoder padding": lambda: encoder(True, "padding"),
    "encoder causal": lambda: encoder(True, "causal"),
    "encoder causal hint padding": lambda: encoder(True, "causal hint padding"),
    "encoder (N, B, D) causal padding": lambda: encoder(False, "causal padding"),
    "BLIP vision": blip_vision,
    "ALIGN text": lambda: _texts("AlignText", "encoder.layer.0.attention.self", BERT, UNPADDED, **NO_DROPOUT),
    "BERT": lambda: _texts("Bert", "encoder.layer.0.attention.self", BERT, UNPADDED, **NO_DROPOUT),
    "BERT eager": lambda: _texts(
        "Bert", "encoder.layer.0.attention.self", BERT, UNPADDED, attn_implementation="eager", **NO_DROPOUT
    ),
    "RoBERTa": lambda: _texts("Roberta", "encoder.layer.0.attention.self", BERT, UNPADDED, **NO_DROPOUT),
    "CLIP text": lambda: _texts("CLIPText", "encoder.layers.0.self_attn", CLIP, UNPADDED.tril()),
    "CLIP vision": lambda: _images("CLIPVision", "encoder.layers.0.self_attn", CLIP),
    "SigLIP vision": lambda: _images("SiglipVision", "encoder.layers.0.self_attn", CLIP),
    "ViT": lambda: _images("ViT", "layers.0.attention", VIT, **NO_DROPOUT),
    "DINOv2": lambda: _images("Dinov2", "encoder.layer.0.attention", VIT, **NO_DROPOUT),
    "DINOv2 with registers": lambda: _images("Dinov2WithRegisters", "encoder.layer.0.attention", VIT, **NO_DROPOUT),
    "DeiT": lambda: _images("DeiT", "layers.0.attention", VIT, **NO_DROPOUT),
}
