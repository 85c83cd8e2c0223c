"""Training: one loop; a task supplies the loss."""

from antiphase.training.config import ContrastiveConfig, TrainConfig

__all__ = ["ContrastiveConfig", "TrainConfig"]
