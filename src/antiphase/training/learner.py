"""One update: a model, its optimizer and the task that says what is to be learned."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from antiphase.models.lean import lean
from antiphase.training.blame import not_finite, what_blew_up
from antiphase.training.config import ContrastiveConfig, TrainConfig
from antiphase.training.tasks import Task, task_of
from antiphase.training.world import World


class Diverged(RuntimeError):
    """The loss stopped being a number. The last good checkpoint is still there."""


class Learner:
    """The weights change only in `update`, and never by a loss that is not a number."""

    def __init__(
        self,
        model: nn.Module,
        config: TrainConfig | ContrastiveConfig,
        task: Task | None = None,
        world: World | None = None,
    ) -> None:
        self.model, self.config, self.world = model, config, world or World()
        self.task = task or task_of(config)
        self.optimizer = optimizer_of(model, config)
        self.shared = self.world.wrap(self.task.around(model, self.world))

    def update(self, batch: Any, *, lr: float, epoch: int = 0, of: int | None = None) -> tuple[float, int]:
        """One step on this process's share of a batch `of` so many; its loss and right answers before the step."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        device = next(self.model.parameters()).device
        with lean(self.model):
            with torch.autocast(device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
                loss, right = self.task(self.shared, batch, epoch=epoch)
            value = loss.item()
            if math.isfinite(value):
                weighted = loss if self.task.of_all or not of else loss * self.world.weight(len(batch.ids), of)
                weighted.backward()  # type: ignore[no-untyped-call]
        if not math.isfinite(value):  # looked into in full, outside of the lean computation
            raise Diverged(f"the loss became {value}: {what_blew_up(self.model, *batch.inputs)}")
        self.optimizer.step()
        self.task.settle(self.model)
        return value, int(right.sum())

    def check(self) -> None:
        """Refuse to call weights good that are not numbers."""
        if blamed := not_finite(self.model):
            raise Diverged(f"the weights stopped being numbers: {blamed}")


def optimizer_of(model: nn.Module, config: TrainConfig | ContrastiveConfig) -> torch.optim.Optimizer:
    """Adam for classifiers, as the paper; AdamW for a CLIP, which spares vectors, biases and norms its decay (Z10)."""
    if isinstance(config, TrainConfig):
        return torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True)
    named = list(model.named_parameters())
    spared = [p for name, p in named if p.ndim < 2 or "bias" in name or "norm" in name]
    kept = {id(p) for p in spared}
    groups = [
        {"params": [p for _, p in named if id(p) not in kept], "weight_decay": config.weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, config.beta2), fused=True)
