"""What a training consists of besides the loop: a model, examples by their rows, a task, and how the model is judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from antiphase.config import InputError
from antiphase.data.imageset import Batch, ImageSet
from antiphase.measures.success import accuracy
from antiphase.models.attention import lambdas
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.config import ViTConfig
from antiphase.models.vit import build
from antiphase.training.augment import augmented
from antiphase.training.config import ContrastiveConfig, TrainConfig
from antiphase.training.folder import Progress, begin_with
from antiphase.training.tasks import Task, task_of
from antiphase.training.world import World


class Course(Protocol):
    """All that the loop does not know. Rows are positions in the training set."""

    @property
    def model_config(self) -> ViTConfig | CLIPConfig: ...

    @property
    def config(self) -> TrainConfig | ContrastiveConfig: ...

    def __len__(self) -> int: ...  # examples of an epoch

    def model(self) -> nn.Module: ...  # as it is before the first step

    def task(self) -> Task: ...

    def data(self) -> dict[str, Any]: ...  # for run.json

    def batch(self, rows: NDArray[np.int64], world: World, epoch: int, device: torch.device) -> Any:
        """This process's share of the examples at these rows, as this epoch sees them; it has `ids` and `inputs`."""

    def row(self, model: nn.Module, at: Progress) -> dict[str, Any]:
        """What the log says of an epoch: of the batches as they were learned from, and of the model after it."""


@dataclass(frozen=True)
class Classifying:
    """A classifier learns the labels of images."""

    model_config: ViTConfig
    config: TrainConfig
    train_set: ImageSet
    test_set: ImageSet

    def __post_init__(self) -> None:
        check_splits(self.train_set.split, self.test_set.split)
        if (self.train_set.class_names, self.train_set.shape) != (self.test_set.class_names, self.test_set.shape):
            raise InputError(
                f"the train split of {self.train_set.name} and the test split of {self.test_set.name} have different classes"
            )

    def __len__(self) -> int:
        return len(self.train_set)

    def model(self) -> nn.Module:
        shape, classes = self.train_set.shape, self.train_set.classes
        model = build(self.model_config, shape=shape, classes=classes, seed=self.config.seed)
        if self.config.start_from is not None:
            begin_with(model, self.model_config, Path(self.config.start_from))
        return model

    def task(self) -> Task:
        return task_of(self.config)

    def data(self) -> dict[str, Any]:
        return {
            "name": self.train_set.name,
            "origin": self.train_set.origin,
            "shape": list(self.train_set.shape),
            "class_names": list(self.train_set.class_names),
            "train": {"images": len(self.train_set), "fingerprint": self.train_set.fingerprint},
            "test": {"images": len(self.test_set), "fingerprint": self.test_set.fingerprint},
        }

    def batch(self, rows: NDArray[np.int64], world: World, epoch: int, device: torch.device) -> Batch:
        batch, config = self.train_set.batch(world.share(rows)), self.config
        pixels = augmented(batch.pixels, batch.ids, config.augment, seed=config.seed, epoch=epoch)
        return Batch(pixels.to(device, non_blocking=True), batch.labels.to(device, non_blocking=True), batch.ids)

    def row(self, model: nn.Module, at: Progress) -> dict[str, Any]:
        return {
            "loss": at.loss_sum / at.seen,
            "train_accuracy": at.correct / at.seen,
            "test_accuracy": accuracy(model, self.test_set, device=next(model.parameters()).device),
            "lambda": lambdas(model),
        }


def check_splits(train: str, test: str) -> None:
    if train != "train" or test != "test":
        raise InputError(f"training needs a train and a test split, got {train!r} and {test!r}")
