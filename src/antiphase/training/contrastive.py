"""Contrastive learning: an image and its caption are to be nearer to each other than to all others of the batch.

N pairs in a batch, U different captions among them (class prompts repeat), E width of the joint space.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from antiphase.models.clip import CLIP
from antiphase.training.tasks import Task
from antiphase.training.world import World

LOOKED_AT = 256  # images and texts on which a loss that blew up is explained


class PairBatch(NamedTuple):
    """This process's share of N pairs. Every caption is there once; the processes share the captions too."""

    pixels: Tensor  # (B, C, H, W)
    tokens: Tensor  # (V, T) of this process's share of the U captions
    labels: Tensor  # (N,) which caption belongs to each image of the whole batch
    captions: int  # U
    own: NDArray[np.int64]  # (B,) which of the N images these are
    ids: NDArray[np.int64]  # (B,)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What the model is called with, of a size to look at."""
        return self.pixels[:LOOKED_AT], self.tokens[:LOOKED_AT]


def contrast(
    image: Tensor, text: Tensor, labels: Tensor, scale: Tensor, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """The symmetric loss of N normalised images and U different normalised captions, and whose nearest caption is its own.

    It is the cross-entropy of the N x N matrix of pairs in both directions, where all copies of a caption are right and
    share the target evenly, less the entropy of that target: 0 is the best. A caption that n images have counts n times.
    With `chunk`, the matrix is never whole in memory.
    """
    n, copies = len(image), torch.bincount(labels, minlength=len(text)).to(image.dtype)  # (U,)

    def to_text(some: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        logits = scale * some @ text.T + copies.log()  # (chunk, U)
        return F.cross_entropy(logits, right, reduction="sum"), (logits - copies.log()).detach().argmax(dim=1) == right

    def to_image(some: Tensor, which: Tensor) -> Tensor:
        logits, count = scale * some @ image.T, copies[which]  # (chunk, N)
        own = (logits * (labels == which[:, None])).sum(dim=1) / count
        return (count * (logits.logsumexp(dim=1) - own - count.log())).sum()

    which, size = torch.arange(len(text), device=text.device), chunk or max(n, len(text))
    rows = [_light(to_text, chunk, *part) for part in zip(torch.split(image, size), torch.split(labels, size))]
    columns = [_light(to_image, chunk, *part) for part in zip(torch.split(text, size), torch.split(which, size))]
    loss = (sum(term for term, _ in rows) + sum(columns)) / (2 * n)
    return loss, torch.cat([right for _, right in rows])


def _light(function: Callable[..., Any], chunk: int | None, *inputs: Tensor) -> Any:
    """The function's value; where work is done in chunks, what its gradient needs is computed again when it is asked for."""
    if chunk is None or not torch.is_grad_enabled():
        return function(*inputs)
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)


class Pairing(nn.Module):
    """A CLIP with its loss: what several processes share the gradients of.

    Gradient caching: with `micro_batch`, the towers see so many images or texts at a time. Only the embeddings are kept; in
    the backward pass each part is encoded again for its gradient. The loss, and so the gradient, is that of the whole batch.
    """

    def __init__(self, clip: CLIP, world: World, micro_batch: int | None = None) -> None:
        super().__init__()
        self.clip, self.world, self.micro_batch = clip, world, micro_batch

    def forward(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        image = self.world.gather(self._encode(self.clip.encode_image, batch.pixels), len(batch.labels))  # (N, E)
        text = self.world.gather(self._encode(self.clip.encode_text, batch.tokens), batch.captions)  # (U, E)
        labels = batch.labels.to(image.device)
        with torch.autocast(image.device.type, enabled=False):
            return contrast(image, text, labels, self.clip.logit_scale.exp(), self.micro_batch)

    def _encode(self, encoder: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        """(B, E) normalised, in the dtype of the weights"""
        scale = self.clip.logit_scale

        def encode(some: Tensor) -> Tensor:
            return F.normalize(encoder(some.to(scale.device)).to(scale.dtype), dim=-1)

        if self.micro_batch is None:
            return encode(inputs)
        return torch.cat([_light(encode, self.micro_batch, part) for part in torch.split(inputs, self.micro_batch)])


@dataclass(frozen=True)
class Contrastive(Task):
    """Images against captions, both ways."""

    micro_batch: int | None = None
    max_scale: float = 100.0
    of_all = True

    def __call__(self, model: nn.Module, batch: PairBatch, *, epoch: int) -> tuple[Tensor, Tensor]:
        del epoch
        loss, right = model(batch)
        return loss, right[torch.from_numpy(batch.own).to(right.device)]

    def around(self, model: nn.Module, world: World) -> nn.Module:
        assert isinstance(model, CLIP)
        return Pairing(model, world, self.micro_batch)

    def settle(self, model: nn.Module) -> None:
        """The temperature is learned, within bounds: cosines are multiplied by 1 to `max_scale`."""
        assert isinstance(model, CLIP)
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(self.max_scale))
