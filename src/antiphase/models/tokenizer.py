"""Token ids of texts, by CLIP's own vocabulary (open_clip's copy) or, for a small model, by the bytes of the text.

In both the end of a text is the largest id, since that is where a CLIP reads the text's feature.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from antiphase.config import InputError
from antiphase.models.clip_config import VOCABULARIES, TextConfig, TokenizerName

START, END = 49406, 49407  # of CLIP's vocabulary
PADDING = 0
Truncate = Literal["openai", "slip", "never"]


@cache
def _clip_tokenizer() -> Any:
    from open_clip import SimpleTokenizer  # seconds to import

    return SimpleTokenizer()


def encode(text: str, by: TokenizerName = "clip") -> list[int]:
    """The ids of a text from its start to its end, however long."""
    if not text.strip():
        raise InputError("a text is empty: there is nothing to encode")
    if by == "clip":
        return [START, *_clip_tokenizer().encode(text), END]
    last = VOCABULARIES["bytes"] - 1
    return [last - 1, *(1 + byte for byte in text.encode()), last]  # 0 is padding


def tokenize(
    texts: Sequence[str], *, context: int = 77, truncate: Truncate = "openai", by: TokenizerName = "clip"
) -> Tensor:
    """(n, context) ids, padded with 0.

    What is too long is cut, or refused with `never`. `openai` ends the cut text with END; `slip` does not, as the DiffCLIP
    authors' code, and the feature is then read at START: it is the same for every such text (docs/method.md 4.3).
    """
    rows = torch.full((len(texts), context), PADDING, dtype=torch.int64)
    for row, text in zip(rows, texts):
        ids = encode(text, by)
        if len(ids) > context:
            if truncate == "never":
                raise InputError(f"the text {text[:40]!r}... has {len(ids)} tokens, and the model reads {context}")
            ids = ids[:context] if truncate == "slip" else [*ids[: context - 1], ids[-1]]
        row[: len(ids)] = torch.tensor(ids)
    return rows


def too_long(config: TextConfig, texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The texts that a text tower cannot read whole, with their lengths in tokens."""
    for text in texts:
        if len(text.encode()) + 2 > config.context:  # no text has more tokens than bytes, start and end
            length = len(encode(text, config.tokenizer))
            if length > config.context:
                yield text, length


def tokens_for(config: TextConfig, texts: Sequence[str], truncate: Truncate = "openai") -> Tensor:
    """(n, T) ids for a text tower. No token looks ahead, so T ends with the longest of these texts."""
    wanted = VOCABULARIES[config.tokenizer]
    if config.vocabulary < wanted:
        raise InputError(
            f"this CLIP knows {config.vocabulary} tokens and the tokenizer of CLIP has {wanted}: it cannot read prompts"
        )
    tokens = tokenize(texts, context=config.context, truncate=truncate, by=config.tokenizer)
    return tokens[:, : int(tokens.argmax(dim=-1).max()) + 1]
