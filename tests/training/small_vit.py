"""A small DiffViT and a short training of it."""

from antiphase.models import Differential, ViTConfig
from antiphase.training import TrainConfig

SMALL = ViTConfig(patch=2, width=32, heads=4, attention=(Differential(),))
SHORT = TrainConfig(epochs=2)
