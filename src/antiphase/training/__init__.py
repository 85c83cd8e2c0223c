"""Training: one loop; a task supplies the loss."""

from antiphase.training.config import ContrastiveConfig, Penalty, TrainConfig

__all__ = ["ContrastiveConfig", "Penalty", "TrainConfig"]
