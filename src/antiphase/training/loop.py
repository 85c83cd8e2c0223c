"""One training loop. The task supplies the loss; the loop supplies order, steps, checkpoints, the log and exact resumption.

Everything random is a function of (seed, epoch, example), nothing of the process: a run killed at any moment and started
again ends, on the same machine with the same number of threads, with the bits of a run that was never interrupted.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from antiphase import console, files, runtime
from antiphase.config import InputError, to_plain
from antiphase.data.imageset import Batch, ImageSet
from antiphase.measures.success import accuracy
from antiphase.models.attention import lambdas
from antiphase.models.checkpoint import Run, load_weights, read_progress, read_tensors, save_checkpoint
from antiphase.models.config import ViTConfig
from antiphase.models.vit import build
from antiphase.training.augment import crop_flip
from antiphase.training.blame import what_blew_up
from antiphase.training.config import TrainConfig
from antiphase.training.tasks import Classification, Task


class Diverged(RuntimeError):
    """The loss stopped being a number. The last good checkpoint is still there."""


class Interrupted(RuntimeError):
    """The user asked to stop. A checkpoint was written first."""


@dataclass
class Progress:
    """Where a run stands: `step` batches of `epoch` are done, with these sums over them."""

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    correct: int = 0
    seen: int = 0
    seconds: float = 0.0  # spent on this epoch
    complete: bool = False


def train(
    model_config: ViTConfig,
    config: TrainConfig,
    train_set: ImageSet,
    test_set: ImageSet,
    out: Path | str,
    *,
    device: torch.device | str = "cpu",
    task: Task | None = None,
) -> Run:
    """Train to the end, or from where the folder stands to the end; a finished folder is returned as it is."""
    folder = Path(out)
    if train_set.split != "train" or test_set.split != "test":
        raise InputError(f"training needs a train and a test split, got {train_set.split!r} and {test_set.split!r}")
    model = build(model_config, shape=train_set.shape, classes=train_set.classes, seed=config.seed).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True)
    about = _about(model_config, config, train_set, test_set)
    _check_claim(folder, about)
    with files.held(folder):
        files.sweep(folder)
        if not (folder / "run.json").exists():
            files.write_json(folder / "run.json", about)
        progress = _resume(folder, model, optimizer)
        if not progress.complete:
            task = task or Classification(config.label_smoothing)
            _fit(folder, model, optimizer, progress, config, train_set, test_set, task, torch.device(device))
    return Run(folder)


def _fit(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    at: Progress,
    config: TrainConfig,
    train_set: ImageSet,
    test_set: ImageSet,
    task: Task,
    device: torch.device,
) -> None:
    steps = math.ceil(len(train_set) / config.batch_size)
    log = [row for row in files.read_lines(folder / "log.jsonl") if row["epoch"] <= at.epoch]
    label = f"training {folder.name}"
    with (
        console.progress(label, total=steps * config.epochs, done=at.epoch * steps + at.step) as advance,
        _stop_requests() as stop,
    ):
        saved = time.monotonic()
        while at.epoch < config.epochs:
            model.train()
            order = np.random.default_rng(runtime.seed_word(config.seed, "order", at.epoch)).permutation(len(train_set))
            while at.step < steps:
                began = time.monotonic()
                rows = order[at.step * config.batch_size : (at.step + 1) * config.batch_size]
                batch = _prepare(train_set.batch(rows), config, at.epoch, device)
                _set_lr(optimizer, config, at.epoch * steps + at.step, config.epochs * steps)
                loss, correct = _step(model, optimizer, task, batch, config, at)
                at.step += 1
                at.loss_sum, at.correct, at.seen = (
                    at.loss_sum + loss * len(rows),
                    at.correct + correct,
                    at.seen + len(rows),
                )
                at.seconds += time.monotonic() - began
                advance(1, f"epoch {at.epoch + 1}/{config.epochs}  loss {at.loss_sum / at.seen:.3f}")
                if stop.is_set() or time.monotonic() - saved > config.checkpoint_seconds:
                    _save(folder, model, optimizer, at)
                    saved = time.monotonic()
                if stop.is_set():
                    raise Interrupted(f"stopped in epoch {at.epoch + 1}; the same command goes on from there")
            log.append(_epoch_row(model, at, test_set, device))
            files.write_lines(folder / "log.jsonl", log)
            at.epoch, at.step, at.loss_sum, at.correct, at.seen, at.seconds = at.epoch + 1, 0, 0.0, 0, 0, 0.0
            at.complete = at.epoch == config.epochs
            _save(folder, model, optimizer, at)
            saved = time.monotonic()


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, task: Task, batch: Batch, config: TrainConfig, at: Progress
) -> tuple[float, int]:
    """One update; the loss and the number of right answers before it."""
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(batch.pixels.device.type, torch.bfloat16, enabled=config.precision == "bf16"):
        loss, logits = task(model, batch)
    value = loss.item()
    if not math.isfinite(value):
        raise Diverged(
            f"the loss became {value} in epoch {at.epoch + 1}, step {at.step + 1}: {what_blew_up(model, batch.pixels)}"
        )
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return value, int((logits.argmax(dim=1) == batch.labels).sum())


def _prepare(batch: Batch, config: TrainConfig, epoch: int, device: torch.device) -> Batch:
    pixels = batch.pixels
    if config.augment == "crop-flip":
        pixels = crop_flip(pixels, batch.ids, seed=config.seed, epoch=epoch)
    return Batch(pixels.to(device, non_blocking=True), batch.labels.to(device, non_blocking=True), batch.ids)


def _set_lr(optimizer: torch.optim.Optimizer, config: TrainConfig, step: int, total: int) -> None:
    factor = 0.5 * (1 + math.cos(math.pi * step / total)) if config.schedule == "cosine" else 1.0
    for group in optimizer.param_groups:
        group["lr"] = config.lr * factor


def _epoch_row(model: nn.Module, at: Progress, test_set: ImageSet, device: torch.device) -> dict[str, Any]:
    """train_* are over the batches as they were learned from, test_accuracy is after the epoch."""
    return {
        "epoch": at.epoch + 1,
        "loss": at.loss_sum / at.seen,
        "train_accuracy": at.correct / at.seen,
        "test_accuracy": accuracy(model, test_set, device=device),
        "lambda": lambdas(model),
        "seconds": round(at.seconds, 3),
    }


# ------------------------------------------------------------------------------------------------- stopping and resuming


def _save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, at: Progress) -> None:
    if not all(p.isfinite().all() for p in model.parameters()):
        raise Diverged(
            f"the weights stopped being numbers in epoch {at.epoch + 1}, step {at.step}: {what_blew_up(model)}"
        )
    groups = {"weights": model.state_dict()}
    if not at.complete:  # a finished run never needs the optimizer again
        groups["optimizer"] = {f"{name}/{key}": value for name, key, value in _optimizer_tensors(model, optimizer)}
    save_checkpoint(folder, groups, asdict(at), tag=f"{at.epoch}.{at.step}")


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str, Tensor]]:
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            yield name, key, value


def _resume(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    stored = read_progress(folder)
    if stored is None:
        return Progress()
    progress = Progress(**stored)
    load_weights(model, read_tensors(folder, "weights"), str(folder))
    if not progress.complete:
        by_name = dict(model.named_parameters())
        for path, value in read_tensors(folder, "optimizer").items():
            name, key = path.rsplit("/", 1)
            optimizer.state[by_name[name]][key] = value if key == "step" else value.to(by_name[name].device)
    return progress


def _about(model_config: ViTConfig, config: TrainConfig, train_set: ImageSet, test_set: ImageSet) -> dict[str, Any]:
    """run.json: all that is needed to say what this run is and to do it again."""
    return {
        "format": 1,
        "title": model_config.title,
        "model": to_plain(model_config),
        "training": to_plain(config),
        "data": {
            "name": train_set.name,
            "shape": list(train_set.shape),
            "class_names": list(train_set.class_names),
            "train": {"images": len(train_set), "fingerprint": train_set.fingerprint},
            "test": {"images": len(test_set), "fingerprint": test_set.fingerprint},
        },
        "environment": runtime.environment(),
    }


def _check_claim(folder: Path, about: dict[str, Any]) -> None:
    """The folder is free, or it already belongs to this very run."""
    path = folder / "run.json"
    if not path.exists():
        if folder.exists() and any(p for p in folder.iterdir() if not p.name.startswith(".")):
            raise InputError(f"{folder} is not empty and not a run: choose another --out")
        return
    before = files.read_json(path)
    for part in ("model", "training", "data"):
        if before.get(part) != about[part]:
            key, old, new = _first_difference(before.get(part) or {}, about[part])
            raise InputError(
                f"{folder} holds another run ({part}.{key} is {old!r} there, {new!r} here): choose another --out"
            )
    if before["environment"] != about["environment"]:
        key, old, new = _first_difference(before["environment"], about["environment"])
        console.say(
            f"warning: {folder} was begun with {key} {old}, now it is {new}: the last bits of the weights may differ"
        )


def _first_difference(old: dict[str, Any], new: dict[str, Any]) -> tuple[str, Any, Any]:
    key = next(k for k in [*old, *new] if old.get(k) != new.get(k))
    return key, old.get(key), new.get(key)


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
