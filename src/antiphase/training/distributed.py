"""Training on several processes: every one takes its share of each batch, and the gradients are averaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from antiphase import processes


class World(processes.World):
    """The processes of this training."""

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


@contextmanager
def join_world(device: torch.device) -> Iterator[World]:
    """The processes that `torchrun` started, or this one alone."""
    on_gpus = device.type == "cuda" and processes.started() > 1
    if on_gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    with processes.join("nccl" if on_gpus else "gloo") as world:
        yield World(world.rank, world.size)
