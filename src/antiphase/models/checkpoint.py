"""Run folders: what a run is (run.json), what it has logged (log.jsonl) and where it stands (checkpoint.json + tensors).

checkpoint.json is the commit point. It names the tensor files with their digests and is replaced in one step, so a
process killed at any moment leaves either the old checkpoint or the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from antiphase import files
from antiphase.config import InputError, from_plain
from antiphase.models.config import ViTConfig
from antiphase.models.vit import build


def save_checkpoint(
    folder: Path, groups: Mapping[str, Mapping[str, Tensor]], progress: Mapping[str, Any], tag: str
) -> None:
    """Write every group of tensors to its own file, then point checkpoint.json at them, then remove the old files."""
    named = {}
    for group, tensors in groups.items():
        path = folder / f"{group}-{tag}.safetensors"
        whole = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
        files.write_whole(path, lambda temporary, whole=whole: save_file(whole, temporary))  # type: ignore[misc]
        named[group] = {"file": path.name, "sha256": files.sha256(path)}
    files.write_json(folder / "checkpoint.json", {"tensors": named, "progress": dict(progress)})
    current = {entry["file"] for entry in named.values()}
    for stale in folder.glob("*.safetensors"):
        if stale.name not in current:
            stale.unlink()


def read_progress(folder: Path) -> dict[str, Any] | None:
    """Where the run stands; None if it has no checkpoint yet."""
    path = folder / "checkpoint.json"
    if not path.exists():
        return None
    progress: dict[str, Any] = files.read_json(path)["progress"]
    return progress


def _entry(folder: Path, group: str) -> dict[str, str]:
    path = folder / "checkpoint.json"
    if not path.exists():
        raise InputError(f"{folder} has no checkpoint: train it first (antiphase train --out {folder})")
    entry: dict[str, str] | None = files.read_json(path)["tensors"].get(group)
    if entry is None:
        raise InputError(f"{path} lists no {group!r} tensors")
    return entry


def read_tensors(folder: Path, group: str) -> dict[str, Tensor]:
    """One group of the checkpoint, refused by name unless every byte is as it was written."""
    entry = _entry(folder, group)
    tensors = folder / entry["file"]
    if not tensors.is_file():
        raise InputError(f"{tensors} is missing, though checkpoint.json names it; restore it or train again")
    if files.sha256(tensors) != entry["sha256"]:
        raise InputError(
            f"{tensors} is damaged or was altered (its checksum does not match checkpoint.json); restore it or train again"
        )
    try:
        return load_file(tensors)
    except SafetensorError as error:
        raise InputError(f"{tensors} is not a safetensors file ({error})") from None


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(f"{where} does not fit the model in its run.json: {' '.join(str(error).split())}") from None


@dataclass(frozen=True)
class Run:
    """A trained model on disk, self-describing."""

    folder: Path

    @cached_property
    def about(self) -> dict[str, Any]:
        """run.json: model, training, data, seed, versions."""
        path = self.folder / "run.json"
        if not path.exists():
            raise InputError(
                f"{self.folder} is not a run: it has no run.json (make one with antiphase train --out {self.folder})"
            )
        about: dict[str, Any] = files.read_json(path)
        return about

    @cached_property
    def config(self) -> ViTConfig:
        return from_plain(ViTConfig, self.about["model"], where=str(self.folder / "run.json"))

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def log(self) -> list[dict[str, Any]]:
        """One record an epoch."""
        return files.read_lines(self.folder / "log.jsonl")

    @property
    def weights_digest(self) -> str:
        return _entry(self.folder, "weights")["sha256"]

    def classifier(self, device: torch.device | str = "cpu") -> nn.Module:
        """The trained model behind the seam, in eval mode."""
        tensors = read_tensors(self.folder, "weights")
        model = build(
            self.config, shape=tuple(self.about["data"]["shape"]), classes=len(self.about["data"]["class_names"])
        )
        load_weights(model, tensors, str(self.folder))
        return model.to(device).eval()
