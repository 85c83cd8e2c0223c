"""The ledger: a folder of finished cells, one entry each, that only ever grows.

rows/KEY.json     a finished cell: config, provenance, and its answer: of a trained model in the row itself, else by where it is
                  kept, in the folder of the run that was asked, and the digest it had
failed/KEY.json   the error of a cell that failed; the next run tries it again, and success removes it
locks/KEY.lock    held by the process that works on the cell, and released with it, however it ends
runs/KEY/         the trained models, with the answers to what was asked of them
data.json         the digest of every data set the rows were computed from
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

from antiphase import files
from antiphase.config import InputError, to_plain
from antiphase.files import Damaged, room
from antiphase.locks import locked
from antiphase.models.run_json import check_entries
from antiphase.paper.ledger_index import Index, Stamp, Summary, answer_stamp, changed, stamp
from antiphase.paper.questions import Cell
from antiphase.store import NONE, Content, Digests, Entry, Store, agrees, held, lies_at, read_entry

Row = dict[str, Any]
IN_ROW = (
    "model",
    "run",
    "data",
    "seed",
    "seconds",
    "environment",
    "prompts",
)  # of an answer: in the row's config already

ENTRIES: dict[str, Any] = {  # of a row, as run_json lists those of a run
    "key": str,
    "title": str,
    "config": dict[str, Any],
    "answer": dict[str, Any],
    "kept": dict[str, Any],
    "kept.path": str,
    "kept.digest": str,
    "provenance": dict[str, Any],
    "provenance.group": str,
    "provenance.operations": float,
    "provenance.seconds": float,
    "provenance.processor_seconds": float,
    "provenance.environment": dict[str, Any],
}


class Rows(Store):
    """The entries of finished cells; one that is whole but no row is damaged too."""

    def get(self, key: str, digests: Digests = NONE) -> Entry | None:
        entry = super().get(key, digests)
        return None if entry is None else _checked(entry)

    def entries(self) -> Iterator[Entry | Damaged]:
        for entry in super().entries():
            try:
                yield entry if isinstance(entry, Damaged) else _checked(entry)
            except Damaged as damage:
                yield damage


def _checked(entry: Entry) -> Entry:
    row = entry.content
    try:
        check_entries(row, ENTRIES, entry.path)
    except InputError as refusal:
        raise Damaged(f"{refusal}: move it away and run again") from None
    elsewhere = {"path", "digest"} <= row.get("kept", {}).keys() and {"key", "title"} <= row.keys()
    if "config" not in row or not ("answer" in row or elsewhere):
        raise Damaged(f"{entry.path} is no row of a ledger: move it away and run again")
    return entry


class Ledger:
    """Reads and writes; a row that exists is never written again."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.rows = Rows(self.folder / "rows")
        self.failures = Store(self.folder / "failed", bare=True)

    @cached_property
    def digests(self) -> dict[str, str]:
        """Of what was checked before, by the text that it was read from (store.read_entry)."""
        return Index(self.folder).digests()

    def run_folder(self, key: str) -> Path:
        return self.folder / "runs" / key

    def has(self, cell: Cell) -> bool:
        return cell.key in self.rows

    def row(self, cell: Cell) -> Row | None:
        """The row of a cell, None if there is none. One that is not whole, or of another config, is refused by name."""
        entry = self.rows.get(cell.key, self.digests)
        if entry is None:
            return None
        if not agrees(entry.content["config"], to_plain(cell)):
            raise Damaged(f"{entry.path} was made when {cell.kind} had other defaults: move it away and run again")
        return entry.content

    def answer(self, row: Row) -> Content:
        """What came out: from the row itself, or from where it is kept, if that is still as it was."""
        if "answer" in row:
            return dict(row["answer"])
        return {name: value for name, value in self._kept(row).content.items() if name not in IN_ROW}

    def _kept(self, row: Row) -> Entry:
        """The entry that a row refers to, if it is still as it was."""
        kept = row["kept"]
        path = self.folder / kept["path"]  # an absolute one stays as it is
        remedy = f"move {self.rows.path(row['key'])} away and run again"
        if not lies_at(path).exists():
            raise Damaged(f"{path} is gone, though the row of {row['title']} refers to it: {remedy}")
        entry = read_entry(path, self.digests, bare=True)
        if entry.digest != kept["digest"]:
            raise Damaged(f"{path} is not the answer that the row of {row['title']} refers to: {remedy}")
        return entry

    def reference(self, entry: Entry) -> Row:
        """Where an answer is kept: below the ledger as a relative path, so that a ledger can be moved."""
        path = entry.path.resolve()
        inside = path.is_relative_to(self.folder.resolve())
        shown = os.path.relpath(path, self.folder.resolve()) if inside else str(path)
        return {"path": shown, "digest": entry.digest}

    def readable(self) -> Iterator[Row]:
        """Every row that is whole, with its answer; `damaged` names the others."""
        for entry in self.rows.entries():
            if not isinstance(entry, Damaged):
                with contextlib.suppress(Damaged):
                    yield entry.content | {"answer": self.answer(entry.content)}

    def summaries(self) -> list[Summary]:
        """Every row in a few words, damaged ones too; only those that changed since the last time are read."""
        index, names = Index(self.folder), self.rows.names()
        known = index.known()
        checked: dict[str, str] = {}
        fresh = {name: self._summary(self.rows.folder / name, checked) for name in changed(names, known, self.folder)}
        if fresh:
            index.add(((name, *entry) for name, entry in fresh.items()), checked)
            self.digests.update(checked)
        return [(fresh.get(name) or known[name])[-1] for name in names]

    def _summary(self, path: Path, checked: dict[str, str]) -> tuple[Stamp, Stamp, Summary]:
        """Adds to `checked` the digest of each text that was found as it was written."""
        at = stamp(path)
        try:
            entry = self.rows.get(path.stem, self.digests)
        except Damaged as damage:
            return at, (0, 0), Summary(path.stem, path.stem, None, {}, None, str(damage))
        if entry is None:
            return at, (0, 0), Summary(path.stem, path.stem, None, {}, None, f"{path} was moved away just now")
        row = entry.content
        kept = row["kept"]["path"] if "kept" in row else None
        answered, wrong = (0, 0) if kept is None else answer_stamp(self.folder, kept), None
        try:
            checked |= {one.text: one.digest for one in ([entry] if kept is None else [entry, self._kept(row)])}
        except Damaged as damage:
            wrong = str(damage)
        about = (row.get("title", path.stem), row.get("scale"), row.get("provenance", {}))
        return at, answered, Summary(path.stem, *about, kept, wrong)

    def provenances(self) -> Iterator[Row]:
        """How and at what cost each finished cell was computed."""
        return (summary.provenance for summary in self.summaries() if summary.provenance)

    def damaged(self) -> list[str]:
        """What is wrong with each row that cannot be read."""
        return [summary.damage for summary in self.summaries() if summary.damage is not None]

    def keep(self, cell: Cell, row: Row) -> None:
        """File a finished cell, whole or not at all; what it failed with before is forgotten."""
        self.rows.put(cell.key, row)
        self.failures.path(cell.key).unlink(missing_ok=True)

    def fail(self, cell: Cell, record: Row) -> None:
        self.failures.put(cell.key, record)

    def failure(self, cell: Cell) -> Row | None:
        try:
            entry = self.failures.get(cell.key)
        except Damaged as damage:
            return {"error": str(damage)}
        return None if entry is None else entry.content

    def held(self, cell: Cell) -> AbstractContextManager[bool]:
        """True inside if this process alone may work on the cell; False if another one does."""
        return held(self.folder / "locks", cell.key)

    def check_data(self, name: str, split: str, content: str) -> None:
        """Every row of a ledger is about the same copy of a data set."""
        path, entry = self.folder / "data.json", f"{name}/{split}"
        with room(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder / ".data.lock"):
                known = files.read_json(path) if path.exists() else {}
                if not isinstance(known, dict):
                    raise InputError(f"{path} is no list of data sets: restore it, or choose another --ledger")
                if entry not in known:
                    files.write_json(path, {**known, entry: content})
        if known.get(entry, content) != content:
            raise InputError(
                f"the {split} split of {name} is not the one that {self.folder} was filled from: choose another --ledger"
            )


def is_ledger(folder: Path) -> bool:
    return (folder / "rows").is_dir() or (folder / "data.json").is_file()


def require_ledger(folder: Path) -> None:
    """Refuse a folder that is not there, and one with other files; an empty one is a ledger without cells."""
    if not folder.exists():
        raise InputError(f"there is no folder {folder}: name a ledger with --ledger (antiphase study run makes one)")
    begun = is_ledger(folder) or any((folder / part).is_dir() for part in ("failed", "locks"))
    if not begun and any(folder.iterdir()):
        raise InputError(
            f"{folder} is no ledger, since it has files but no rows of studies: name another with --ledger"
        )
