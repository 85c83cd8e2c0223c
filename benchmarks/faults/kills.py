"""A command is killed, several times, and asked again: it ends with the result of one that was never killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults import child
from benchmarks.faults.scene import COMMANDS, Command, Scene, debris, result_of, same
from benchmarks.faults.trial import Outcome, Trial, crashed

KILLED = [
    "train",
    "train-kept",
    "train-clip",
    "attack",
    "attack-saved",
    "minimum-norm",
    "measure",
    "certify",
    "theory",
    "audit",
    "compare",
    "eval",
    "look",
    "convert",
    "study",
]
TRIALS, KILLS = 7, 3  # of each command; three kills each, then it is left to finish


def trials() -> Iterator[Trial]:
    for number in range(TRIALS):
        for name in KILLED:
            yield Trial("kills", f"{name} {number}", _player(COMMANDS[name], number))


def _player(command: Command, number: int):
    def play(scene: Scene, folder: Path) -> Outcome:
        draw, reference = random.Random(f"{command.name} {number}"), scene.reference(command)
        scene.lay(command, folder)
        kills, takes = 0, reference["seconds"]
        for _ in range(KILLS):
            if draw.random() < 0.5:
                ended = child.run([*command.argv], folder, kill_after=draw.uniform(0, takes), takes=takes)
            else:
                ended = child.run([*command.argv], folder, kill_at=draw.randint(1, 40), takes=takes)
            if ended.hung:
                return crashed(ended.crash or "", kills)
            kills += ended.code == -9
            if ended.code not in (0, -9):
                return crashed(ended.crash or f"exit code {ended.code}: {ended.err.strip()[-200:]}")
        ended = child.run([*command.argv], folder, takes=takes)
        if ended.hung:
            return crashed(ended.crash or "", kills)
        if ended.code != 0:
            return Outcome("lost", f"after {kills} kills: {ended.err.strip()[-300:]}", kills)
        if not same(command, result_of(ended), reference["result"]):
            return Outcome("lost", f"another result after {kills} kills", kills)
        if left := debris(folder):
            return Outcome("debris", f"{left[0]} is left after {kills} kills", kills)
        return Outcome("fine", "the same result", kills)

    return play
