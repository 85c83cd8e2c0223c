"""Retrieval: is one of the right ones among the k nearest?

n images, m texts, E width of the joint space; text j belongs to image owner[j].
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 1024  # queries at a time: the whole matrix of cosines is never in memory


def text_ranks(images: Tensor, texts: Tensor, owner: Tensor) -> Tensor:
    """(n,) text retrieval: how many foreign texts are at least as near to each image as the nearest of its own. 0 is a hit."""
    return torch.cat([_ranks(rows, texts, own, owner) for rows, own in _chunks(images, torch.arange(len(images)))])


def image_ranks(images: Tensor, texts: Tensor, owner: Tensor) -> Tensor:
    """(m,) image retrieval: how many foreign images are at least as near to each text as its own. 0 is a hit."""
    return torch.cat([_ranks(rows, images, own, torch.arange(len(images))) for rows, own in _chunks(texts, owner)])


def recall(ranks: Tensor, k: int) -> float:
    """R@k: the share of queries with a right answer among their k nearest; what ties with the right answer comes before it."""
    return float((ranks < k).double().mean())


def _chunks(queries: Tensor, own: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(torch.split(queries, CHUNK), torch.split(own, CHUNK)))


def _ranks(queries: Tensor, candidates: Tensor, own: Tensor, owner: Tensor) -> Tensor:
    cosine = F.normalize(queries, dim=-1) @ F.normalize(candidates, dim=-1).T  # (queries, candidates)
    mine = owner.to(cosine.device)[None] == own.to(cosine.device)[:, None]
    best = cosine.masked_fill(~mine, -torch.inf).amax(dim=1, keepdim=True)
    return ((cosine >= best) & ~mine).sum(dim=1).cpu()
