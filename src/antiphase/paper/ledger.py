"""The ledger: a folder of finished cells, one file each, that only ever grows.

rows/KEY.json     a finished cell: config, answer, provenance, and a digest of all that
failed/KEY.json   the error of a cell that failed; the next run tries it again, and success removes it
locks/KEY.lock    held by the process that works on the cell, and released with it, however it ends
runs/KEY/         the trained models
data.json         the digest of every data set the rows were computed from
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from antiphase import files
from antiphase.config import InputError, to_plain
from antiphase.paper.questions import Cell, agrees

Row = dict[str, Any]
FULL = (errno.ENOSPC, errno.EDQUOT)


class Damaged(InputError):
    """A row that is not as it was written."""


class DiskFull(InputError):
    """Nothing more can be written; what was written is whole."""


class Ledger:
    """Reads and writes; a row that exists is never written again."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def row_path(self, key: str) -> Path:
        return self.folder / "rows" / f"{key}.json"

    def failed_path(self, key: str) -> Path:
        return self.folder / "failed" / f"{key}.json"

    def run_folder(self, key: str) -> Path:
        return self.folder / "runs" / key

    def has(self, cell: Cell) -> bool:
        return self.row_path(cell.key).exists()

    def row(self, cell: Cell) -> Row | None:
        """The row of a cell, None if there is none. One that is not whole, or of another config, is refused by name."""
        if not self.has(cell):
            return None
        path = self.row_path(cell.key)
        row = self.read(path)
        if not agrees(row["config"], to_plain(cell)):
            raise Damaged(f"{path} was made when {cell.kind} had other defaults: move it away and run again")
        return row

    def read(self, path: Path) -> Row:
        remedy = "move it away and run again: only this cell is computed anew"
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            row: Row = stored["row"]
            whole = _digest(row) == stored["digest"]
        except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
            raise Damaged(f"{path} is damaged ({type(error).__name__}): {remedy}") from None
        if not whole:
            raise Damaged(f"{path} is damaged (its digest does not match): {remedy}")
        return row

    def readable(self) -> Iterator[Row]:
        """Every row that is whole; `damaged` names the others."""
        for path in sorted((self.folder / "rows").glob("*.json")):
            with suppress(Damaged):
                yield self.read(path)

    def damaged(self) -> list[str]:
        """What is wrong with each row that cannot be read."""
        found = []
        for path in sorted((self.folder / "rows").glob("*.json")):
            try:
                self.read(path)
            except Damaged as error:
                found.append(str(error))
        return found

    def keep(self, cell: Cell, row: Row) -> None:
        """File a finished cell, whole or not at all; what it failed with before is forgotten."""
        with self.room():
            text = json.dumps({"digest": _digest(row), "row": row}, allow_nan=False)
            files.write_text(self.row_path(cell.key), text + "\n")
            self.failed_path(cell.key).unlink(missing_ok=True)

    def fail(self, cell: Cell, record: Row) -> None:
        with self.room():
            files.write_json(self.failed_path(cell.key), record)

    def failure(self, cell: Cell) -> Row | None:
        path = self.failed_path(cell.key)
        try:
            return files.read_json(path, "error") if path.exists() else None
        except InputError as error:
            return {"error": str(error)}

    @contextmanager
    def room(self) -> Iterator[None]:
        """A disk that fills up inside is named."""
        try:
            yield
        except Exception as error:
            if not is_full(error):
                raise
            raise DiskFull(
                f"the disk of {self.folder} is full: every row written so far is whole; free some space and run again"
            ) from None

    @contextmanager
    def held(self, cell: Cell) -> Iterator[bool]:
        """True inside if this process alone may work on the cell; False if another one does."""
        with self.room():
            (self.folder / "locks").mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / "locks" / f"{cell.key}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                yield False
                return
        try:
            yield True
        finally:
            lock.release()

    def check_data(self, name: str, split: str, content: str) -> None:
        """Every row of a ledger is about the same copy of a data set."""
        path, entry = self.folder / "data.json", f"{name}/{split}"
        with self.room():
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / ".data.lock"):
                known = files.read_json(path) if path.exists() else {}
                if entry not in known:
                    files.write_json(path, {**known, entry: content})
        if known.get(entry, content) != content:
            raise InputError(
                f"the {split} split of {name} is not the one that {self.folder} was filled from: choose another --ledger"
            )


def is_ledger(folder: Path) -> bool:
    return (folder / "rows").is_dir() or (folder / "data.json").is_file()


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk or quota is full; safetensors says it in words."""
    if isinstance(error, OSError):
        return error.errno in FULL
    return type(error).__name__ == "SafetensorError" and ("os error 28" in str(error) or "code: 28" in str(error))


def _digest(row: Row) -> str:
    canonical = json.dumps(row, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
