"""Do the two maps of a text tower look alike on short and long captions, and move alike when a word is inserted? (C1 on texts)

Each caption is read on its own, up to its end: what follows is padding. T tokens of a caption, h heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphase.config import InputError
from antiphase.measures.branch_pairs import NEEDED, Coupling, couple, lambda_table
from antiphase.measures.correlation import SHORTEST, Correlation, joined, rows_counted, statistics_of
from antiphase.models.clip import CLIP
from antiphase.models.taps import Record, taps
from antiphase.models.tokenizer import encode
from antiphase.runtime import bits, frozen

LONG = 16  # tokens, start and end among them, from which a caption counts as long


def caption_correlation(
    clip: CLIP,
    captions: Sequence[str],
    *,
    long: int = LONG,
    top: int = 5,
    coupling: Coupling = "branches",
    seed: int = 0,
) -> list[Correlation]:
    """Every layer of the text tower on "short" and "long" captions, and on both with one word "inserted".

    The word comes from the other captions, word and place from the caption's own stream. Changes are those of the tokens that
    both texts have: the inserted token's row and column are left out.
    """
    words = sorted({word for caption in captions for word in caption.split()})
    parts: dict[tuple[str, str], list[dict[str, Tensor]]] = {}
    lam: dict[tuple[str, str], list[tuple[Tensor, int]]] = {}
    used: dict[str, int] = {}
    with frozen(clip), torch.no_grad():
        for number, caption in enumerate(captions):
            tokens = _tokens(caption, clip)
            clean = _look(clip, tokens)
            moved, kept = _with_a_word(caption, words, number, seed, clip)
            length = "long" if tokens.shape[1] >= long else "short"
            for name, here, rows in ((length, clean, None), (f"{length}, inserted", _look(clip, moved), kept)):
                for layer, statistics in statistics_of(clean, here, coupling, top, kept=rows).items():
                    parts.setdefault((name, layer), []).append(statistics)
                    lam.setdefault((name, layer), []).append((couple(here, coupling)[layer].lam, 1))
                    used[layer] = min(used.get(layer, tokens.shape[1]), rows_counted(here[layer]))
    if not parts:
        raise InputError(f"correlation needs {NEEDED[coupling]} in the text tower, and at least one caption")
    return [
        Correlation(
            layer,
            name,
            coupling,
            lambda_table(lam[name, layer]),
            top,
            used[layer],
            joined(each),
            np.zeros(len(each)),
        )
        for (name, layer), each in parts.items()
    ]


def numbers_of(name: str, captions: Sequence[str], clip: CLIP, long: int = LONG) -> NDArray[np.int64]:
    """Which captions a result named "short", "long, inserted", ... is about."""
    lengths = np.array([len(encode(text, clip.text.config.tokenizer)) for text in captions])
    return np.flatnonzero((lengths >= long) == name.startswith("long"))


def _tokens(text: str, clip: CLIP) -> Tensor:
    """(1, T): from start to end, without padding"""
    context = len(clip.text.positions)
    tokens = torch.tensor([encode(text, clip.text.config.tokenizer)])
    length = tokens.shape[1]
    if not SHORTEST <= length <= context:
        raise InputError(f"the caption {text[:40]!r} has {length} tokens: between {SHORTEST} and {context} can be read")
    return tokens.to(clip.logit_scale.device)


def _with_a_word(caption: str, words: list[str], number: int, seed: int, clip: CLIP) -> tuple[Tensor, Tensor]:
    """The tokens of the caption with one word more, and which of them it had before."""
    own = caption.split()
    draw = bits((seed, "inserted word"), np.array([number]), (2,))[0]
    place = int(draw[0] % np.uint64(len(own) + 1))
    word = words[int(draw[1] % np.uint64(len(words)))]
    before = len(encode(" ".join(own[:place]), clip.text.config.tokenizer)) - 2 if place else 0  # without start and end
    moved = _tokens(" ".join([*own[:place], word, *own[place:]]), clip)
    added = moved.shape[1] - _tokens(caption, clip).shape[1]
    positions = torch.arange(moved.shape[1])
    return moved, (positions <= before) | (positions > before + added)


def _look(clip: CLIP, tokens: Tensor) -> Record:
    with taps(clip) as record:
        clip.encode_text(tokens)
    return dict(record)
