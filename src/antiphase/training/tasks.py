"""What is learned. A task turns a batch into a loss; the loop does not know which task it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from antiphase.data.imageset import Batch


class Task(Protocol):
    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean loss of the batch and the logits it was computed from."""
        ...


@dataclass(frozen=True)
class Classification:
    """Cross-entropy against the labels."""

    label_smoothing: float = 0.0

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        logits = model(batch.pixels)
        return F.cross_entropy(logits, batch.labels, label_smoothing=self.label_smoothing), logits
