"""One process at a time: locks that the kernel keeps, or leases for file systems where those are not honoured. No torch.

A lease is a file, made in one step (O_EXCL), that says who holds it. A thread renews it; one that nobody has renewed for a while
is taken over. How long that is each process sees by its own clock, so the clocks of machines need not agree.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from antiphase.config import InputError

KIND, SECONDS = "ANTIPHASE_LOCKS", "ANTIPHASE_LEASE_SECONDS"  # environment variables, which workers inherit
KINDS = ("flock", "lease")
_seen: dict[Path, tuple[str, float]] = {}  # leases of others: what was read, and when by our own clock it was so first


def kind() -> str:
    """Of the locks that are used: flock, or lease where file systems do not honour those of the kernel."""
    given = os.environ.get(KIND, "flock")
    if given not in KINDS:
        raise InputError(f"{KIND}={given} is not known: it takes {', '.join(KINDS)}")
    return given


@contextmanager
def locked(path: Path, timeout: float = -1) -> Iterator[bool]:
    """True inside if this process alone has the lock; False if another one kept it for `timeout` seconds (-1: waits for ever)."""
    lock = Lease(path) if kind() == "lease" else FileLock(path)
    try:
        lock.acquire(timeout=timeout)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def patience() -> float:
    """Seconds without renewal after which a lease is taken over."""
    given = os.environ.get(SECONDS, "60")
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise InputError(f"{SECONDS}={given} is no number of seconds above 0")
    return seconds


class Lease:
    """A lock file with a holder, renewed until it is released."""

    def __init__(self, path: Path) -> None:
        self.path, self.token, self.seconds = path.with_suffix(".lease"), uuid.uuid4().hex, patience()
        self._released = threading.Event()

    def acquire(self, timeout: float = -1) -> None:
        """Raises `Timeout` if another process keeps it for so long."""
        deadline = time.monotonic() + timeout
        while not self._take():
            if timeout >= 0 and time.monotonic() >= deadline:
                raise Timeout(str(self.path))
            time.sleep(min(0.1, self.seconds / 10))
        threading.Thread(target=self._renew, daemon=True).start()

    def release(self) -> None:
        self._released.set()
        if self._is_ours():
            self.path.unlink(missing_ok=True)

    def _take(self) -> bool:
        if _made(self.path, self._text(0)):
            return True
        held = _read(self.path)
        if held is None:
            return False  # released meanwhile: the next look may have it
        if self.path not in _seen or held != _seen[self.path][0]:  # one that is made and not yet written is empty
            _seen[self.path] = held, time.monotonic()
            return False
        _, since = _seen[self.path]
        return time.monotonic() - since > self.seconds and self._take_over(held)

    def _take_over(self, expired: str) -> bool:
        """In place of one that has expired: whoever makes the file beside it looks once more and replaces it."""
        beside = self.path.with_suffix(".takeover")
        if not _made(beside, self.token):
            with contextlib.suppress(FileNotFoundError):  # of a process that was killed in the middle of this
                if time.time() - beside.stat().st_mtime > 10 * self.seconds:
                    beside.unlink()
            return False
        try:
            if _read(self.path) != expired:
                return False
            self._write(0)
            return True
        finally:
            beside.unlink(missing_ok=True)

    def _renew(self) -> None:
        count = 0
        while not self._released.wait(self.seconds / 4):
            if not self._is_ours():
                return  # it was taken over: this process stood still for too long
            count += 1
            with contextlib.suppress(OSError):  # a disk that is full or away: the next time may do
                self._write(count)

    def _is_ours(self) -> bool:
        return self.token in (_read(self.path) or "")

    def _write(self, renewals: int) -> None:
        temporary = self.path.with_name(f".{self.path.name}.{self.token}.partial")
        temporary.write_text(self._text(renewals), encoding="utf-8")
        temporary.replace(self.path)

    def _text(self, renewals: int) -> str:
        about = {"host": platform.node(), "pid": os.getpid(), "renewals": renewals, "seconds": self.seconds}
        return json.dumps({**about, "token": self.token})


def _made(path: Path, text: str) -> bool:
    """Whether this process made the file; False if it was there."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return True


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
