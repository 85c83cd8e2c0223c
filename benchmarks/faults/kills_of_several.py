"""Several processes do one thing, and one of them is killed: asked again, the command ends as if none had been."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults.child import PATIENCE, without_times
from benchmarks.faults.scene import COMMANDS, Scene, debris
from benchmarks.faults.trial import Outcome, Trial

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "antiphase"]
ANTIPHASE = [sys.executable, "-m", "antiphase"]
STUDY = [*COMMANDS["study"].argv]
LINES = {  # name -> command, what it needs
    "study with two workers": ([*ANTIPHASE, *STUDY, "--workers", "2"], ()),
    "study on Ray": ([*ANTIPHASE, *STUDY, "--executor", "ray"], ()),
    "train under torchrun": ([*TORCHRUN, *COMMANDS["train"].argv], ()),
    "attack under torchrun": ([*TORCHRUN, *COMMANDS["attack"].argv], ("ViT",)),
    "measure under torchrun": ([*TORCHRUN, *COMMANDS["measure"].argv], ("DiffViT",)),
    "eval under torchrun": ([*TORCHRUN, *COMMANDS["eval"].argv], ("clip",)),
    "audit under torchrun": ([*TORCHRUN, *COMMANDS["audit"].argv], ("DiffViT", "ViT")),
}
TRIALS = 3  # of each


def trials() -> Iterator[Trial]:
    for number in range(TRIALS):
        for name in LINES:
            yield Trial("kills", f"{name} {number}", _player(name, number))


def _player(name: str, number: int):
    def play(scene: Scene, folder: Path) -> Outcome:
        draw, (seconds, expected) = random.Random(f"{name} {number}"), _reference(scene, name)
        _lay(scene, name, folder)
        try:
            killed = _run(name, folder, seconds, kill_after=draw.uniform(0.3, 1.0) * seconds, draw=draw)[0]
            _, code, out, err = _run(name, folder, seconds)
        except subprocess.TimeoutExpired as hung:
            return Outcome("hang", f"no end after {hung.timeout:.0f} s", 1)
        if code != 0:
            return Outcome("lost", f"after a kill: {err.strip()[-300:]}", killed)
        if _result(out) != expected:
            return Outcome("lost", "another result after a kill", killed)
        if left := debris(folder):
            return Outcome("debris", f"{left[0]} is left", killed)
        return Outcome("fine", "the same result", killed)

    return play


def _lay(scene: Scene, name: str, folder: Path) -> None:
    scene.lay_runs(LINES[name][1], folder)


def _reference(scene: Scene, name: str) -> tuple[float, Any]:
    """How long it takes undisturbed, and its result."""
    path = scene.folder / "references" / f"{name.replace(' ', '-')}.json"
    if not path.exists():
        folder = scene.folder / "reference"
        _lay(scene, name, folder)
        began = time.monotonic()
        _, code, out, err = _run(name, folder, scene.patience)
        assert code == 0, f"{name}: {err[-1000:]}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps([time.monotonic() - began, _result(out)]))
    seconds, result = json.loads(path.read_text())
    return seconds, result


def _result(out: str) -> Any:
    """What was printed; which process looked at an image first, and so how often, is no part of it."""
    return _without_forwards(without_times(json.loads(out.splitlines()[-1])))


def _without_forwards(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_forwards(v) for k, v in value.items() if not k.startswith(("forwards", "backwards"))}
    return [_without_forwards(v) for v in value] if isinstance(value, list) else value


def _run(
    name: str, folder: Path, takes: float, *, kill_after: float | None = None, draw: random.Random | None = None
) -> tuple[int, int, str, str]:
    """Kills, exit code, and what was said. After `kill_after` seconds one of its processes is killed: from then on the others
    may take as long as the whole takes undisturbed, since what was lost is done again."""
    environment = {**os.environ, "ANTIPHASE_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(LINES[name][0], cwd=folder, env=environment, start_new_session=True, **pipes)
    killed = 0
    try:
        if kill_after is not None and draw is not None:
            time.sleep(kill_after)
            family = [process.pid, *descendants(process.pid)]
            if process.poll() is None:
                os.kill(draw.choice(family), signal.SIGKILL)
                killed = 1
        out, err = process.communicate(timeout=takes + PATIENCE)
    finally:
        for pid in descendants(process.pid):
            _kill(pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return killed, process.returncode, out, err


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        own = parents.get(todo.pop(), [])
        found += own
        todo += own
    return found
