"""One update: a model, its optimizer and the task that says what is to be learned."""

from __future__ import annotations

import math

import torch
from torch import nn

from antiphase.data.imageset import Batch
from antiphase.training.blame import not_finite, what_blew_up
from antiphase.training.config import TrainConfig
from antiphase.training.tasks import Task, task_of
from antiphase.training.world import World


class Diverged(RuntimeError):
    """The loss stopped being a number. The last good checkpoint is still there."""


class Learner:
    """The weights change only in `update`, and never by a loss that is not a number."""

    def __init__(
        self, model: nn.Module, config: TrainConfig, task: Task | None = None, world: World | None = None
    ) -> None:
        self.model, self.config = model, config
        self.task, self.world = task or task_of(config), world or World()
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True
        )
        self.shared = self.world.wrap(model)

    def update(self, batch: Batch, *, lr: float, epoch: int = 0, of: int | None = None) -> tuple[float, int]:
        """One step of Adam on this process's share of a batch `of` so many; its loss and right answers before the step."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(batch.pixels.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            loss, logits = self.task(self.shared, batch, epoch=epoch)
        value = loss.item()
        if not math.isfinite(value):
            raise Diverged(f"the loss became {value}: {what_blew_up(self.model, batch.pixels)}")
        weighted = loss * self.world.weight(len(batch.labels), of) if of else loss
        weighted.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return value, int((logits.argmax(dim=1) == batch.labels).sum())

    def check(self) -> None:
        """Refuse to call weights good that are not numbers."""
        if blamed := not_finite(self.model):
            raise Diverged(f"the weights stopped being numbers: {blamed}")
