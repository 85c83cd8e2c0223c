"""A trial: one thing that goes wrong, and whether anything was lost, silent, ugly or slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.faults.scene import Scene

Verdict = Literal["fine", "lost", "silent", "traceback", "hang", "debris"]


@dataclass(frozen=True)
class Outcome:
    verdict: Verdict
    note: str = ""  # what happened, in a few words
    faults: int = 1  # how many times something went wrong: a trial may kill a command several times
    seconds: float = 0.0  # that the whole trial took


@dataclass(frozen=True)
class Trial:
    kind: str  # kills, full disks, ...
    name: str
    play: Callable[[Scene, Path], Outcome]  # in a folder of its own


def crashed(why: str, faults: int = 1) -> Outcome:
    return Outcome("hang" if why.startswith("no end") else "traceback", why, faults)
