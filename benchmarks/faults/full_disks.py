"""A command fills its disk: it says so in a sentence that names the file, and goes on when there is room. Needs root (tmpfs)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults import child
from benchmarks.faults.kills import LONG
from benchmarks.faults.scene import COMMANDS, Command, Scene, result_of, size_of
from benchmarks.faults.trial import Outcome, Trial, crashed

WRITERS = [
    "train",
    "train-clip",
    "attack-saved",
    "measure",
    "audit",
    "compare",
    "eval",
    "look",
    "decode",
    "convert",
    "study",
    "report",
]
LEVELS = 10
PAGE = 4096  # bytes; a tmpfs counts in pages


def trials() -> Iterator[Trial]:
    for level in range(LEVELS):
        for name in WRITERS:
            yield Trial("full disks", f"{name} at {level} of {LEVELS}", _player(COMMANDS[name], level))


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
            ended = child.run([*command.argv], disk, cache=disk / "cache", patience=LONG)
            if ended.crash is not None:
                return crashed(ended.crash)
            if ended.code == 2 and (ended.refusal is None or "full" not in ended.refusal):
                return Outcome("traceback", f"no sentence about a full disk: {ended.err.strip()[-300:]}")
            if ended.code not in (0, 2):
                return Outcome("traceback", f"exit code {ended.code}: {ended.err.strip()[-300:]}")
            subprocess.run(["mount", "-o", f"remount,size={room + 2**30}", str(disk)], check=True)
            again = child.run([*command.argv], disk, cache=disk / "cache", patience=LONG)
            if again.code != 0:
                return Outcome("lost", f"with room again: {again.err.strip()[-300:]}")
            if result_of(again) != reference["result"]:
                return Outcome("lost", "another result with room again")
            return Outcome("fine", "it fitted" if ended.code == 0 else "named, and went on with room")
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)
            disk.rmdir()

    return play
