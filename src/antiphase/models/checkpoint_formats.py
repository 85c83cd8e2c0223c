"""Checkpoints of the DiffCLIP authors and of SLIP (docs/method.md 4.1 to 4.4) -> our config and our tensors.

What the tensors show is inferred; what they do not show must be given. Nothing is unpickled but tensors and plain values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from antiphase.config import InputError, shown
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import VOCABULARIES, CLIPConfig, TextConfig, TokenizerName, VisionConfig
from antiphase.models.config import Attention, Differential, Softmax
from antiphase.models.weights import Tensors, check_room, check_values, read_state, shape_text, short_name

VISION, TEXT = "visual.blocks", "transformer.resblocks"  # the authors' names of the two towers


def read_clip(
    path: Path, *, heads: int | None = None, text_heads: int | None = None, differential: Differential = Differential()
) -> tuple[CLIPConfig, Tensors]:
    """The config that a checkpoint's tensors show and its weights under our names.

    `heads` of a softmax tower and lambda_init (in `differential`) are in no tensor.
    """
    state = read_state(path)
    config = _config(state, path, heads, text_heads, differential)
    check_room(config.least_parameters, state, path)
    return config, _under_our_names(state, config, path)


def _config(
    state: Tensors, path: Path, heads: int | None, text_heads: int | None, differential: Differential
) -> CLIPConfig:
    patches = _get(state, "visual.patch_embed.proj.weight", 4, path)  # (D, 3, p, p)
    positions = _get(state, "visual.pos_embed", 3, path)  # (1, N, D)
    side = math.isqrt(positions.shape[1] - 1)
    if side**2 != positions.shape[1] - 1:
        raise InputError(
            f"{path}: visual.pos_embed has {positions.shape[1]} rows, not one more than a square of patches"
        )
    words, context = _get(state, "token_embedding.weight", 2, path), _get(state, "positional_embedding", 2, path)
    vision = _tower(state, VISION, patches.shape[0], heads, "--heads", differential, path)
    text = _tower(state, TEXT, words.shape[1], text_heads, "--text-heads", differential, path)
    return CLIPConfig(
        vision=VisionConfig(image=side * patches.shape[-1], patch=patches.shape[-1], **vision),
        text=TextConfig(context=len(context), vocabulary=len(words), tokenizer=_tokenizer(len(words)), **text),
        joint=_get(state, "image_projection", 2, path).shape[1],
    )


def _tokenizer(vocabulary: int) -> TokenizerName:
    """A tower with one token per byte reads bytes; CLIP's tokenizer has a hundred times as many."""
    return "bytes" if vocabulary == VOCABULARIES["bytes"] else "clip"


def _tower(
    state: Tensors, prefix: str, width: int, heads: int | None, flag: str, differential: Differential, path: Path
) -> dict[str, Any]:
    numbers = {name.removeprefix(f"{prefix}.").partition(".")[0] for name in state if name.startswith(f"{prefix}.")}
    if not numbers:
        raise InputError(f"{path} has no tensor {prefix}.0.*: it is not a CLIP in the layout of SLIP or DiffCLIP")
    if odd := sorted(numbers - {str(i) for i in range(len(numbers))}):
        raise InputError(
            f"{path} has a block {shown(odd[0])} in {prefix}, and {len(numbers)} blocks in all: they are numbered 0, 1, 2, ..."
        )
    attention: Attention = Softmax()
    if f"{prefix}.0.attn.lambda_q1" in state:  # the kind of the first block is the kind of the tower
        value = len(_get(state, f"{prefix}.0.attn.diff_norm.weight", 1, path))  # width of a head's values
        if heads is not None:
            raise InputError(
                f"{flag} {heads} is not needed: {prefix} is differential, and its tensors show {width // value} heads"
            )
        attention, heads = differential, 2 * (width // value)
    if heads is None:
        raise InputError(
            f"{path}: {prefix} has softmax attention, whose tensors do not show the number of heads: give {flag} "
            "(the published B/16 models have --heads 12 --text-heads 8)"
        )
    hidden = _get(state, f"{prefix}.0.mlp.{'fc1' if prefix == VISION else 'c_fc'}.weight", 2, path).shape[0]
    shape = {"width": width, "depth": len(numbers), "heads": heads, "mlp_ratio": hidden / width}
    return {**shape, "attention": (attention,)}


def _get(state: Tensors, name: str, dimensions: int, path: Path) -> Tensor:
    if name not in state:
        raise InputError(f"{path} has no tensor {name}")
    if state[name].dim() != dimensions:
        raise InputError(f"{path}: {name} has shape {shape_text(state[name].shape)}, expected {dimensions} dimensions")
    return state[name]


def _under_our_names(state: Tensors, config: CLIPConfig, path: Path) -> Tensors:
    """Every tensor of our model from the one or three that it is called in the checkpoint; none missing, none left."""
    with torch.device("meta"):
        ours = CLIP(config).state_dict()
    tensors, used = {}, set()
    for name, wanted in ours.items():
        theirs = their_names(name, config)
        used.update(theirs)
        shape = (wanted.shape[0] // len(theirs), *wanted.shape[1:]) if wanted.dim() else ()
        for key in theirs:
            if key not in state:
                raise InputError(f"{path} has no tensor {key}")
            if tuple(state[key].shape) != shape:
                raise InputError(
                    f"{path}: {key} has shape {shape_text(state[key].shape)}, expected {shape_text(shape)}"
                )
        tensors[name] = torch.cat([state[key] for key in theirs]) if len(theirs) > 1 else state[theirs[0]]
    if extra := sorted(set(state) - used):
        raise InputError(f"{path} has a tensor {short_name(extra[0])} that a {config.title} of this shape does not")
    check_values(state, path)
    return tensors


OUTSIDE_BLOCKS = {
    "text.positions": "positional_embedding",
    "text.tokens.weight": "token_embedding.weight",
    "text.norm": "ln_final",
    "text.projection": "text_projection",
    "visual.model.projection": "image_projection",
}
BLOCK_PREFIXES: Mapping[str, str] = {"visual.model.vit.blocks": VISION, "text.blocks": TEXT}
TEXT_BLOCK_NAMES = {"norm1": "ln_1", "norm2": "ln_2", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"}


def their_names(ours: str, config: CLIPConfig) -> list[str]:
    """What the authors call one of our tensors; three names where ours is theirs stacked."""
    for mine, theirs in OUTSIDE_BLOCKS.items():
        if ours == mine or ours.startswith(f"{mine}."):
            return [ours.replace(mine, theirs, 1)]
    tower = next((t for t in BLOCK_PREFIXES if ours.startswith(f"{t}.")), None)
    if tower is None:
        return [ours.replace("visual.model.vit.", "visual.", 1)]
    number, _, rest = ours.removeprefix(f"{tower}.").partition(".")
    where, in_text = f"{BLOCK_PREFIXES[tower]}.{number}", BLOCK_PREFIXES[tower] == TEXT
    part, _, last = rest.rpartition(".")
    differential = (config.text if in_text else config.vision).is_differential
    if part == "attn.qkv" and differential:
        return [f"{where}.attn.{p}_proj.{last}" for p in "qkv"]
    if part == "attn.qkv" and in_text:
        return [f"{where}.attn.in_proj_{last}"]
    if part == "attn.proj" and (differential or in_text):
        part = "attn.out_proj"
    part = part.replace("attn.sub_norm", "attn.diff_norm")
    return [f"{where}.{TEXT_BLOCK_NAMES.get(part, part) if in_text else part}.{last}"]
