"""One process or several: those that `torchrun` started share the batches of a training, and the images of an evaluation.

An evaluation is cut into shares of the images. Every process computes its share, all of them get all shares, and one writes.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from antiphase import console
from antiphase.config import InputError

T = TypeVar("T")
GONE = "torchrun, which started this process, is gone: the same command goes on from what is on disk"
ANSWERS_WITHIN = 30.0  # seconds, of the store of torchrun
PATIENCE = timedelta(days=7)  # what one process alone computes may take long; `torchrun` ends all if one is lost


@dataclass(frozen=True)
class World:
    """The processes of this command: `size` of them, this one being number `rank`."""

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Exactly one process writes files and prints."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Sums over all processes, the same in each of them."""
        if self.size == 1:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64)
        if dist.get_backend() == "nccl":
            summed = summed.cuda()
        dist.all_reduce(summed)
        return [float(v) for v in summed.tolist()]

    def barrier(self) -> None:
        """Wait until every process has come here."""
        if self.size > 1:
            dist.barrier()

    def each(self, compute: Callable[[], T]) -> list[T]:
        """What every process computed, by rank, in all of them; what one refuses, all refuse."""
        if self.size == 1:
            return [compute()]
        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, _tried(compute))
        return [_heard(one) for one in told]

    def once(self, compute: Callable[[], T]) -> T:
        """What the main process computed, in all of them; the others wait for it."""
        if self.size == 1:
            return compute()
        told = [_tried(compute) if self.is_main else None]
        dist.broadcast_object_list(told)
        value: T = _heard(told[0])
        return value

    @contextmanager
    def first(self) -> Iterator[None]:
        """The main process goes through before the others: it makes what they find."""
        if not self.is_main:
            self.barrier()
        yield
        if self.is_main:
            self.barrier()

    def shares(self, n: int, block: int = 1) -> list[NDArray[np.int64]]:
        """Positions of 0 to n - 1 that each process takes: blocks of neighbours in turn, smaller ones if there are too few."""
        while block > 1 and n < block * self.size:
            block //= 2
        places = np.arange(n)
        return [places[(places // block) % self.size == rank] for rank in range(self.size)]


def _tried(compute: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "answer", compute()
    except (InputError, NotImplementedError) as refusal:
        return type(refusal).__name__, str(refusal)


def _heard(told: Any) -> Any:
    kind, value = told
    if kind == "answer":
        return value
    raise NotImplementedError(value) if kind == "NotImplementedError" else InputError(value)


def current() -> World:
    """The processes that share the work at hand: those of `join`, else this one alone."""
    joined = dist.is_available() and dist.is_initialized()
    return World(dist.get_rank(), dist.get_world_size()) if joined else World()


def started() -> int:
    """How many processes `torchrun` started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Whether this is the process that prints; can be asked before `join`."""
    return os.environ.get("RANK", "0") == "0"


def _end_with_the_launcher() -> None:
    """`torchrun` ends every process if one is lost. If it is killed itself nobody does, and they would wait for each other.

    Its store is asked for first: `torchrun` may have gone while torch was being loaded.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        try:
            socket.create_connection(address, timeout=ANSWERS_WITHIN).close()
        except OSError:
            raise InputError(GONE) from None
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(1)
        console.say(GONE)
        os._exit(1)  # as a kill would: files are whole or absent

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def join(backend: str = "gloo") -> Iterator[World]:
    """The processes that `torchrun` started, or this one alone."""
    if started() == 1:
        yield World()
        return
    _end_with_the_launcher()
    dist.init_process_group(backend, timeout=PATIENCE if backend == "gloo" else None)
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
