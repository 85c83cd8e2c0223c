"""Figures drawn by other processes of this machine, each as soon as it is known, while this one goes on reading.

A drawing is a pure function of its figure, so the bytes are those that one process makes. Where processes cannot be forked
safely, or there is one core, and if they are lost on the way, this process draws.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from threading import Thread
from types import TracebackType

from antiphase.report.figures.render import Drawn, draw
from antiphase.report.page_parts import Figure

MOST = 4  # processes beside this one: each holds some 100 MB, and a page has about twenty figures


class Drawers:
    """`begin` with a figure, then call with it: what is drawn of it, once. Ends its processes when it is left."""

    def __init__(self, processes: int | None = None) -> None:
        number = min(MOST, _cores() - 1) if processes is None else processes
        self._pool = _forked(number) if number > 0 and sys.platform == "linux" else None
        self._begun: dict[str, Future[Drawn]] = {}

    def begin(self, figure: Figure) -> None:
        if self._pool is not None and figure.name not in self._begun:
            with suppress(BrokenProcessPool):  # a process was killed
                self._begun[figure.name] = self._pool.submit(draw, figure)

    def __call__(self, figure: Figure) -> Drawn:
        begun = self._begun.get(figure.name)
        if begun is None or begun.cancel():  # nobody has come to it yet
            return draw(figure)
        try:
            return begun.result()
        except BrokenProcessPool:
            return draw(figure)

    def __enter__(self) -> Drawers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _forked(number: int) -> ProcessPoolExecutor:
    """They begin at once, while there is little in memory that they would hold on to."""
    pool = ProcessPoolExecutor(number, multiprocessing.get_context("fork"), initializer=_follow)
    pool.submit(int)
    return pool


def _follow() -> None:
    """Ctrl-C is for the process that was started, and when that one ends, however it does, this one does too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
