"""An index of a ledger's rows, so that what is asked of all of them at once does not read all of them again.

It is a cache outside the ledger: what it knows of a file holds as long as the file has the same time and size, and a file
that it does not know is read and checked. Numbers never come from it: an answer is read from its own file. It has the digest
of every text that was checked once, so that of the same text, byte for byte, it need not be computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from antiphase.data.cache import cache_root

FORMAT = 2  # raised when a summary gains a field, or the index a table


@dataclass(frozen=True)
class Summary:
    """What lists and totals need to know of a finished cell."""

    key: str
    title: str
    scale: str | None
    provenance: dict[str, Any]  # what it cost, and what it was computed with and from
    kept: str | None  # where its answer lies; None: in the row
    damage: str | None = None  # what is wrong with the row or its answer


Stamp = tuple[int, int]  # time of the last change in nanoseconds, and size


def stamp(path: Path | str) -> Stamp:
    """(0, 0) of a file that is not there."""
    try:
        about = os.stat(path)  # noqa: PTH116  of many thousands a Path each would take a second
    except OSError:
        return (0, 0)
    return about.st_mtime_ns, about.st_size


class Index:
    """Summaries by the path of their row; they hold for the row and the answer as they were when they were read."""

    def __init__(self, folder: Path) -> None:
        name = hashlib.sha256(f"v{FORMAT}/{folder.resolve()}".encode()).hexdigest()[:24]
        self.folder, self.path = folder, cache_root() / f"ledger-{name}.sqlite"

    def known(self) -> dict[str, tuple[Stamp, Stamp, Summary]]:
        """By the name of the row's file: the stamps of row and answer, and the summary. Empty if there is no index, or no
        readable one."""
        try:
            with closing(self._open()) as table:
                return {name: _unpacked(packed) for name, packed in table.execute("SELECT name, packed FROM rows")}
        except (sqlite3.Error, OSError, ValueError, TypeError, KeyError):
            return {}

    def digests(self) -> dict[str, str]:
        """Of contents, by the SHA-256 of the texts of their entries. Empty if there is no index, or no readable one."""
        try:
            with closing(self._open()) as table:
                return dict(table.execute("SELECT text, digest FROM texts"))
        except (sqlite3.Error, OSError, ValueError):
            return {}

    def add(self, entries: Iterable[tuple[str, Stamp, Stamp, Summary]], digests: Mapping[str, str]) -> None:
        """A cache that cannot be written is done without."""
        packed = [(name, json.dumps([row, answer, asdict(summary)])) for name, row, answer, summary in entries]
        with contextlib.suppress(sqlite3.Error, OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._write(packed, digests)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):  # locked, or nowhere to write: the next time
                    raise
                self.path.unlink(missing_ok=True)  # damaged: begin again
                self._write(packed, digests)

    def _write(self, packed: list[tuple[str, str]], digests: Mapping[str, str]) -> None:
        with closing(self._open()) as table, table:
            table.execute("CREATE TABLE IF NOT EXISTS rows (name TEXT PRIMARY KEY, packed TEXT)")
            table.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", packed)
            table.execute("CREATE TABLE IF NOT EXISTS texts (text TEXT PRIMARY KEY, digest TEXT)")
            table.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?)", digests.items())

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=5)


def _unpacked(packed: str) -> tuple[Stamp, Stamp, Summary]:
    row, answer, summary = json.loads(packed)
    return (row[0], row[1]), (answer[0], answer[1]), Summary(**summary)


def changed(names: Iterable[str], known: dict[str, tuple[Stamp, Stamp, Summary]], folder: Path) -> Iterator[str]:
    """The files of rows that are not as the index knows them."""
    for name in names:
        row, answer, summary = known.get(name, (None, None, None))
        kept = None if summary is None else summary.kept
        if row != stamp(f"{folder}/rows/{name}") or (kept is not None and answer != answer_stamp(folder, kept)):
            yield name


def answer_stamp(folder: Path, kept: str) -> Stamp:
    """Of the file of an answer, below the ledger or elsewhere by an absolute path, compressed or not."""
    path = kept if kept.startswith("/") else f"{folder}/{kept}"
    plain = stamp(path)
    return plain if plain != (0, 0) else stamp(f"{path}.gz")
