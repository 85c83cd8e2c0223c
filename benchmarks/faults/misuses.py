"""The interface called wrongly: it works, or is refused in one sentence (the table is that of tests/test_misuse.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from antiphase.config import InputError
from benchmarks.faults import child
from benchmarks.faults.scene import Scene
from benchmarks.faults.trial import Outcome, Trial, crashed

REFUSED = 2


def trials() -> Iterator[Trial]:
    from tests.test_misuse import REFUSED as REFUSALS
    from tests.test_misuse import WORKS

    for name, call in WORKS.items():
        yield Trial("misuses", name, _player(call, expected=0))
    for name, (call, _) in REFUSALS.items():
        yield Trial("misuses", name, _player(call, expected=REFUSED))


def _player(call, *, expected: int):
    def program() -> int:
        try:
            call()
        except InputError as error:
            return REFUSED if "\n" not in str(error) else child.CRASHED
        return 0

    def play(_scene: Scene, folder: Path) -> Outcome:
        folder.mkdir(parents=True)
        ended = child.call(program, folder)
        if ended.crash is not None:
            return crashed(ended.crash)
        if ended.code == expected:
            return Outcome("fine", "refused" if expected else "works")
        return Outcome("silent", "was taken") if expected else Outcome("lost", "was refused")

    return play
