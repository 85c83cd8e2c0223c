"""The command line in a process of its own that starts in milliseconds: forked from one that has imported everything.

It hangs if it has not ended 30 seconds after the same command, undisturbed, would have. Seconds in which it stood in line for a
processor do not count: on a busy machine these are nobody's fault.
"""

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

PATIENCE = 30.0  # seconds without an end, beyond those of the undisturbed command: a hang
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
    interrupted: bool = False  # it was at work when its time was over, and ended when it was asked to

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
    takes: float = 0.0,
    interrupt: bool = False,
) -> Ended:
    """`antiphase ARGV` in `folder`. It is killed after so many seconds, or at its so-manyth change of the file system. A function
    that says ARGV is called in the new process: it may compute, which must not happen in the one that is forked from."""
    how = {"kill_after": kill_after, "kill_at": kill_at, "takes": takes, "interrupt": interrupt}
    return call(lambda: _main(argv), folder, cache=cache, **how)


def call(
    program: Callable[[], int],
    folder: Path,
    *,
    cache: Path | None = None,
    kill_after: float | None = None,
    kill_at: int | None = None,
    takes: float = 0.0,
    interrupt: bool = False,
) -> Ended:
    """A function that returns an exit code, in a process of its own. It takes so many seconds undisturbed; when its time is over
    it is killed, or with `interrupt` asked to end as by Ctrl-C, for which it has the same patience."""
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
    status, hung, interrupted = _wait(pid, kill_after, takes + PATIENCE, interrupt)
    seconds = time.monotonic() - began
    out, err = (path.read_text(errors="replace") if path.exists() else "" for path in said)
    for path in said:
        path.unlink(missing_ok=True)
    return Ended(os.waitstatus_to_exitcode(status), out, err, seconds, hung, interrupted and not hung)


def _wait(pid: int, kill_after: float | None, patience: float, interrupt: bool) -> tuple[int, bool, bool]:
    """How it ended, whether that was not in time, and whether it was asked to."""
    began, asked, killed, hung = time.monotonic(), False, False, False
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status, hung, asked
        passed = time.monotonic() - began
        if kill_after is not None and passed > kill_after and not killed:
            killed = True
            os.kill(pid, signal.SIGKILL)
        elif passed > patience and not killed and passed - _queued(pid) > patience:
            if interrupt and not asked:
                asked, patience = True, patience + PATIENCE
                os.kill(pid, signal.SIGINT)
            else:
                hung = killed = True
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def _queued(pid: int) -> float:
    """Seconds that a process stood in line for a processor; 0 where the kernel does not say."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _main(argv: list[str] | Callable[[], list[str]]) -> int:
    from antiphase.cli import main

    return main(argv if isinstance(argv, list) else argv())


def _be(program: Callable[[], int], folder: Path, said: list[Path], cache: Path, kill_at: int | None) -> None:
    """In the child: never returns."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
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
