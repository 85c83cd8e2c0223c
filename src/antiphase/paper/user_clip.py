"""A CLIP of the user's own, named on the command line: a run, or a checkpoint that is converted into the ledger first."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock

from antiphase import files
from antiphase.config import InputError, from_plain
from antiphase.data.catalog import CATALOG, entry_of
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.run_json import read_about, read_checkpoint
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import UserClip

UserPair = tuple[tuple[UserClip, UserClip], dict[str, Path]]  # both models and, by their weights, their folders


def pair_of(clip: Path | None, diffclip: Path | None, ledger: Ledger) -> UserPair | None:
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


def data_of(pair: UserPair, named: str | None) -> str | None:
    """The data set that a pair is looked at on: the one named, else the one whose classes both have learned; None: none."""
    if named is not None:
        return named
    learned = {_learned(folder) for folder in pair[1].values()}
    return learned.pop() if len(learned) == 1 else None


def _learned(folder: Path) -> str | None:
    """The data set with classes that a run was trained on, where it says so and the data set can be named here."""
    data = read_about(folder)["data"]
    origin = data.get("origin") or data.get("name")
    usable = data.get("class_names") and origin is not None and (origin in CATALOG or Path(origin).is_dir())
    return str(origin) if usable else None


def check_images(pair: UserPair, data: Iterable[str]) -> None:
    """Refuse, before anything is computed, images that cannot be brought to the size that a pair takes."""
    for model in pair[0]:
        side, folder = model.grid[0], pair[1][model.weights]
        for name in data:
            entry = entry_of(name)
            if not entry.resizable and (side != entry.size or _learned(folder) != name):
                raise InputError(
                    f"{folder} takes colour images of {side} x {side}, and those of {name} are {entry.size} x {entry.size} "
                    "and cannot be brought to that: name other images with --data"
                )


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
    about = read_about(folder)
    if "vision" not in about["model"]:
        raise InputError(f"{folder} is no CLIP: --clip and --diffclip take models with a vision and a text tower")
    tensors = read_checkpoint(folder)["tensors"]
    model = from_plain(CLIPConfig, about["model"], str(folder / "run.json"))
    if "weights" not in tensors:
        raise InputError(f"{folder / 'checkpoint.json'} lists no 'weights' tensors")
    return UserClip(model=model, weights=tensors["weights"]["sha256"])
