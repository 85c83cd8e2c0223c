"""CLIP as a classifier: the seam for everything that knows images and texts.

B batch, K classes, E width of the joint space
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from antiphase import console
from antiphase.config import InputError
from antiphase.models import prompts
from antiphase.models.classifier import Normalized
from antiphase.models.clip import CLIP
from antiphase.models.tokenizer import tokenize

TEXTS = 64  # encoded at a time
OPENAI_MEAN, OPENAI_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


class ZeroShot(nn.Module):
    """Scaled cosine similarity to one text embedding per class. Holds no text tower: only what looks at images is tapped."""

    classes: Tensor

    def __init__(self, visual: nn.Module, class_embeddings: Tensor, scale: float) -> None:
        super().__init__()
        self.visual, self.scale = visual, scale  # pixels in [0,1] -> (B, E); layers are named as in the CLIP it is from
        self.register_buffer("classes", F.normalize(class_embeddings, dim=-1))  # (K, E)

    def forward(self, pixels: Tensor) -> Tensor:
        z = F.normalize(self.visual(pixels), dim=-1)  # (B, E)
        return self.scale * z @ self.classes.T  # (B, K)


def zero_shot(
    clip: Any,
    class_names: Sequence[str],
    templates: Sequence[str],
    *,
    tokenizer: Callable[[list[str]], Tensor] | None = None,
) -> ZeroShot:
    """A classifier in float32 from our CLIP or any model of open_clip (`tokenizer`: open_clip.get_tokenizer(...))."""
    embeddings = class_embeddings(clip, class_names, templates, tokenizer=tokenizer)
    return on_pixels(clip, embeddings)


def on_pixels(clip: Any, embeddings: Tensor) -> ZeroShot:
    """The classifier for class embeddings that are there already."""
    visual = clip.visual
    if not isinstance(clip, CLIP):  # open_clip normalises outside; what it was trained with is noted on the tower
        mean, std = getattr(visual, "image_mean", None), getattr(visual, "image_std", None)
        visual = Normalized(visual, mean or OPENAI_MEAN, std or OPENAI_STD)
    device = clip.logit_scale.device
    return ZeroShot(visual.float(), embeddings.float(), float(clip.logit_scale.detach().exp())).to(device).eval()


def class_embeddings(
    clip: Any,
    class_names: Sequence[str],
    templates: Sequence[str],
    *,
    tokenizer: Callable[[list[str]], Tensor] | None = None,
) -> Tensor:
    """(K, E): the mean over templates of normalised embeddings, normalised again."""
    if not all(name.strip() for name in class_names):
        raise InputError(
            f"class {[bool(n.strip()) for n in class_names].index(False)} has no name to put into a prompt"
        )
    worded = [text for name in class_names for text in prompts.texts(name, tuple(templates))]
    device, found = clip.logit_scale.device, []
    read: dict[tuple[int, ...], str] = {}  # token row -> the first text that gave it
    with torch.no_grad(), console.progress("class prompts", len(worded), show=len(worded) > 8 * TEXTS) as advance:
        for start in range(0, len(worded), TEXTS):
            some = worded[start : start + TEXTS]
            tokens = clip.tokenize(some) if isinstance(clip, CLIP) else (tokenizer or tokenize)(some).to(device)
            context = clip.text.config.context if isinstance(clip, CLIP) else tokens.shape[1]
            _check_told_apart(some, tokens, context, read)
            found.append(clip.encode_text(tokens))
            advance(len(some), "")
    each = F.normalize(torch.cat(found).float(), dim=-1).reshape(len(class_names), len(templates), -1)
    return F.normalize(each.mean(dim=1), dim=-1)


def _check_told_apart(texts: Sequence[str], tokens: Tensor, context: int, read: dict[tuple[int, ...], str]) -> None:
    """Refuses texts of different words that are the same once they are cut."""
    for text, row in zip(texts, tokens.tolist()):
        if len(row) < context or not row[-1]:  # it was not cut: there is room behind it
            continue
        first = read.setdefault(tuple(row), text)
        if first.casefold() != text.casefold():
            raise InputError(
                f"the prompts {first!r} and {text!r} are the same once cut to the {context} tokens that the model reads: "
                "give shorter templates by --prompts"
            )
