"""The command line in a process of its own that starts in milliseconds: forked from one that has imported everything."""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from antiphase import files

PATIENCE = 30.0  # seconds without an end: a hang
CRASHED = 70  # exit code of a process that would have printed a traceback
MEMORY = 12 * 2**30  # bytes of address space that a child may map


@dataclass(frozen=True)
class Ended:
    """How a command line ended."""

    code: int  # negative: by that signal
    out: str
    err: str
    seconds: float
    hung: bool = False

    @property
    def crash(self) -> str | None:
        """Why this is no way for a program to end; None if it is one."""
        if self.hung:
            return f"no end after {self.seconds:.0f} s"
        if self.code == CRASHED or "Traceback (most recent call last)" in self.err:
            return "traceback: " + (self.err.strip().splitlines() or ["?"])[-1][:200]
        if self.code < 0:
            return f"ended by {signal.Signals(-self.code).name}"
        return None if self.code in (0, 1, 2, 130) else f"exit code {self.code}"

    @property
    def refusal(self) -> str | None:
        """The sentence of a refusal; None if it was none, or not one line."""
        said = [line for line in self.err.splitlines() if line.startswith("antiphase")]
        return said[-1] if self.code == 2 and len(said) == 1 else None


def warm_up() -> None:
    """Import what commands import, before the first fork; nothing is computed, so no thread is running yet."""
    import timm  # noqa: F401
    import torch

    torch.set_num_threads(1)
    from importlib import import_module

    from antiphase.cli import COMMANDS

    for name in COMMANDS:
        import_module(f"antiphase.cli.{name.replace('-', '_')}")
    for name in (
        "antiphase.training.loop",
        "antiphase.training.clip_task",
        "antiphase.results.ask",
        "antiphase.results.audit",
        "antiphase.report.page",
        "antiphase.paper.execute",
        "scipy.stats",
    ):
        import_module(name)


def run(
    argv: list[str] | Callable[[], list[str]],
    folder: Path,
    *,
    cache: Path | None = None,
    kill_after: float | None = None,
    kill_at: int | None = None,
    patience: float = PATIENCE,
) -> Ended:
    """`antiphase ARGV` in `folder`. It is killed after so many seconds, or at its so-manyth change of the file system. A function
    that says ARGV is called in the new process: it may compute, which must not happen in the one that is forked from."""
    return call(lambda: _main(argv), folder, cache=cache, kill_after=kill_after, kill_at=kill_at, patience=patience)


def call(
    program: Callable[[], int],
    folder: Path,
    *,
    cache: Path | None = None,
    kill_after: float | None = None,
    kill_at: int | None = None,
    patience: float = PATIENCE,
) -> Ended:
    """A function that returns an exit code, in a process of its own."""
    said = [folder.with_name(f"{folder.name}.{stream}") for stream in ("out", "err")]  # its disk may be full
    sys.stdout.flush()
    sys.stderr.flush()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            _be(program, folder, said, cache or folder / "cache", kill_at)
        finally:
            os._exit(CRASHED)  # whatever happens, the child never goes on as its parent
    status, hung = _wait(pid, kill_after, patience)
    seconds = time.monotonic() - began
    out, err = (path.read_text(errors="replace") if path.exists() else "" for path in said)
    for path in said:
        path.unlink(missing_ok=True)
    return Ended(os.waitstatus_to_exitcode(status), out, err, seconds, hung)


def _wait(pid: int, kill_after: float | None, patience: float) -> tuple[int, bool]:
    began, killed, hung = time.monotonic(), False, False
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status, hung
        passed = time.monotonic() - began
        if not killed and ((kill_after is not None and passed > kill_after) or passed > patience):
            hung, killed = passed > patience, True
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def _main(argv: list[str] | Callable[[], list[str]]) -> int:
    from antiphase.cli import main

    return main(argv if isinstance(argv, list) else argv())


def _be(program: Callable[[], int], folder: Path, said: list[Path], cache: Path, kill_at: int | None) -> None:
    """In the child: never returns."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.chdir(folder)
        for stream, path in zip((1, 2), said):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        os.environ["ANTIPHASE_CACHE"] = str(cache)
        files.sweep_once.cache_clear()
        if kill_at is not None:
            _kill_at_event(kill_at)
        code = program()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = CRASHED
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _kill_at_event(number: int) -> None:
    """Every file that is moved into place, synchronised, made or removed is an event; at this one the process ends."""
    count = 0

    def watched(name: str) -> None:
        call = getattr(os, name)

        def replaced(*args, **kwargs):
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        setattr(os, name, replaced)

    for name in ("replace", "fsync", "mkdir", "unlink", "rmdir"):
        watched(name)


TIMES = re.compile(r'"(seconds|processor_seconds|began|environment|version|machine)"')


def without_times(value):
    """A result without what differs from run to run: clocks, versions, and folders of the trial."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if not TIMES.fullmatch(f'"{k}"')}
    if isinstance(value, list):
        return [without_times(v) for v in value]
    return value
