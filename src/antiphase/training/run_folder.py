"""The folder of a training run: what it writes into run.json, its checkpoints, and how it resumes exactly where it stopped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from antiphase import console, files, runtime
from antiphase.config import InputError, from_plain, to_plain
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.config import ViTConfig
from antiphase.models.run import Run, kept_epoch, load_weights, read_progress, read_tensors, save_checkpoint
from antiphase.models.run_json import read_about
from antiphase.store import agrees
from antiphase.training.config import ContrastiveConfig, TrainConfig


@dataclass
class Progress:
    """Where a run stands: `step` batches of `epoch` are done, with these sums over them."""

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    correct: int = 0
    seen: int = 0  # examples
    seconds: float = 0.0  # spent on this epoch
    complete: bool = False

    def count(self, loss_sum: float, correct: int, seen: int, seconds: float) -> None:
        """One more batch is done."""
        self.step += 1
        self.loss_sum, self.correct = self.loss_sum + loss_sum, self.correct + correct
        self.seen, self.seconds = self.seen + seen, self.seconds + seconds

    def begin(self, epoch: int, *, complete: bool) -> None:
        """A new epoch, with no batch done yet."""
        self.__dict__.update(asdict(Progress(epoch=epoch, complete=complete)))


def describe(
    model: ViTConfig | CLIPConfig, training: TrainConfig | ContrastiveConfig, data: dict[str, Any], scale: str | None
) -> dict[str, Any]:
    """The content of run.json: all that is needed to say what this run is and to do it again."""
    return {
        "format": 1,
        "title": model.title,
        "scale": scale,
        "model": to_plain(model),
        "training": to_plain(training),
        "data": data,
        "environment": runtime.environment(),
    }


def load_weights_of(model: nn.Module, config: ViTConfig, folder: Path) -> None:
    """Give the model the weights of a finished run of the same architecture, for fine-tuning."""
    other = Run(folder)
    if other.config != config:
        raise InputError(
            f"{folder} has another architecture: fine-tuning takes the model of its own run (--config {folder}/run.json)"
        )
    load_weights(model, other.classifier().state_dict(), str(folder))


def use_threads_of_run(folder: Path, model: ViTConfig | CLIPConfig, training: TrainConfig | ContrastiveConfig) -> None:
    """Where this run was begun here, go on with as many threads: another number would change the last bits of its weights."""
    if not (folder / "run.json").exists():
        return
    about = read_about(folder)
    same = agrees(about["model"], to_plain(model)) and agrees(about["training"], to_plain(training))
    if same or not _has_nothing_but_run_json(folder, about):
        runtime.use_threads_of(about["environment"])


def check_folder(folder: Path, description: dict[str, Any]) -> bool:
    """Refuse a folder that is neither empty nor the beginning of this very run; returns whether run.json is to be written.

    Another run that never wrote a checkpoint or a row of its log, as one that diverged in its first epoch, has nothing to lose:
    its folder is taken over.
    """
    path = folder / "run.json"
    if not path.exists():
        if folder.exists() and any(p for p in folder.iterdir() if not p.name.startswith(".")):
            raise InputError(f"{folder} is not empty and not a run: choose another --out")
        return True
    before = read_about(folder)
    for part in ("model", "training", "data"):
        if not agrees(
            before.get(part) or {}, description[part]
        ):  # a field that an older version did not have is at its default
            if _has_nothing_but_run_json(folder, before):
                return True
            key, old, new = _first_difference(before.get(part) or {}, description[part])
            raise InputError(
                f"{folder} holds another run ({part}.{key} is {old!r} there, {new!r} here): choose another --out"
            )
    if before["environment"] != description["environment"]:
        key, old, new = _first_difference(before["environment"], description["environment"])
        console.say(f"warning: {folder} was begun with {key} {old}, now {new}: the last bits of the weights may differ")
    return False


def _has_nothing_but_run_json(folder: Path, about: dict[str, Any]) -> bool:
    """Whether a training was begun here of which nothing came: no checkpoint, no log, no answer. A model that was made elsewhere
    has no training and is whole without a checkpoint."""
    return bool(about["training"]) and {p.name for p in folder.iterdir() if not p.name.startswith(".")} == {"run.json"}


def _first_difference(old: dict[str, Any], new: dict[str, Any]) -> tuple[str, Any, Any]:
    """A key that both have comes before one that an older version did not write."""
    shared = [k for k in old if k in new]
    key = next(k for k in [*shared, *old, *new] if not agrees(old.get(k), new.get(k)))
    return key, old.get(key), new.get(key)


def keep_epoch(folder: Path, model: nn.Module, log: list[dict[str, Any]]) -> None:
    """The weights after the last epoch of the log, as a finished run of its own below the run's folder."""
    epoch = log[-1]["epoch"]
    own = kept_epoch(folder, epoch)
    files.write_json(own / "run.json", {**files.read_json(folder / "run.json"), "kept_epoch": epoch})
    files.write_lines(own / "log.jsonl", log)
    save_checkpoint(
        own, {"weights": model.state_dict()}, asdict(Progress(epoch=epoch, complete=True)), tag=f"{epoch}.0"
    )


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    """A checkpoint from which `resume` goes on exactly."""
    groups = {"weights": model.state_dict()}
    if not progress.complete:  # a finished run never needs the optimizer again
        groups["optimizer"] = {f"{name}/{key}": value for name, key, value in _optimizer_state(model, optimizer)}
    save_checkpoint(folder, groups, asdict(progress), tag=f"{progress.epoch}.{progress.step}")


def _optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str, Tensor]]:
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            yield name, key, value


def resume(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Set model and optimizer to the last checkpoint and say where it stands; without a checkpoint they stay as they are."""
    stored = read_progress(folder)
    if stored is None:
        return Progress()
    progress = from_plain(Progress, stored, str(folder / "checkpoint.json: progress"))
    load_weights(model, read_tensors(folder, "weights"), str(folder))
    if not progress.complete:
        by_name = dict(model.named_parameters())
        for path, value in read_tensors(folder, "optimizer").items():
            name, key = path.rsplit("/", 1)
            optimizer.state[by_name[name]][key] = value.to(by_name[name].device)
    return progress
