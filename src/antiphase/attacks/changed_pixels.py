"""Images of which an attack changed some: the originals, which several results share, and the pixels of the changed ones.

Under the fast protocol every image is changed once, however many budgets a sweep has, so all its results together hold one
copy of the originals and at most one of adversarial pixels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class ChangedPixels:
    """(n, C, H, W) pixels; row i is `changed[i]` where it is there, else that of the originals."""

    originals: Tensor  # (n, C, H, W), never written to
    changed: dict[int, Tensor] = field(default_factory=dict)  # row -> (C, H, W)

    def __getitem__(self, rows: Tensor) -> Tensor:
        """(B, C, H, W) of these rows, a copy; rows are numbers or (n,) bool."""
        numbers = torch.nonzero(rows)[:, 0] if rows.dtype == torch.bool else rows
        pixels = self.originals[numbers]
        for place, row in enumerate(numbers.tolist()):
            if row in self.changed:
                pixels[place] = self.changed[row]
        return pixels

    def change(self, rows: Iterable[int], pixels: Iterable[Tensor]) -> None:
        """Copies of these pixels are the rows from now on."""
        self.changed.update(zip(rows, (one.to(self.originals.dtype, copy=True) for one in pixels)))

    def restore(self, rows: Iterable[int]) -> None:
        """These rows are the originals again."""
        for row in rows:
            self.changed.pop(row, None)

    def taking(self, other: ChangedPixels, rows: dict[int, int]) -> ChangedPixels:
        """These pixels, with rows of another in place of own ones: `rows` says for each row of the other which one it becomes."""
        taken = {row: other.changed[theirs] for theirs, row in rows.items() if theirs in other.changed}
        kept = {row: pixels for row, pixels in self.changed.items() if row not in set(rows.values())}
        return ChangedPixels(self.originals, kept | taken)

    @property
    def tensor(self) -> Tensor:
        """(n, C, H, W), a copy"""
        return self[torch.arange(len(self.originals))]
