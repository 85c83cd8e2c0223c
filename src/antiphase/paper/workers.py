"""The cells of a study on several processes of this machine: each takes cells that no other is at, by the ledger's locks.

The rows are those of one process, but for where and how long they were computed. Threads are shared out, and a different number
of them changes the last bits of float32: the environment of every row says how many there were.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from antiphase import console
from antiphase.config import InputError
from antiphase.paper.execute import Outcome, Workplace, run
from antiphase.paper.questions import Cell
from antiphase.training.loop import Interrupted

STOPPED = 130  # exit code of a worker that was interrupted


def threads_of_each(workers: int) -> int:
    """OMP_NUM_THREADS where it is set, else the cores of this process, shared out."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // workers)


def run_on_workers(
    cells: Sequence[Cell], place: Workplace, absent: dict[str, str] | None = None, *, workers: int
) -> Outcome:
    """Do what is missing with so many processes. One that is killed leaves its cell to the others."""
    if workers == 1:
        return run(cells, place, absent)
    threads = threads_of_each(workers)
    console.say(f"{workers} workers with {threads} {'thread' if threads == 1 else 'threads'} each")
    spawn = multiprocessing.get_context("spawn")
    fresh = replace(place, loaded={}, device=str(place.device))
    started = []
    with _inherited(threads):
        for _ in range(workers):
            ours, theirs = spawn.Pipe(duplex=False)
            process = spawn.Process(target=_work, args=(theirs, list(cells), fresh, absent, workers, threads))
            process.start()
            theirs.close()
            started.append((process, ours))
    results = [_result(connection) for _, connection in started]
    for process, _ in started:
        process.join()
    codes = [process.exitcode for process, _ in started]
    if STOPPED in codes:
        raise Interrupted("interrupted; the same command goes on from what is already on disk")
    if refusals := [result for result in results if isinstance(result, str)]:
        raise InputError(refusals[0])
    outcomes = [result for result in results if isinstance(result, Outcome)]
    lost = [code for code, result in zip(codes, results) if result is None]
    if not outcomes:
        raise InputError(f"every worker was lost (exit code {lost[0]}): the same command goes on from what is on disk")
    if lost:
        console.say(f"{len(lost)} of {workers} workers were lost (exit code {lost[0]}); the others did their cells")
    return merged(outcomes)


@contextmanager
def _inherited(threads: int) -> Iterator[None]:
    """Processes started inside have so many threads, which wait without taking the cores from other workers."""
    before = dict(os.environ)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """What became of each cell, as one process would say it: computed if any of them did."""
    computed = dict.fromkeys(key for outcome in outcomes for key in outcome.computed)
    present = dict.fromkeys(key for outcome in outcomes for key in outcome.present if key not in computed)
    done = {*computed, *present}
    failed = {key: why for outcome in outcomes for key, why in outcome.failed.items() if key not in done}
    waiting = dict.fromkeys(key for outcome in outcomes for key in outcome.waiting if key not in done)
    return Outcome(list(computed), list(present), failed, list(waiting))


def _work(
    answer: Connection,
    cells: list[Cell],
    place: Workplace,
    absent: dict[str, str] | None,
    workers: int,
    threads: int,
) -> None:
    """One worker, in a process of its own: sends what became of the cells, or the sentence by which they were refused."""
    torch.set_num_threads(threads)
    try:
        answer.send(run(cells, place, absent, workers=workers))
    except InputError as refusal:
        answer.send(str(refusal))
    except (KeyboardInterrupt, Interrupted):
        raise SystemExit(STOPPED) from None


def _result(connection: Any) -> Outcome | str | None:
    """None of a worker that was lost."""
    try:
        result: Outcome | str = connection.recv()
    except EOFError:
        return None
    return result
