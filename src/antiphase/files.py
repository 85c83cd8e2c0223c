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

from filelock import FileLock, Timeout

from antiphase.config import InputError, has_surrogates, parse_json, read_text, shown


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
def held(folder: Path, *, whole: bool = False) -> Iterator[None]:
    """The folder for this process alone; the lock goes with the process, however it ends.

    A folder that was made for nothing (what should have filled it was refused) is removed again. `whole`: what was put into it
    before something failed is removed too.
    """
    require_folder(folder)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    before = {p.name for p in folder.iterdir()}
    try:
        with FileLock(folder / ".lock", timeout=0):
            try:
                yield
            except BaseException:
                if whole:
                    _remove({p for p in folder.iterdir() if p.name not in before | {".lock"}})
                raise
    except Timeout:
        raise InputError(f"another process is at work in {folder}: wait for it, or choose another --out") from None
    finally:
        if made and {p.name for p in folder.iterdir()} <= {".lock"}:
            shutil.rmtree(folder)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_whole(path, write)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path, *keys: str) -> Any:
    """The value in the file; with `keys`, a mapping that has them all."""
    if not path.exists():
        raise InputError(f"{path} does not exist")
    value = parse_json(read_text(path), path)
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if missing:
        raise InputError(f"{path} has no entry {missing[0]!r}: it was altered or is something else")
    return value


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    write_text(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file, each a mapping; none if there is no file."""
    if not path.exists():
        return []
    rows = [parse_json(line, f"{path}, line {i},") for i, line in enumerate(read_text(path).splitlines(), start=1)]
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise InputError(
                f"{path}, line {number}, is {shown(row)}, not a mapping: it was altered or is something else"
            )
    return rows


@contextmanager
def of_another_shape(path: Path) -> Iterator[None]:
    """Around the use of a file that others may have altered: what its content provokes is a refusal of that file."""
    try:
        yield
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, ArithmeticError, RecursionError) as error:
        what = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} is not as antiphase wrote it ({type(error).__name__}: {what}): restore it, or make it again"
        ) from error


def require_text(path: Path | str) -> None:
    """Refuse a name that is not UTF-8: it could not be written into run.json, nor shown."""
    if has_surrogates(str(path)):
        raise InputError(f"{shown(str(path))} is a name that is not UTF-8: rename that file or folder")


def require_run(folder: Path) -> Path:
    """Refuse a folder that is no run; needs no heavy import."""
    require_text(folder)
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
    require_text(path)
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
