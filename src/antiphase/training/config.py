"""How a model is trained, as a value. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from antiphase.config import InputError, check_fields


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The paper's recipe by default: Adam 5e-4, batch 128, constant rate, nothing else."""

    epochs: int = 100
    batch_size: int = 128
    lr: float = 5e-4
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"  # cosine falls from lr to 0 over all steps
    augment: Literal["none", "crop-flip"] = "none"  # shift by up to an eighth of the side, mirror
    label_smoothing: float = 0.0
    seed: int = 0
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16 is autocast, for GPUs
    checkpoint_seconds: float = 60.0  # at most this much work is lost to a kill; every epoch's end is kept too

    def __post_init__(self) -> None:
        check_fields(self, epochs=1, batch_size=1, weight_decay=0, label_smoothing=0, seed=0, checkpoint_seconds=0)
        if not self.lr > 0:
            raise InputError(f"lr={self.lr} must be greater than 0")
        if not self.label_smoothing < 1:
            raise InputError(f"label_smoothing={self.label_smoothing} must be less than 1")
