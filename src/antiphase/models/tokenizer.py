"""Texts -> token ids, by CLIP's own vocabulary (open_clip's copy)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from antiphase.config import InputError

START, END = 49406, 49407
VOCABULARY = 49408

Truncate = Literal["openai", "slip"]


@cache
def _vocabulary() -> Any:
    from open_clip import SimpleTokenizer  # seconds to import

    return SimpleTokenizer()


def tokenize(texts: Sequence[str], *, context: int = 77, truncate: Truncate = "openai") -> Tensor:
    """(n, context) ids, padded with 0.

    What is too long is cut. `openai` ends the cut text with END; `slip` does not, as the DiffCLIP authors' code, and the
    feature is then read at START: it is the same for every such text (M4.3).
    """
    rows = torch.zeros(len(texts), context, dtype=torch.int64)
    for row, text in zip(rows, texts):
        if not text.strip():
            raise InputError("a text is empty: there is nothing to encode")
        ids = [START, *_vocabulary().encode(text), END]
        if len(ids) > context:
            ids = ids[:context] if truncate == "slip" else [*ids[: context - 1], END]
        row[: len(ids)] = torch.tensor(ids)
    return rows
