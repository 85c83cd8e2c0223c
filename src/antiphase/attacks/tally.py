"""What is counted on the way of an attack, an entry an example, for the red flags. n examples, S of them at work."""

from __future__ import annotations

import torch
from torch import Tensor

from antiphase.attacks.checks import run_flags


class Tally:
    """Counts over all runs of an example: kept apart, so that an example taken over from a journal brings its own."""

    NAMES = ("zero", "bad", "noise", "stood", "fell")

    def __init__(self, n: int) -> None:
        self.zero, self.bad = torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.int64)
        self.noise = torch.zeros(n, dtype=torch.int64)  # runs won at their random start
        self.stood = torch.zeros(n, dtype=torch.int64)  # runs that failed
        self.fell = torch.zeros(n, dtype=torch.int64)  # of these, with a loss that did not rise

    def look(self, rows: Tensor, *, at_start: Tensor, risen: Tensor, won: Tensor, spent: Tensor) -> None:
        """Each of (S,): a forward of these examples, and how it found them."""
        failed = spent & ~won
        for count, here in ((self.noise, won & at_start), (self.stood, failed), (self.fell, failed & ~risen)):
            count.index_add_(0, rows, here.long())  # an example may be at work in two of its runs

    def gradient(self, rows: Tensor, grads: Tensor) -> None:
        """Steps at which the gradients of an example, (G, S, C, H, W), were not all numbers, or all exactly zero."""
        largest = grads.flatten(2).norm(torch.inf, dim=2).amax(dim=0).cpu()  # (S,); what is not a number shows in it
        self.bad.index_add_(0, rows, (~largest.isfinite()).long())
        self.zero.index_add_(0, rows, (largest == 0).long())

    def of(self, row: int) -> list[int]:
        return [int(getattr(self, name)[row]) for name in self.NAMES]

    def take(self, row: int, counts: list[int]) -> None:
        for name, count in zip(self.NAMES, counts):
            getattr(self, name)[row] = count

    def flags(self, random_start: bool, won: int) -> list[str]:
        images = {name: int((getattr(self, name) > 0).sum()) for name in ("zero", "bad")}
        runs = {name: int(getattr(self, name).sum()) for name in ("stood", "fell")}
        noise = int(self.noise.sum()) if random_start else 0
        return run_flags(**images, **runs, noise=noise, won=won, n=len(self.zero))
