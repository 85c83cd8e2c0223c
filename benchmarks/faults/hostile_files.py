"""Files made to break what reads them: each is refused in one line, and nothing is written (tests/hostile_files.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults import child
from benchmarks.faults.scene import Scene
from benchmarks.faults.trial import Outcome, Trial, crashed


def trials() -> Iterator[Trial]:
    from tests.hostile_files import CASES

    for name in CASES:
        yield Trial("hostile files", name, _player(name))


def _player(name: str):
    def play(_scene: Scene, folder: Path) -> Outcome:
        from tests.hostile_files import CASES

        folder.mkdir(parents=True)
        ended = child.run(lambda: CASES[name](folder), folder)
        if ended.crash is not None:
            return crashed(ended.crash)
        if ended.code != 2:
            return Outcome("silent", f"taken with exit code {ended.code}")
        if ended.refusal is None:  # making the file may have said something too
            return Outcome("traceback", f"not one line: {ended.err.strip()[-200:]}")
        return Outcome("lost", "something is left of it") if (folder / "out").exists() else Outcome("fine", "refused")

    return play
