"""Command lines as nobody should type them: each is refused in one line, or runs and can be interrupted."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from antiphase.cli import COMMANDS as NAMES
from benchmarks.faults import child
from benchmarks.faults.scene import Scene
from benchmarks.faults.trial import Outcome, Trial, crashed

LINES = 500
WORDS = (
    "",
    " ",
    "-1",
    "0",
    "1e999",
    "nan",
    "inf",
    "1/0",
    "8/0",
    "4/255,",
    ",",
    "--",
    "true",
    "None",
    "a b",
    "é",
    "\u202ename",
    "\x1b[31mred",
    "x" * 5000,
    "../../..",
    "/",
    "/dev/null",
    "/proc/self/mem",
    "ViT",
    "DiffViT",
    "nowhere",
    "9" * 400,
    "1.5",
    "{}",
    "[]",
    "!!python/object:os.system",
    "cifar10",
    "digits",
    "imagenet",
    "smoke",
    "cuda:99",
    "R1",
    "R99",
    "differential",
    "softmax,softmax",
    "differential:0.8:none",
    "line\nbreak",
    "\ud800",
    "%s%n",
    "$(reboot)",
    "*",
    "~",
)


def trials() -> Iterator[Trial]:
    for number in range(LINES):
        yield Trial("command lines", f"line {number}", _player(number))


def line(number: int) -> list[str]:
    """A command with flags of its own, of others and of none, and words of every sort."""
    draw = random.Random(number)
    name = draw.choice([*NAMES, *NAMES, "tarin", ""])
    argv = [name]
    flags = sorted(_flags(name)) if name in NAMES else ["--out"]
    for _ in range(draw.randint(0, 5)):
        argv += [draw.choice(WORDS)] if draw.random() < 0.35 else [draw.choice([*flags, "--nonsense"])]
        if draw.random() < 0.8:
            argv.append(draw.choice(WORDS))
    if draw.random() < 0.3:
        argv.append("--json")
    return [word.replace("\ud800", "\udc80") for word in argv]  # what a shell can really pass: any bytes


def _flags(name: str) -> set[str]:
    """Of a command, nested ones too."""
    module, found = import_module(f"antiphase.cli.{name.replace('-', '_')}"), set()

    def visit(config: object) -> None:
        if dataclasses.is_dataclass(config):
            for field in dataclasses.fields(config):
                found.add("--" + field.name.replace("_", "-"))
                visit(getattr(config, field.name, None))

    visit(module.Command.defaults("smoke"))
    return found


def _player(number: int):
    def play(scene: Scene, folder: Path) -> Outcome:
        folder.mkdir(parents=True, exist_ok=True)
        for run in ("ViT", "DiffViT"):
            if not (folder / run).exists():
                (folder / run).symlink_to(scene.runs / run)
        ended = child.run(line(number), folder, interrupt=True)
        if ended.interrupted and not ended.err.strip():
            return Outcome("hang", f"not a word before Ctrl-C: {line(number)!r}"[:300])
        if ended.crash is not None:
            return crashed(f"{ended.crash}: {line(number)!r}"[:300])
        if ended.code == 2:  # what it had to say before it refused stands above
            ugly = ended.refusal is None or any(ord(c) < 32 or c in "\u202e\u2066" for c in ended.err.replace("\n", ""))
            if ugly:
                return Outcome("traceback", f"not one clean line: {line(number)!r}"[:300])
            return Outcome("fine", "refused")
        return Outcome("fine", "ran on until Ctrl-C" if ended.interrupted else f"exit code {ended.code}")

    return play
