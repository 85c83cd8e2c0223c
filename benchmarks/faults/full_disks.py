"""A command fills its disk: it says so in a sentence that names the file, and goes on when there is room.

The disk is a tmpfs, which takes root to mount; without it there are no trials of this kind, which is said.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from antiphase import console
from benchmarks.faults import child
from benchmarks.faults.scene import COMMANDS, Command, Scene, result_of, same, size_of
from benchmarks.faults.trial import Outcome, Trial, crashed

WRITERS = [
    "train",
    "train-kept",
    "train-clip",
    "attack-saved",
    "minimum-norm",
    "zero-shot-attack",
    "certify",
    "measure",
    "theory",
    "audit",
    "compare",
    "eval",
    "look",
    "decode",
    "convert",
    "study",
    "export",
    "report",
]
LEVELS = 10
PAGE = 4096  # bytes; a tmpfs counts in pages


def trials() -> Iterator[Trial]:
    if not mountable():
        console.say("full disks are left out: a tmpfs cannot be mounted here, which takes root")
        return
    for level in range(LEVELS):
        for name in WRITERS:
            yield Trial("full disks", f"{name} at {level} of {LEVELS}", _player(COMMANDS[name], level))


@cache
def mountable() -> bool:
    with tempfile.TemporaryDirectory() as place:
        try:
            mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True)
        except OSError:
            return False
        if mounted.returncode == 0:
            subprocess.run(["umount", "--lazy", place], check=True)
        return mounted.returncode == 0


def _player(command: Command, level: int):
    def play(scene: Scene, folder: Path) -> Outcome:
        reference = scene.reference(command)
        disk = folder.with_name(folder.name + "-disk")
        disk.mkdir(exist_ok=True)
        laid = scene.lay(command, folder)
        files = sum(1 for path in laid.rglob("*") if path.is_file())
        room = size_of(laid) + PAGE * (files + 3) + int(reference["bytes"] * level / LEVELS)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(disk)], check=True)
        try:
            subprocess.run(["cp", "-r", f"{laid}/.", str(disk)], check=True)
            ended = child.run([*command.argv], disk, cache=disk / "cache", takes=reference["seconds"])
            if ended.crash is not None:
                return crashed(ended.crash)
            if ended.code == 2 and (ended.refusal is None or "full" not in ended.refusal):
                return Outcome("traceback", f"no sentence about a full disk: {ended.err.strip()[-300:]}")
            if ended.code not in (0, 2):
                return Outcome("traceback", f"exit code {ended.code}: {ended.err.strip()[-300:]}")
            subprocess.run(["mount", "-o", f"remount,size={room + 2**30}", str(disk)], check=True)
            again = child.run([*command.argv], disk, cache=disk / "cache", takes=reference["seconds"])
            if again.code != 0:
                return Outcome("lost", f"with room again: {again.err.strip()[-300:]}")
            if not same(command, result_of(again), reference["result"]):
                return Outcome("lost", "another result with room again")
            return Outcome("fine", "it fitted" if ended.code == 0 else "named, and went on with room")
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)
            disk.rmdir()

    return play
