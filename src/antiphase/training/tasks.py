"""What is trained: a task has a model, batches, an objective to minimise, and an evaluation after each epoch.

The loop (training/loop.py) knows tasks only by this. Here is the task of a classifier; a CLIP's is in training/clip_task.py.
"""

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
from antiphase.training.augment import augment, noisy
from antiphase.training.config import ContrastiveConfig, Penalty, TrainConfig
from antiphase.training.distributed import World
from antiphase.training.penalties import check_layers, penalty_term
from antiphase.training.run_folder import Progress, load_weights_of


class Task(Protocol):
    """All that the loop does not know. Rows are positions in the training set."""

    @property
    def model_config(self) -> ViTConfig | CLIPConfig: ...

    @property
    def config(self) -> TrainConfig | ContrastiveConfig: ...

    def __len__(self) -> int: ...  # examples of an epoch

    def model(self) -> nn.Module: ...  # as it is before the first step

    def objective(self) -> Objective: ...

    def data(self) -> dict[str, Any]: ...  # what run.json says of the data

    def batch(self, rows: NDArray[np.int64], world: World, epoch: int, device: torch.device) -> Any:
        """This process's share of the examples at these rows, augmented for this epoch; it has `ids` and `inputs`."""

    def evaluate(self, model: nn.Module, progress: Progress) -> dict[str, Any]:
        """The log's record of an epoch: means over its batches, and how the model does after it."""


class Objective:
    """The mean loss of a batch, and for each of its examples whether the model was correct before it learned from it."""

    over_whole_batch = False  # True: every process computes the loss of the whole batch; False: of its own share

    def __call__(self, model: nn.Module, batch: Any, *, epoch: int) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def module(self, model: nn.Module, world: World) -> nn.Module:
        """The module that is called for the loss, whose gradients the processes average: the model, or it and more."""
        del world
        return model

    def after_step(self, model: nn.Module) -> None:
        """Put weights that have bounds back into them."""


# ------------------------------------------------------------------------------------------------- classification


@dataclass(frozen=True)
class ClassificationTask:
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
        if self.config.penalty is not None:
            check_layers(self.config.penalty, self.model_config)

    def __len__(self) -> int:
        return len(self.train_set)

    def model(self) -> nn.Module:
        shape, classes = self.train_set.shape, self.train_set.classes
        model = build(self.model_config, shape=shape, classes=classes, seed=self.config.seed)
        if self.config.start_from is not None:
            load_weights_of(model, self.model_config, Path(self.config.start_from))
        return model

    def objective(self) -> Objective:
        return classification_objective(self.config)

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
        return as_trained_on(self.train_set.batch(world.share(rows)), self.config, epoch, device)

    def evaluate(self, model: nn.Module, progress: Progress) -> dict[str, Any]:
        device, config = next(model.parameters()).device, self.config
        fitted = self.train_set.at_most(config.fit_images, config.seed) if config.fit_images else None
        return {
            "loss": progress.loss_sum / progress.seen,
            "train_accuracy": progress.correct / progress.seen,
            **({} if fitted is None else {"fit_accuracy": accuracy(model, fitted, device=device)}),
            "test_accuracy": accuracy(model, self.test_set, device=device),
            "lambda": lambdas(model),
        }


def as_trained_on(batch: Batch, config: TrainConfig, epoch: int, device: torch.device) -> Batch:
    """Augmented, and with its noise."""
    pixels = augment(batch.pixels, batch.ids, config.augment, seed=config.seed, epoch=epoch)
    pixels = noisy(pixels, batch.ids, config.noise, seed=config.seed, epoch=epoch)
    return Batch(pixels.to(device, non_blocking=True), batch.labels.to(device, non_blocking=True), batch.ids)


def check_splits(train: str, test: str) -> None:
    """Refuse to train on anything but a train split, or to evaluate on anything but a test split."""
    if train != "train" or test != "test":
        raise InputError(f"training needs a train and a test split, got {train!r} and {test!r}")


def classification_objective(config: TrainConfig) -> Objective:
    """Cross-entropy, on attacked images where the config has a budget for adversarial training; and a penalty, if it has one."""
    objective = _cross_entropy(config)
    return objective if config.penalty is None else Penalised(objective, config.penalty, config.seed)


def _cross_entropy(config: TrainConfig) -> Objective:
    if config.adv_eps is None:
        return CrossEntropy(config.label_smoothing)
    attack = PGD(
        within=Linf(config.adv_eps),
        steps=config.adv_steps,
        step_size=config.adv_step_size,
        random_start=config.adv_random_start,
    )
    return AdversarialCrossEntropy(attack, config.clean_share, config.label_smoothing, config.seed)


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Cross-entropy against the labels."""

    label_smoothing: float = 0.0

    def __call__(self, model: nn.Module, batch: Batch, *, epoch: int) -> tuple[Tensor, Tensor]:
        del epoch
        logits = model(batch.pixels)
        loss = F.cross_entropy(logits, batch.labels, label_smoothing=self.label_smoothing)
        return loss, logits.argmax(dim=1) == batch.labels


@dataclass(frozen=True)
class AdversarialCrossEntropy(Objective):
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
        return CrossEntropy(self.label_smoothing)(model, mixed, epoch=epoch)


@dataclass(frozen=True)
class Penalised(Objective):
    """Another objective, and a penalty on the first images of each batch; the order of an epoch is drawn, so those are any.

    What is random about it depends on (seed, epoch, id), so a resumed run repeats it.
    """

    objective: Objective
    penalty: Penalty
    seed: int = 0

    def __call__(self, model: nn.Module, batch: Batch, *, epoch: int) -> tuple[Tensor, Tensor]:
        few = max(1, round(self.penalty.share * len(batch.ids)))
        inner = getattr(model, "module", model)  # not the wrapper that averages gradients
        looked_at = Batch(batch.pixels[:few], batch.labels[:few], batch.ids[:few])
        term = penalty_term(self.penalty, inner, looked_at, seed=self.seed, epoch=epoch)
        loss, correct = self.objective(model, batch, epoch=epoch)
        return loss + self.penalty.weight * term, correct
