"""A CLIP of the user's own, named on the command line: a run, or a checkpoint that is converted into the ledger first."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock

from antiphase import files
from antiphase.config import InputError, from_plain
from antiphase.models.clip_config import CLIPConfig
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import UserClip


def pair_of(
    clip: Path | None, diffclip: Path | None, ledger: Ledger
) -> tuple[tuple[UserClip, UserClip], dict[str, Path]] | None:
    """Both models and, by their weights, the folders where they lie; None where none is named."""
    if clip is None and diffclip is None:
        return None
    if clip is None or diffclip is None:
        raise InputError("a CLIP is compared with a DiffCLIP: give both --clip and --diffclip, or neither")
    folders = [_run(path, ledger) for path in (clip, diffclip)]
    first, second = map(_user_clip, folders)
    if first.model.is_differential or not second.model.is_differential:
        raise InputError(f"--clip {clip} is a {first.model.title} and --diffclip {diffclip} a {second.model.title}")
    return (first, second), dict(zip((first.weights, second.weights), folders))


def _run(path: Path, ledger: Ledger) -> Path:
    if (path / "run.json").is_file():
        return path
    if not path.is_file():
        raise InputError(f"{path} is neither a run nor a checkpoint: make a run of it with antiphase convert")
    out = ledger.folder / "given" / files.sha256(path)[:12]
    out.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(out.with_suffix(".lock")):
        if not (out / "checkpoint.json").exists():
            from antiphase.models.convert import convert

            try:
                convert(str(path), out)
            except InputError as error:
                raise InputError(f"{error}; do so with antiphase convert, and name the run that it makes") from None
    return out


def _user_clip(folder: Path) -> UserClip:
    about = files.read_json(folder / "run.json", "model")
    if "vision" not in about["model"]:
        raise InputError(f"{folder} is no CLIP: --clip and --diffclip take models with a vision and a text tower")
    tensors = files.read_json(folder / "checkpoint.json", "tensors")["tensors"]
    model = from_plain(CLIPConfig, about["model"], str(folder / "run.json"))
    return UserClip(model=model, weights=tensors["weights"]["sha256"])
