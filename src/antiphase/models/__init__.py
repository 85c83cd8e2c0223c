"""Models: config -> pixels in [0,1] -> logits. The configs import without torch; `vit`, `attention`, `taps` need it."""

from antiphase.models.config import (
    Attention,
    BoundedDifferential,
    Differential,
    DifferentialV2,
    Dint,
    GroupedDifferential,
    LowRankDifferential,
    Schedule,
    Softmax,
    ViTConfig,
)

__all__ = [
    "Attention",
    "BoundedDifferential",
    "Differential",
    "DifferentialV2",
    "Dint",
    "GroupedDifferential",
    "LowRankDifferential",
    "Schedule",
    "Softmax",
    "ViTConfig",
]
