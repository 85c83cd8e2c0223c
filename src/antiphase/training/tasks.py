"""What a training consists of besides the loop: a model, examples by their rows, a task, and how the model is judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase.attacks.config import PGD
from antiphase.attacks.pgd import perturb
from antiphase.attacks.threat_model import Linf
from antiphase.config import InputError
from antiphase.data.imageset import Batch, ImageSet
from antiphase.measures.success import accuracy
from antiphase.models.attention import lambdas
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.config import ViTConfig
from antiphase.models.vit import build
from antiphase.training.augment import augmented
from antiphase.training.config import ContrastiveConfig, TrainConfig
from antiphase.training.distributed import World
from antiphase.training.run_folder import Progress, begin_with


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


# ------------------------------------------------------------------------------------------------- training.tasks
# What is learned. A task turns a batch into a loss; the loop does not know which task it runs.


class Task:
    """The mean loss of a batch, and whether each of its examples was answered right before it was learned from."""

    of_all = False  # whether the loss is that of the whole batch in every process, or of the process's share

    def __call__(self, model: nn.Module, batch: Any, *, epoch: int) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def around(self, model: nn.Module, world: World) -> nn.Module:
        """What is called for the loss, and what several processes share the gradients of: the model, or it and more."""
        del world
        return model

    def settle(self, model: nn.Module) -> None:
        """After a step: weights that have bounds are put back into them."""


@dataclass(frozen=True)
class Classification(Task):
    """Cross-entropy against the labels."""

    label_smoothing: float = 0.0

    def __call__(self, model: nn.Module, batch: Batch, *, epoch: int) -> tuple[Tensor, Tensor]:
        del epoch
        logits = model(batch.pixels)
        loss = F.cross_entropy(logits, batch.labels, label_smoothing=self.label_smoothing)
        return loss, logits.argmax(dim=1) == batch.labels


@dataclass(frozen=True)
class Adversarial(Task):
    """Cross-entropy on images attacked with PGD at every step (Madry); the first `clean_share` of a batch stays clean.

    The random start of an image depends on (seed, epoch, its id), so a resumed run repeats it.
    """

    attack: PGD
    clean_share: float = 0.0
    label_smoothing: float = 0.0
    seed: int = 0

    def __call__(self, model: nn.Module, batch: Batch, *, epoch: int) -> tuple[Tensor, Tensor]:
        clean = round(self.clean_share * len(batch.labels))
        x, y, ids = batch.pixels[clean:], batch.labels[clean:], batch.ids[clean:]
        inner = getattr(model, "module", model)  # not the wrapper that averages gradients
        attacked = perturb(inner, x, y, ids, self.attack, (self.seed, "adversarial", epoch)) if len(x) else x
        mixed = batch._replace(pixels=torch.cat([batch.pixels[:clean], attacked]))
        return Classification(self.label_smoothing)(model, mixed, epoch=epoch)


def task_of(config: TrainConfig | ContrastiveConfig) -> Task:
    """The task that a training config asks for."""
    if isinstance(config, ContrastiveConfig):
        from antiphase.training.clip_task import Contrastive

        return Contrastive(config.micro_batch, config.max_scale)
    if config.adv_eps is None:
        return Classification(config.label_smoothing)
    attack = PGD(
        within=Linf(config.adv_eps),
        steps=config.adv_steps,
        step_size=config.adv_step_size,
        random_start=config.adv_random_start,
    )
    return Adversarial(attack, config.clean_share, config.label_smoothing, config.seed)
