"""One training loop for every task: the loop supplies order, steps, checkpoints, log and exact resumption.

Everything random is a function of (seed, epoch, example), nothing of the process: a run killed at any moment and started
again ends, on the same machine with the same threads, with the bits of a run that was never interrupted.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
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
from antiphase.models.fast_path import fast_path
from antiphase.models.run import Run
from antiphase.models.run_json import read_log
from antiphase.training.config import ContrastiveConfig, TrainConfig
from antiphase.training.diagnose import explain_divergence, first_non_finite
from antiphase.training.distributed import World, join_world
from antiphase.training.run_folder import Progress, check_folder, describe, keep_epoch, resume, save
from antiphase.training.tasks import ClassificationTask, Objective, Task

OnEpoch = Callable[[dict[str, Any]], object]  # called with the record of an epoch


class Diverged(RuntimeError):
    """The loss stopped being a number. The last good checkpoint is still there."""


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
    on_epoch: OnEpoch | None = None,
) -> Run:
    """Train a classifier to the end, or from where the folder stands to the end.

    `on_epoch` is called with the record of each epoch (its line of log.jsonl) as soon as its checkpoint is written.
    """
    task = ClassificationTask(model_config, config, train_set, test_set)
    return train_task(task, out, device=device, scale=scale, on_epoch=on_epoch)


def train_task(
    task: Task,
    out: Path | str,
    *,
    device: torch.device | str = "cpu",
    scale: str | None = None,
    on_epoch: OnEpoch | None = None,
) -> Run:
    """Train to the end, or from where the folder stands to the end; a finished folder is returned as it is.

    Under `torchrun` every process calls this: they share each batch, and one of them writes and calls `on_epoch`.
    """
    folder, device = Path(out), torch.device(device)
    model = task.model()
    description = describe(task.model_config, task.config, task.data(), scale)
    with join_world(device) as world, files.held(folder) if world.is_main else nullcontext():
        if world.is_main:
            is_new = check_folder(folder, description)
            files.sweep(folder)
            if is_new:
                files.write_json(folder / "run.json", description)
        world.barrier()
        learner = Learner(model.to(device), task.config, task.objective(), world)
        progress = resume(folder, model, learner.optimizer)
        try:
            if not progress.complete:
                _train_epochs(folder, learner, progress, task, on_epoch)
        except Diverged as error:
            remedy = _after_divergence(task.config, kept=(folder / "checkpoint.json").exists())
            raise Diverged(f"epoch {progress.epoch + 1}, step {progress.step + 1}: {error}; {remedy}") from None
        world.barrier()
    return Run(folder)


def _after_divergence(config: TrainConfig | ContrastiveConfig, *, kept: bool) -> str:
    """What to do about a training that diverged: the same one would diverge again."""
    penalised = isinstance(config, TrainConfig) and config.penalty is not None
    lower = f"lower --lr ({config.lr:g} here){' or the weight of --penalty' if penalised else ''}"
    if kept:
        return f"the last good checkpoint is kept: {lower} and choose another --out"
    return f"no checkpoint was written yet: {lower}, in the same --out if you like"


def _train_epochs(
    folder: Path, learner: Learner, progress: Progress, task: Task, on_epoch: OnEpoch | None = None
) -> None:
    """All epochs that are left. `progress` is where the run stands, kept up to date."""
    config, is_main = learner.config, learner.world.is_main
    per_epoch = math.ceil(len(task) / config.batch_size)
    total = per_epoch * config.epochs
    log = [row for row in read_log(folder) if row["epoch"] <= progress.epoch]
    last_save = time.monotonic()

    def checkpoint() -> None:
        nonlocal last_save
        last_save = time.monotonic()
        learner.check_weights()
        if is_main:
            save(folder, learner.model, learner.optimizer, progress)

    done = progress.epoch * per_epoch + progress.step
    with (
        console.progress(f"training {folder.name}", total, done, show=is_main) as advance,
        _stop_requests() as stop,
    ):
        while progress.epoch < config.epochs:
            learner.model.train()
            draw = np.random.default_rng(runtime.seed_word(config.seed, "order", progress.epoch))
            order = draw.permutation(len(task))
            while progress.step < per_epoch:
                start = progress.step * config.batch_size
                share_done = (progress.epoch * per_epoch + progress.step) / total
                stopping = _step(learner, progress, task, order[start : start + config.batch_size], share_done, stop)
                mean_loss = progress.loss_sum / progress.seen
                advance(1, f"epoch {progress.epoch + 1}/{config.epochs}  loss {mean_loss:.3f}")
                if stopping or time.monotonic() - last_save > config.checkpoint_seconds:
                    checkpoint()
                if stopping:
                    raise Interrupted(f"stopped in epoch {progress.epoch + 1}; the same command goes on from there")
            learner.check_weights()
            if is_main:
                record = task.evaluate(learner.model, progress)
                log.append({"epoch": progress.epoch + 1, **record, "seconds": round(progress.seconds, 3)})
                files.write_lines(folder / "log.jsonl", log)
                if progress.epoch + 1 in config.keep_epochs:
                    keep_epoch(folder, learner.model, log)
            progress.begin(progress.epoch + 1, complete=progress.epoch + 1 == config.epochs)
            checkpoint()
            if is_main and on_epoch is not None:
                on_epoch(deepcopy(log[-1]))  # what it does to its record is not done to the log


def _step(
    learner: Learner, progress: Progress, task: Task, rows: NDArray[np.int64], share_done: float, stop: threading.Event
) -> bool:
    """One update on these rows, counted in `progress`; True if any process was asked to stop."""
    began = time.monotonic()
    batch = task.batch(rows, learner.world, progress.epoch, next(learner.model.parameters()).device)
    lr = learner.config.lr_at(share_done)
    loss, correct = learner.update(batch, lr=lr, epoch=progress.epoch, batch_size=len(rows))
    own = len(batch.ids)
    loss_sum, all_correct, examples, stopping = learner.world.sum(loss * own, correct, own, stop.is_set())
    progress.count(loss_sum, int(all_correct), int(examples), time.monotonic() - began)
    return bool(stopping)


@contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that the step under way is finished and saved; a second Ctrl-C does not wait."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Learner:
    """A model, its optimizer and its objective. The weights change only in `update`, and never by a loss that is no number."""

    def __init__(
        self,
        model: nn.Module,
        config: TrainConfig | ContrastiveConfig,
        objective: Objective,
        world: World | None = None,
    ) -> None:
        self.model, self.config, self.objective, self.world = model, config, objective, world or World()
        self.optimizer = make_optimizer(model, config)
        self.module = self.world.average_gradients(objective.module(model, self.world))

    def update(self, batch: Any, *, lr: float, epoch: int = 0, batch_size: int | None = None) -> tuple[float, int]:
        """One step on this process's share of a batch of `batch_size`; its loss and number correct before the step."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        device = next(self.model.parameters()).device
        with fast_path(self.model):
            with torch.autocast(device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
                loss, correct = self.objective(self.module, batch, epoch=epoch)
            value = loss.item()
            if math.isfinite(value):
                if batch_size and not self.objective.over_whole_batch:
                    loss = loss * self.world.loss_weight(len(batch.ids), batch_size)
                loss.backward()  # type: ignore[no-untyped-call]
        if not math.isfinite(value):  # explained by the full computation, not by the fast path
            raise Diverged(f"the loss became {value}: {explain_divergence(self.model, *batch.inputs)}")
        self.optimizer.step()
        self.objective.after_step(self.model)
        return value, int(correct.sum())

    def check_weights(self) -> None:
        """Refuse to go on with weights that are no longer numbers."""
        if cause := first_non_finite(self.model):
            raise Diverged(f"the weights stopped being numbers: {cause}")


def make_optimizer(model: nn.Module, config: TrainConfig | ContrastiveConfig) -> torch.optim.Optimizer:
    """Adam for classifiers, as the paper; AdamW for a CLIP, without decay of vectors, biases and norms (docs/method.md 3.3)."""
    if isinstance(config, TrainConfig):
        return torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True)
    named = list(model.named_parameters())
    undecayed = [p for name, p in named if p.ndim < 2 or "bias" in name or "norm" in name]
    ids = {id(p) for p in undecayed}
    groups = [
        {"params": [p for _, p in named if id(p) not in ids], "weight_decay": config.weight_decay},
        {"params": undecayed, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, config.beta2), fused=True)
