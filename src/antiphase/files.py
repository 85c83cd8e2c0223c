"""Files that are whole, as they were written, or absent: atomic writes, digests, JSON and JSON lines. No torch."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from antiphase import console, locks
from antiphase.config import InputError, has_surrogates, parse_json, read_text, shown
from antiphase.locks import locked

FULL = (errno.ENOSPC, errno.EDQUOT)
ABANDONED = 24 * 3600  # seconds after which a half-written file is taken for debris where locks are not honoured


class Damaged(InputError):
    """A file that is not as it was written."""


class DiskFull(InputError):
    """Nothing more can be written; what was written is whole."""


# ------------------------------------------------------------------------------------------------- whole or absent


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Call `write(temporary)` and move the result to `path` in one step; a crash leaves the old file or the new one.

    The temporary file has a hidden folder of its own, so that what a library leaves beside it goes with it.
    """
    with room(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep_once(path.parent)
        workplace, lock = _workplace(path)
        try:
            temporary = workplace / path.name
            write(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
        finally:
            shutil.rmtree(workplace, ignore_errors=True)
            os.close(lock)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _workplace(path: Path) -> tuple[Path, int]:
    """A new hidden folder beside `path`, locked while this process lives, by which `sweep` knows that it is in use."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".partial"))
        lock = os.open(folder, os.O_RDONLY)
        if _locked(lock) is not False and folder.exists():
            return folder, lock
        os.close(lock)  # another process took it for debris in between


def _locked(handle: int) -> bool | None:
    """Whether the lock is ours now; None where the file system has no locks, or they say nothing of other machines."""
    if locks.kind() == "lease":
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def sweep(folder: Path) -> None:
    """Remove what killed processes left half-written; what a living one is writing stays."""
    for partial in folder.glob(".*.partial"):
        with contextlib.suppress(OSError):  # another process swept it away, or nothing can be removed here
            handle = os.open(partial, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for a writer
            try:
                locked, age = _locked(handle), time.time() - partial.stat().st_mtime
                if locked or (locked is None and age > ABANDONED):
                    shutil.rmtree(partial) if partial.is_dir() else partial.unlink()
            finally:
                os.close(handle)


@lru_cache(maxsize=10_000)
def sweep_once(folder: Path) -> None:
    """Before this process reads or writes there for the first time."""
    sweep(folder)


@contextmanager
def room(path: Path) -> Iterator[None]:
    """A disk that fills up while `path` is written is named, with what is free on it."""
    try:
        yield
    except Exception as error:
        if not is_full(error):
            raise
        raise DiskFull(
            f"{path} could not be written: the disk of {path.parent} is full ({_free(path)} free); what was written before is "
            "whole: free some space and run again"
        ) from None


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk or quota is full; safetensors says it in words."""
    if isinstance(error, OSError):
        return error.errno in FULL
    return type(error).__name__ == "SafetensorError" and ("os error 28" in str(error) or "code: 28" in str(error))


def _free(path: Path) -> str:
    there = next((part for part in path.absolute().parents if part.is_dir()), Path("/"))
    return f"{shutil.disk_usage(there).free / 1e6:.1f} MB"


# ------------------------------------------------------------------------------------------------- folders


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
        with locked(folder / ".lock", timeout=0) as mine:
            if not mine:
                raise InputError(f"another process is at work in {folder}: wait for it, or choose another --out")
            try:
                yield
            except BaseException:
                if whole:
                    _remove({p for p in folder.iterdir() if p.name not in before | {".lock"}})
                raise
    finally:
        if made and {p.name for p in folder.iterdir()} <= {".lock"}:
            shutil.rmtree(folder)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------- texts and digests


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    write_whole(path, write)


def write_json(path: Path, value: Any, *, sealed: bool = True) -> None:
    """A mapping is sealed: its digest is the last entry, and `read_json` refuses it if anything was changed. What is written for
    other programs alone is not."""
    write_text(path, json.dumps(seal(value) if sealed else value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path, *keys: str) -> Any:
    """The value in the file, as it was written; with `keys`, a mapping that has them all."""
    if not path.exists():
        raise InputError(f"{path} does not exist")
    value = _unsealed(parse_json(read_text(path), path), path)
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if missing:
        raise InputError(f"{path} has no entry {missing[0]!r}: it was altered or is something else")
    return value


def read_kept(path: Path, *keys: str) -> Any:
    """The same of a file that can be made again: None if it is missing, or damaged, which is said."""
    sweep_once(path.parent)
    try:
        return read_json(path, *keys) if path.exists() else None
    except InputError as damage:
        console.say(f"{damage}; it is made again now")
        return None


def write_lines(path: Path, rows: Iterable[Any], *, sealed: bool = True) -> None:
    """JSON lines, each sealed in the same way."""
    write_text(path, "".join(json.dumps(seal(row) if sealed else row, allow_nan=False) + "\n" for row in rows))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file, each a mapping as it was written; none if there is no file."""
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        where = f"{path}, line {number},"
        row = _unsealed(parse_json(line, where), where)
        if not isinstance(row, dict):
            raise InputError(f"{where} is {shown(row)}, not a mapping: it was altered or is something else")
        rows.append(row)
    return rows


def seal(value: Any) -> Any:
    """A mapping with its digest as the last entry; anything else as it is."""
    return {**value, "digest": digest_of(value)} if isinstance(value, dict) else value


def unseal(value: Any) -> Any:
    """What was sealed; a ValueError if it is not as it was. What earlier versions wrote has no digest and is taken as it is."""
    if not isinstance(value, dict) or "digest" not in value:
        return value
    content = {key: entry for key, entry in value.items() if key != "digest"}
    if digest_of(content) != value["digest"]:
        raise ValueError("its digest does not match")
    return content


def _unsealed(value: Any, where: Path | str) -> Any:
    try:
        return unseal(value)
    except ValueError as damage:
        raise Damaged(f"{where} is damaged or was altered ({damage}); restore it, or delete it and run again") from None


def digest_of(content: Any) -> str:
    """SHA-256 of a value as canonical JSON."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


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
        raise InputError(_why_no_run(folder))
    return folder


def _why_no_run(folder: Path) -> str:
    """What is there in place of a run, and which runs may have been meant."""
    if not folder.exists():
        near = get_close_matches(folder.name, [run.name for run in _runs_in(folder.parent)], n=1)
        return f"there is no folder {folder}" + (f": did you mean {folder.parent / near[0]}?" if near else "")
    if inside := _runs_in(folder):
        more = f" and {len(inside) - 5} more" if len(inside) > 5 else ""
        return f"{folder} is not a run but holds runs: name one of them ({', '.join(map(str, inside[:5]))}{more})"
    empty = folder.is_dir() and not any(folder.iterdir())
    return f"{folder} is not a run: it has no run.json" + f" (make one with antiphase train --out {folder})" * empty


def _runs_in(folder: Path) -> list[Path]:
    try:
        return sorted(path.parent for path in folder.glob("*/run.json"))
    except OSError:  # a folder that may not be read
        return []


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
