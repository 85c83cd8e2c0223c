"""CLIP as a classifier: an image belongs to the class whose prompts are nearest to it.

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

BATCH = 64  # texts encoded at once
OPENAI_MEAN, OPENAI_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


class ZeroShot(nn.Module):
    """Scaled cosine similarity to one text embedding per class. It holds no text tower, only the image encoder."""

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
    templates: str | Sequence[str],
    *,
    tokenizer: Callable[[list[str]], Tensor] | None = None,
) -> ZeroShot:
    """A classifier in float32 from our CLIP or any model of open_clip (`tokenizer`: open_clip.get_tokenizer(...)).

    One template or several, in which {} stands for the class.
    """
    embeddings = class_embeddings(clip, class_names, templates, tokenizer=tokenizer)
    return zero_shot_from_embeddings(clip, embeddings)


def zero_shot_from_embeddings(clip: Any, embeddings: Tensor) -> ZeroShot:
    """A classifier in float32 from class embeddings (K, E) that were computed before."""
    visual = clip.visual
    if not isinstance(clip, CLIP):  # open_clip normalises outside; what it was trained with is noted on the tower
        mean, std = getattr(visual, "image_mean", None), getattr(visual, "image_std", None)
        visual = Normalized(visual, mean or OPENAI_MEAN, std or OPENAI_STD)
    device = clip.logit_scale.device
    return ZeroShot(visual.float(), embeddings.float(), float(clip.logit_scale.detach().exp())).to(device).eval()


def class_embeddings(
    clip: Any,
    class_names: Sequence[str],
    templates: str | Sequence[str],
    *,
    tokenizer: Callable[[list[str]], Tensor] | None = None,
) -> Tensor:
    """(K, E): the mean over templates of normalised embeddings, normalised again."""
    templates = prompts.as_templates(templates)
    if not all(name.strip() for name in class_names):
        raise InputError(
            f"class {[bool(n.strip()) for n in class_names].index(False)} has no name to put into a prompt"
        )
    prompted = [text for name in class_names for text in prompts.fill_templates(name, templates)]
    device, embeddings = clip.logit_scale.device, []
    first_text: dict[tuple[int, ...], str] = {}  # token row -> the first text that gave it
    with torch.no_grad(), console.progress("class prompts", len(prompted), show=len(prompted) > 8 * BATCH) as advance:
        for start in range(0, len(prompted), BATCH):
            some = prompted[start : start + BATCH]
            tokens = clip.tokenize(some) if isinstance(clip, CLIP) else (tokenizer or tokenize)(some).to(device)
            context = clip.text.config.context if isinstance(clip, CLIP) else tokens.shape[1]
            _check_distinguishable(some, tokens, context, first_text)
            embeddings.append(clip.encode_text(tokens))
            advance(len(some), "")
    each = F.normalize(torch.cat(embeddings).float(), dim=-1).reshape(len(class_names), len(templates), -1)
    return F.normalize(each.mean(dim=1), dim=-1)


def _check_distinguishable(
    texts: Sequence[str], tokens: Tensor, context: int, first_text: dict[tuple[int, ...], str]
) -> None:
    """Refuse different texts that have the same tokens once they are cut to the context."""
    for text, row in zip(texts, tokens.tolist()):
        if len(row) < context or not row[-1]:  # it was not cut: there is room behind it
            continue
        first = first_text.setdefault(tuple(row), text)
        if first.casefold() != text.casefold():
            raise InputError(
                f"the prompts {first!r} and {text!r} are the same once cut to the {context} tokens that the model reads: "
                "give shorter templates by --prompts"
            )
