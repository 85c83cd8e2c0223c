"""Files that are either whole or absent: atomic writes, checksums, JSON and JSON lines. No torch."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from antiphase.config import InputError


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
    """The folder for this process alone; the lock goes with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise InputError(f"another process is at work in {folder}: wait for it, or choose another --out") from None


def write_text(path: Path, text: str) -> None:
    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_whole(path, write)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not valid JSON ({error}); restore it or delete it and run again") from None


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    write_text(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))


def read_lines(path: Path) -> list[Any]:
    """The rows of a JSON-lines file; a last line cut short by a crash is dropped."""
    if not path.exists():
        return []
    *whole, last = path.read_text(encoding="utf-8").split("\n")
    rows = [json.loads(line) for line in whole if line]
    del last  # after the final newline there is nothing, or half a line
    return rows


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
