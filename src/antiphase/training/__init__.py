"""Training: one loop; a task supplies the loss."""

from antiphase.training.config import TrainConfig

__all__ = ["TrainConfig"]
