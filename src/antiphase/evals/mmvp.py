"""Two images and two statements, as MMVP-VLM has them; a pair is correct only if both are matched.

n pairs, E width of the joint space.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from antiphase.evals.rows import Row, mean, share

TEMPLATE = "a photo of {}"  # in front of every statement, as the authors' script has it
CHANCE = 0.25


def statement_rows(images: Tensor, texts: Tensor, categories: Sequence[str], title: str = "mmvp") -> list[Row]:
    """From (2n, E) images and their statements, neighbours forming a pair, and the category of each pair.

    `mmvp` (or another title): each image is nearer to its own statement. `mmvp, by statement`: each statement is nearer to its
    own image, which is what MMVP's authors count. A tie is wrong.
    """
    image, text = (F.normalize(e, dim=-1).reshape(-1, 2, e.shape[-1]) for e in (images, texts))  # (n, 2, E)
    cosine = image @ text.mT  # (n, image, statement)
    own = cosine.diagonal(dim1=1, dim2=2)  # (n, 2): image 0 with statement 0, image 1 with statement 1
    other_statement, other_image = (cosine.flip(side).diagonal(dim1=1, dim2=2) for side in (2, 1))
    by_image, by_statement = ((own > other).all(dim=1).numpy() for other in (other_statement, other_image))
    category = np.asarray(categories)
    rows = []
    for name, correct, what in (
        (title, by_image, "both images get their own statement"),
        (f"{title}, by statement", by_statement, "both statements get their own image"),
    ):
        each = [
            share(f"{name}: {c}", correct[category == c], f"{what}, of the pairs of this category", chance=CHANCE)
            for c in dict.fromkeys(categories)
        ]
        of = f"{what}, of {len(category):,} pairs, mean over {len(each)} categories"
        rows += [mean(name, each, of, chance=CHANCE), *each]
    return rows
