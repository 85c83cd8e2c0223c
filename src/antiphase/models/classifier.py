"""THE SEAM. Everything attacked or measured is pixels in [0,1] in, logits out; normalisation lives inside."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalized(nn.Module):
    """A model behind its normalisation: (B, C, H, W) pixels in [0,1] -> (B, K) logits."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        super().__init__()
        self.model = model
        for name, value in (("mean", mean), ("std", std)):  # constants of the config, so they are not in the state_dict
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float32).reshape(-1, 1, 1), persistent=False)

    def normalize(self, pixels: Tensor) -> Tensor:
        """What the model itself is called with: each channel less its mean, divided by its standard deviation."""
        return (pixels - self.mean) / self.std

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.model(self.normalize(pixels))
        return logits
