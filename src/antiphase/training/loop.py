"""One update: a model, its optimizer and the task that says what is to be learned."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from antiphase import console, files, runtime
from antiphase.data.imageset import ImageSet
from antiphase.models.config import ViTConfig
from antiphase.models.fast_path import lean
from antiphase.models.run import Run
from antiphase.training.config import ContrastiveConfig, TrainConfig
from antiphase.training.diagnose import not_finite, what_blew_up
from antiphase.training.distributed import World, join
from antiphase.training.run_folder import Progress, about, check_claim, resume, save
from antiphase.training.tasks import Classifying, Course, Task, task_of


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
    """Adam for classifiers, as the paper; AdamW for a CLIP, without decay of vectors, biases and norms (docs/method.md 3.3)."""
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


# ------------------------------------------------------------------------------------------------- training.loop
# One training loop. The task supplies the loss; the loop supplies order, steps, checkpoints, log and exact resumption.
#
# Everything random is a function of (seed, epoch, example), nothing of the process: a run killed at any moment and started
# again ends, on the same machine with the same threads, with the bits of a run that was never interrupted.


class Interrupted(RuntimeError):
    """The user asked to stop. A checkpoint was written first."""


def train(
    model_config: ViTConfig,
    config: TrainConfig,
    train_set: ImageSet,
    test_set: ImageSet,
    out: Path | str,
    *,
    device: torch.device | str = "cpu",
    scale: str | None = None,
) -> Run:
    """Train a classifier to the end, or from where the folder stands to the end."""
    return follow(Classifying(model_config, config, train_set, test_set), out, device=device, scale=scale)


def follow(course: Course, out: Path | str, *, device: torch.device | str = "cpu", scale: str | None = None) -> Run:
    """Train to the end, or from where the folder stands to the end; a finished folder is returned as it is.

    Under `torchrun` every process calls this: they share each batch, and one of them writes.
    """
    folder, device = Path(out), torch.device(device)
    model = course.model()
    wanted = about(course.model_config, course.config, course.data(), scale)
    with join(device) as world, files.held(folder) if world.leads else nullcontext():
        if world.leads:
            check_claim(folder, wanted)
            files.sweep(folder)
            if not (folder / "run.json").exists():
                files.write_json(folder / "run.json", wanted)
        world.meet()
        learner = Learner(model.to(device), course.config, course.task(), world)
        at = resume(folder, model, learner.optimizer)
        try:
            if not at.complete:
                _fit(folder, learner, at, course)
        except Diverged as error:
            kept = "; the last good checkpoint is kept" if (folder / "checkpoint.json").exists() else ""
            raise Diverged(f"epoch {at.epoch + 1}, step {at.step + 1}: {error}{kept}") from None
        world.meet()
    return Run(folder)


def _fit(folder: Path, learner: Learner, at: Progress, course: Course) -> None:
    config, leads = learner.config, learner.world.leads
    per_epoch = math.ceil(len(course) / config.batch_size)
    total = per_epoch * config.epochs
    log = [row for row in files.read_lines(folder / "log.jsonl") if row["epoch"] <= at.epoch]
    last_save = time.monotonic()

    def keep() -> None:
        nonlocal last_save
        last_save = time.monotonic()
        learner.check()
        if leads:
            save(folder, learner.model, learner.optimizer, at)

    with (
        console.progress(f"training {folder.name}", total, at.epoch * per_epoch + at.step, show=leads) as advance,
        _stop_requests() as stop,
    ):
        while at.epoch < config.epochs:
            learner.model.train()
            order = np.random.default_rng(runtime.seed_word(config.seed, "order", at.epoch)).permutation(len(course))
            while at.step < per_epoch:
                rows = order[at.step * config.batch_size : (at.step + 1) * config.batch_size]
                asked = _advance(learner, at, course, rows, (at.epoch * per_epoch + at.step) / total, stop)
                advance(1, f"epoch {at.epoch + 1}/{config.epochs}  loss {at.loss_sum / at.seen:.3f}")
                if asked or time.monotonic() - last_save > config.checkpoint_seconds:
                    keep()
                if asked:
                    raise Interrupted(f"stopped in epoch {at.epoch + 1}; the same command goes on from there")
            learner.check()
            if leads:
                row = course.row(learner.model, at)
                log.append({"epoch": at.epoch + 1, **row, "seconds": round(at.seconds, 3)})
                files.write_lines(folder / "log.jsonl", log)
            at.begin(at.epoch + 1, complete=at.epoch + 1 == config.epochs)
            keep()


def _advance(
    learner: Learner, at: Progress, course: Course, rows: NDArray[np.int64], done: float, stop: threading.Event
) -> bool:
    """One update on these rows, counted; True if any process was asked to stop."""
    began = time.monotonic()
    batch = course.batch(rows, learner.world, at.epoch, next(learner.model.parameters()).device)
    loss, correct = learner.update(batch, lr=learner.config.lr_at(done), epoch=at.epoch, of=len(rows))
    mine = len(batch.ids)
    loss_sum, right, seen, asked = learner.world.total(loss * mine, correct, mine, stop.is_set())
    at.count(loss_sum, int(right), int(seen), time.monotonic() - began)
    return bool(asked)


@contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM ask politely: the step in flight is finished and saved. A second Ctrl-C does not wait."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {s: signal.signal(s, ask) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
