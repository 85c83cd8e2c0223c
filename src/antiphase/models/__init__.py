"""Models: config -> pixels in [0,1] -> logits. The configs import without torch; `vit`, `attention`, `taps` need it."""

from antiphase.models.config import (
    Attention,
    Differential,
    DifferentialV2,
    Dint,
    GroupedDifferential,
    Schedule,
    Softmax,
    ViTConfig,
)

__all__ = [
    "Attention",
    "Differential",
    "DifferentialV2",
    "Dint",
    "GroupedDifferential",
    "Schedule",
    "Softmax",
    "ViTConfig",
]
