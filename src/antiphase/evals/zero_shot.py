"""Zero-shot classification: the class whose prompts are nearest. n images, K classes, E width of the joint space."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from antiphase.evals.rows import Row, per_class, share


def zero_shot_rows(images: Tensor, classes: Tensor, labels: Tensor, about: str) -> list[Row]:
    """From (n, E) embeddings of images and (K, E) of classes; `about` names the images, as in "cifar10 test images"."""
    cosine = F.normalize(images, dim=-1) @ F.normalize(classes, dim=-1).T  # (n, K)
    k = classes.shape[0]
    correct = (cosine.argmax(dim=1) == labels).numpy()
    of = f"of {len(labels):,} {about} among {k:,} classes"
    rows = [
        share("zero-shot", correct, f"own class nearest, {of}", chance=1 / k),
        per_class("zero-shot, per class", correct, labels.numpy(), f"own class nearest, mean over the classes {of}"),
    ]
    if k > 5:
        in_top_five = (cosine.topk(5).indices == labels[:, None]).any(dim=1).numpy()
        rows.append(share("zero-shot, top 5", in_top_five, f"own class among the 5 nearest, {of}", chance=5 / k))
    return rows
