"""One process or several: under `torchrun` every process takes its share of each batch and the gradients are averaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class World:
    """The processes of this training: `size` of them, this one being number `rank`."""

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Exactly one process writes files and prints."""
        return self.rank == 0

    def share(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """This process's part of a batch; never empty, so that every process takes part in every step."""
        return rows[self.rank :: self.size] if len(rows) >= self.size else rows

    def loss_weight(self, own: int, whole: int) -> float:
        """Scales a mean over this process's share so that the average over processes is the mean over the batch."""
        return 1.0 if self.size == 1 or whole < self.size else own * self.size / whole

    def average_gradients(self, model: nn.Module) -> nn.Module:
        """The model, wrapped so that the processes average its gradients where there are several."""
        return DistributedDataParallel(model) if self.size > 1 else model

    def gather(self, own: Tensor, n: int) -> Tensor:
        """(n, E) rows of the whole batch from every process's share; for a loss that each of them computes in full.

        In the backward pass a process takes its own rows' gradient times the number of processes, since
        `average_gradients` divides by it.
        """
        if self.size == 1 or n < self.size:
            return own
        gathered: Tensor = _GatherRows.apply(own, self.rank, self.size, n)
        return gathered

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


class _GatherRows(torch.autograd.Function):
    """Rows 0, 1, 2, ... of a batch, of which process r of n holds rows r, r + n, r + 2n, ..."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, rank: int, size: int, n: int) -> Tensor:
        ctx.place = rank, size
        most = -(-n // size)
        padded = torch.cat([own, own.new_zeros(most - len(own), *own.shape[1:])])
        parts = [torch.empty_like(padded) for _ in range(size)]
        dist.all_gather(parts, padded.contiguous())
        return torch.stack(parts, dim=1).flatten(0, 1)[:n]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        rank, size = ctx.place
        return grads[0][rank::size] * size, None, None, None


def is_main_process() -> bool:
    """Whether this is the process that prints; can be asked before `join_world`."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def join_world(device: torch.device) -> Iterator[World]:
    """The processes that `torchrun` started, or this one alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
