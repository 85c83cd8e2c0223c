"""Files that are either whole or absent: atomic writes, checksums, JSON and JSON lines. No torch."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from antiphase.config import InputError
from antiphase.locks import locked


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Call `write(temporary)` and move the result to `path` in one step; a crash leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def sweep(folder: Path) -> None:
    """Remove what a killed process left half-written."""
    for partial in folder.glob(".*.partial"):
        partial.unlink(missing_ok=True)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder for this process alone; the lock goes with the process, however it ends.

    A folder that was made for nothing (what should have filled it was refused) is removed again.
    """
    require_folder(folder)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder / ".lock", timeout=0) as mine:
            if not mine:
                raise InputError(f"another process is at work in {folder}: wait for it, or choose another --out")
            yield
    finally:
        if made and {p.name for p in folder.iterdir()} <= {".lock"}:
            shutil.rmtree(folder)


def write_text(path: Path, text: str) -> None:
    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_whole(path, write)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path, *keys: str) -> Any:
    """The value in the file; with `keys`, a mapping that has them all."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not valid JSON ({error}); restore it or delete it and run again") from None
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if missing:
        raise InputError(f"{path} has no entry {missing[0]!r}: it was altered or is something else")
    return value


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    write_text(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))


def read_lines(path: Path) -> list[Any]:
    """The rows of a JSON-lines file; none if there is no file."""
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is damaged ({error}); restore it") from None


def require_run(folder: Path) -> Path:
    """Refuse a folder that is no run; needs no heavy import."""
    named_like_a_file = folder.suffix in (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".py")
    if folder.is_file() or named_like_a_file or ":" in str(folder) or (folder / "config.json").is_file():
        raise InputError(
            f"{folder} is not a run: a model of your own becomes one by antiphase audit, which says how it is named "
            "(antiphase audit --help)"
        )
    if not (folder / "run.json").is_file():
        raise InputError(f"{folder} is not a run: it has no run.json (make one with antiphase train --out {folder})")
    return folder


def require_folder(path: Path) -> Path:
    """Refuse an output folder that cannot be made, before the work that would fill it."""
    for part in (path, *path.parents):
        if part.is_dir():
            if not os.access(part, os.W_OK):
                raise InputError(f"--out {path} cannot be written: {part} is read-only")
            return path
        if part.exists():
            raise InputError(f"--out {path} cannot be a folder: {part} is a file")
    return path


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
