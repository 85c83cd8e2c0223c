"""The interface called wrongly: it works, or is refused in one sentence (the table is that of tests/test_misuse.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests import test_misuse as table

from antiphase.config import InputError
from benchmarks.faults.scene import Scene
from benchmarks.faults.trial import Outcome, Trial


def trials() -> Iterator[Trial]:
    for name in table.WORKS:
        yield Trial("misuses", name, _player(table.WORKS[name], refused=False))
    for name, (call, _) in table.REFUSED.items():
        yield Trial("misuses", name, _player(call, refused=True))


def _player(call, *, refused: bool):
    def play(_scene: Scene, _folder: Path) -> Outcome:
        try:
            call()
        except InputError as error:
            one = "\n" not in str(error)
            return Outcome("fine" if refused and one else "traceback", "refused" if one else "more than one line")
        except Exception as error:
            return Outcome("traceback", f"{type(error).__name__}: {error}"[:200])
        return Outcome("silent", "was taken") if refused else Outcome("fine", "works")

    return play
