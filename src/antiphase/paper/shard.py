"""A part of a study's cells that is the same wherever it is asked for: what one machine of several takes. No torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from antiphase.config import LARGEST_INTEGER, InputError, shown
from antiphase.paper.cost import Prices
from antiphase.paper.questions import Cell

SLURM = "slurm"  # in place of i/n: as the Slurm array counts its tasks


@dataclass(frozen=True)
class Shard:
    """Part `number` (from 1) of `of`."""

    number: int
    of: int

    def __post_init__(self) -> None:
        if self.of > LARGEST_INTEGER:
            raise InputError(f"there is no shard {shown(self.number)}/{shown(self.of)}: nothing has so many parts")
        if not 1 <= self.number <= self.of:
            raise InputError(f"there is no shard {self}: they are counted from 1/{self.of} to {self.of}/{self.of}")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def read(cls, text: str, environment: Mapping[str, str] = os.environ) -> Shard:
        """Of "2/8", or of "slurm" as the variables of a Slurm array say; its first task is 1, whatever it is called."""
        if text == SLURM:
            return cls._of_slurm(environment)
        try:
            number, of = map(int, text.split("/"))
        except ValueError:
            raise InputError(f"{text!r} is no shard: write 2/8, or slurm in a task of a Slurm array") from None
        return cls(number, of)

    @classmethod
    def _of_slurm(cls, environment: Mapping[str, str]) -> Shard:
        try:
            task, count = (int(environment[f"SLURM_ARRAY_TASK_{name}"]) for name in ("ID", "COUNT"))
            first = int(environment.get("SLURM_ARRAY_TASK_MIN", "0"))
            step = int(environment.get("SLURM_ARRAY_TASK_STEP", "1"))
        except (KeyError, ValueError):
            raise InputError(
                "--shard slurm reads SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT, which are not set here: submit an array "
                "(sbatch --array=1-8), or write --shard 1/8"
            ) from None
        return cls((task - first) // step + 1, count)

    def cells(self, cells: Sequence[Cell]) -> list[Cell]:
        """Its part of these. What is asked of a model stays with its training; the dearest models are dealt out first, each to
        the part that has least to do by the price list, so that the parts depend on the cells alone."""
        groups: dict[str, list[Cell]] = {}
        for cell in cells:
            groups.setdefault(_first_need(cell).key, []).append(cell)
        prices = Prices()
        costs = {key: sum(map(prices.seconds, group)) for key, group in groups.items()}
        load, mine = [0.0] * self.of, set()
        for key in sorted(groups, key=lambda key: (-costs[key], key)):
            least = load.index(min(load))
            load[least] += costs[key]
            if least == self.number - 1:
                mine.add(key)
        return [cell for cell in cells if _first_need(cell).key in mine]


def _first_need(cell: Cell) -> Cell:
    """The training at the bottom of it: of a question that of the model it is asked of."""
    while cell.needs:
        cell = cell.needs[0]
    return cell
