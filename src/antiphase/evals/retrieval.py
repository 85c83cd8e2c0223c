"""Retrieval: R@1, R@5 and R@10 in both directions, for any number of captions per image. n images, m texts, E joint width."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from antiphase.evals.rows import Row, share
from antiphase.measures.retrieval import image_ranks, text_ranks

CUTS = (1, 5, 10)


def retrieval_rows(images: Tensor, texts: Tensor, captions: Sequence[int], about: str) -> list[Row]:
    """From (n, E) images and (m, E) texts, `captions[i]` of which belong to image i, in order.

    Image retrieval finds the image of a text; the texts of one image count as one trial in the interval. Text retrieval finds
    any of the texts of an image.
    """
    n, counts = len(images), np.asarray(captions)
    owner = torch.from_numpy(np.repeat(np.arange(n), counts))
    to_image, to_text = image_ranks(images, texts, owner).numpy(), text_ranks(images, texts, owner).numpy()
    exists = np.arange(counts.max())[None] < counts[:, None]  # (n, most captions of an image)
    hits = np.zeros(exists.shape, dtype=bool)
    rows = []
    for k in CUTS:
        hits[exists] = to_image < k
        of = f"own image among the {k} nearest, of {len(texts):,} captions of {n:,} {about}"
        rows.append(share(f"image retrieval R@{k}", hits, of, where=exists, chance=min(1.0, k / n)))
    for k in CUTS:
        of = f"one of its captions among the {k} nearest of {len(texts):,}, of {n:,} {about}"
        rows.append(share(f"text retrieval R@{k}", to_text < k, of))
    return rows
