"""What is learned. A task turns a batch into a loss; the loop does not know which task it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from antiphase.attacks.config import PGD
from antiphase.attacks.step import perturb
from antiphase.attacks.within import Linf
from antiphase.data.imageset import Batch
from antiphase.training.config import ContrastiveConfig, TrainConfig
from antiphase.training.world import World


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
        from antiphase.training.contrastive import Contrastive  # which builds on this file

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
