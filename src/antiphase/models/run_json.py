"""The JSON files of a run's folder, read and checked in one place: run.json, checkpoint.json, log.jsonl. No torch.

A folder may come from anybody. What is used of these files has the type that it was written with, or the file is refused; entries
that are not listed here are never looked into.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from antiphase import files
from antiphase.config import InputError, fits, shown, words

Mapping = dict[str, Any]
DEEPEST = 40  # levels of lists and mappings

ABOUT: dict[str, Any] = {  # of run.json
    "title": str,
    "scale": str | None,
    "model": Mapping,
    "model.vision": Mapping,
    "model.vision.image": int,
    "training": Mapping,
    "training.seed": int,
    "data": Mapping,
    "data.name": str,
    "data.origin": str,
    "data.shape": tuple[int, int, int],
    "data.class_names": list[str],
    "data.templates": list[str],
    "data.train": Mapping,
    "data.train.images": int,
    "data.train.skipped": dict[str, int],
    "data.test": Mapping,
    "data.test.images": int,
    "environment": Mapping,
    "source": Mapping,
    "source.from": Mapping,
    "source.sha256": str,
    "source.side": int,
    "assumed": list[str],
    "kept_epoch": int,
}
CHECKPOINT: dict[str, Any] = {
    "run": str,
    "log": str,
    "tensors": dict[str, Mapping],
    "progress": Mapping,
    "progress.epoch": int,
    "progress.step": int,
    "progress.loss_sum": float,
    "progress.correct": int,
    "progress.seen": int,
    "progress.seconds": float,
    "progress.complete": bool,
}
ROW: dict[str, Any] = {  # of log.jsonl
    "epoch": int,
    "loss": float,
    "seconds": float,
    "train_accuracy": float,
    "test_accuracy": float,
    "zero_shot_accuracy": float | None,
    "fit_accuracy": float,
    "lambda": dict[str, float],
}


def read_about(folder: Path) -> dict[str, Any]:
    """run.json: model, training, data, seed, versions; a converted run has no training and no data."""
    path = files.require_run(folder) / "run.json"
    files.sweep_once(folder)
    about: dict[str, Any] = files.read_json(path, "model", "training", "data", "environment")
    check_about(about, path)
    return about


def check_about(about: dict[str, Any], path: Path) -> None:
    """Refuse a run.json whose entries are not what they are used as; a config file has some of them, or none."""
    check_entries(about, ABOUT, path)
    data, model, needed = about.get("data"), about.get("model", {}), []
    if data:
        needed = ["data.origin", "data.train.images"]
    if data is not None and model and model.get("kind") != "ForeignConfig" and "vision" not in model:  # a ViT
        needed += ["data.origin", "data.train.images"]
        needed += ["data.name", "data.shape", "data.class_names", "data.test.images"]
    if model.get("kind") == "ForeignConfig":
        needed += ["title", "source.from", "source.sha256", "source.side"]
    if "vision" in model:
        needed += ["model.vision.image"]
    for name in needed:
        if _entry(about, name) is _ABSENT:
            raise InputError(f"{path} has no entry {name!r}: it was altered or is something else")
    if data and "shape" in data and min(data["shape"]) < 1:
        raise InputError(f"{path}: data.shape is {shown(data['shape'])}, and images have at least one pixel")


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """checkpoint.json, refused if the run.json beside it is not the one it was written for."""
    path = folder / "checkpoint.json"
    if not path.exists():
        raise InputError(f"{folder} has no checkpoint: train it first (antiphase train --out {folder})")
    checkpoint: dict[str, Any] = files.read_json(path, "run", "tensors", "progress")
    check_entries(checkpoint, CHECKPOINT, path)
    for group, entry in checkpoint["tensors"].items():
        for name in ("file", "sha256"):
            if not isinstance(entry.get(name), str):
                raise InputError(f"{path} has no entry 'tensors.{shown(group)[1:-1]}.{name}' with a name in it")
        if Path(entry["file"]).name != entry["file"] or "\0" in entry["file"]:
            raise InputError(f"{path} names {shown(entry['file'])}: weights lie beside it, in the folder of the run")
    if files.sha256(files.require_run(folder) / "run.json") != checkpoint["run"]:
        raise InputError(
            f"{folder / 'run.json'} was altered since the checkpoint was written; restore it or train again"
        )
    return checkpoint


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The rows of log.jsonl, one per epoch; none if there is no file."""
    path = folder / "log.jsonl"
    rows = files.read_lines(path)
    for number, row in enumerate(rows, start=1):
        check_entries(row, ROW, f"{path}, line {number}")
        if "epoch" not in row:
            raise InputError(f"{path}, line {number}, has no entry 'epoch': it was altered or is something else")
        if row["epoch"] != number:
            raise InputError(
                f"{path}, line {number}, is about epoch {shown(row['epoch'])}: lines are missing or out of place"
            )
    checkpoint = folder / "checkpoint.json"
    if rows and checkpoint.exists():
        about = files.read_json(checkpoint)
        if "log" in about and files.sha256(path) != about["log"]:
            raise InputError(f"{path} was altered since the checkpoint was written; restore it or train again")
    return rows


def check_entries(value: dict[str, Any], entries: dict[str, Any], where: object) -> None:
    """Refuse a mapping in which a listed entry, where it is there, has another type than the one that is listed."""
    if _depth(value) > DEEPEST:
        raise InputError(f"{where} is nested more than {DEEPEST} levels deep: it is nothing that antiphase wrote")
    for name, kind in entries.items():
        inner = _entry(value, name)
        if inner is not _ABSENT and not fits(inner, kind, plain=True):
            raise InputError(f"{where}: {name} is {shown(inner)}, which is not {words(kind)}")


_ABSENT = object()


def _entry(value: Any, name: str) -> Any:
    """What lies in nested mappings under a name such as data.train.images."""
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def _depth(value: Any) -> int:
    """Levels of lists and mappings, found without recursion."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        parts = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)]
        level, depth = [part for inner in parts for part in inner if isinstance(part, dict | list)], depth + 1
    return depth
