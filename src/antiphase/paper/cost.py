"""What a cell will cost: operations counted from its config, times the seconds an operation took in finished cells of its kind,
or takes by a price list before there is one.

Counts are estimates: an attack is charged for images that are never fooled, a measure by what dominates it. No torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from antiphase.attacks.question import AttackQuestion
from antiphase.models.config import Tower
from antiphase.paper.questions import (
    Ask,
    Cell,
    Chosen,
    Evaluate,
    Images,
    Model,
    OtherEncoder,
    Ranking,
    Train,
    TrainClip,
    UserClip,
)
from antiphase.store import BACKWARD

# Processor seconds per operation on one thread, group by group: the rule of `fit` on 373 cells of the cpu scale, which are in
# tests/paper/measured_cells.csv (one cell where no number stands). November 2026, a virtual machine with AVX2 cores that were
# shared with other work. The models are of depth 1, but for the evaluations (the committed CLIP pair) and for six cells of PGD,
# CW, AutoAttack and lipschitz on the committed DiffViT of depth 4, on 8 to 64 images: PGD took 0.3 to 0.7 of its price there.
PROCESSOR_SECONDS = {
    "AutoAttack": 3.8e-11,  # 2 cells
    "CW": 9.8e-12,  # 2 cells
    "PGD": 2.5e-11,  # 199 cells
    "PGD patch": 1.6e-11,  # 105 cells
    "Train": 2.9e-11,  # 49 cells
    "adversarial training": 2.5e-11,
    "alignment R1": 3.2e-11,  # 2 cells
    "alignment R3": 2.8e-11,
    "alignment R8": 3.8e-12,
    "branch picture": 7.4e-12,
    "cancellation": 1.5e-11,
    "correlation": 6.0e-11,
    "depth": 1.8e-11,
    "few-shot": 1.3e-10,
    "lipschitz": 2.1e-11,  # 2 cells
    "predictions": 2.6e-11,
    "probe": 1.2e-09,
    "retrieval": 4.1e-11,
    "zero-shot": 1.6e-11,
}
UNIT = "processor seconds per operation (a multiplication or an addition)"
GENERAL = 3.0e-11  # of a group that was not measured (TrainClip, OtherEncoder, theory): about that of training
CORES = 2  # that a price is for: the processor seconds, halved
GPU_OPERATIONS_PER_SECOND = 1e13  # useful ones, of one GPU: an assumption, which a dry run states
TINY = ("UserClip", "Ranking")  # reading a model, or rows: its seconds are not those of its operations
FULL = {  # images of the train and test split, where all of them are used
    "digits": (1_437, 360),
    "tiles-digits": (1_437, 360),
    "tiles": (50_000, 10_000),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "tiny-imagenet": (100_000, 10_000),
    "imagenet": (1_281_167, 50_000),
    "coco": (118_287, 5_000),
    "cc12m": (7_900_000, 50_000),
}


def available(images: Images) -> int:
    """Of this data set and split."""
    return FULL.get(images.data, (1_000, 1_000))[images.split == "test"]


def count(images: Images) -> int:
    whole = available(images)
    return min(images.n or whole, whole)


def forward(tower: Tower, grid: tuple[int, int], *, class_token_only: bool = False) -> float:
    """Multiplications and additions of one image through the blocks: projections and MLP, then scores and mixing.

    In training and attacks the last block computes keys and values of all tokens and the class token alone.
    """
    tokens = (grid[0] // grid[1]) ** 2 + 1
    block = (8 + 4 * tower.mlp_ratio) * tokens * tower.width**2 + 4 * tokens**2 * tower.width
    return (tower.depth - 1) * block + (4 * tokens * tower.width**2 if class_token_only else block)


def operations(cell: Cell) -> float:
    if isinstance(cell, Ranking):
        return 1.0  # rows are read, no model is run
    if isinstance(cell, Chosen):  # which recipe it will be is not known: as the first
        return operations(cell.ranking.recipes[0].trained[0])
    if isinstance(cell, Train):
        t, (train, test) = cell.training, FULL.get(cell.data, (1_000, 1_000))
        learned = min(cell.images or train, train)
        if cell.after is not None:  # kept by the whole training: only looked at
            return learned * forward(cell.tower, cell.grid, class_token_only=True)
        inner = (0 if t.adv_eps is None else t.adv_steps) + (0 if t.penalty is None else t.penalty.forwards)
        per_epoch = learned * BACKWARD * (1 + inner) + test + min(t.fit_images, learned)
        return t.epochs * per_epoch * forward(cell.tower, cell.grid, class_token_only=True)
    if isinstance(cell, TrainClip | OtherEncoder):
        train, test = FULL.get(cell.pairs, (1_000, 1_000))
        vision = cell.model.vision
        once = forward(vision, (vision.image, vision.patch), class_token_only=True)
        learned = cell.training.epochs * (min(cell.images or train, train) * BACKWARD + test)
        if isinstance(cell, OtherEncoder):
            learned += sum(a.forwards for a in cell.attacks) * BACKWARD * count(cell.tested_on)
        return once * learned
    if isinstance(cell, UserClip):
        return forward(cell.tower, cell.grid)
    if isinstance(cell, Evaluate):
        return 2 * count(Images(data=cell.data, n=cell.n)) * forward(cell.of.tower, cell.of.grid)
    assert isinstance(cell, Ask)
    images, tower = count(cell.images), cell.of.tower
    once = forward(tower, cell.of.grid, class_token_only=isinstance(cell.question, AttackQuestion))
    return images * cell.question.work.forwards(images, tower.depth) * once


def traffic(cell: Cell) -> float:
    """Bytes of activations that a cell's operations read and write in float32: of every block its tokens, as wide as each
    layer makes them, and its attention maps. For cells about one model; an estimate, like the operations."""
    model = cell.of if isinstance(cell, Ask | Evaluate) else cell
    if not isinstance(model, Model):
        return 0.0
    tower, (side, patch) = model.tower, model.grid
    tokens = (side // patch) ** 2 + 1
    block = 4 * ((8 + 2 * tower.mlp_ratio) * tokens * tower.width + 2 * tower.heads * tokens**2)
    return operations(cell) / forward(tower, model.grid) * tower.depth * block


def price_group(cell: Cell) -> str:
    """Cells that cost alike: the kind, and for attacks which one."""
    if isinstance(cell, Ask):
        return cell.question.price_group
    if isinstance(cell, Train) and cell.after is not None:
        return "predictions"
    if isinstance(cell, Train) and cell.training.adv_eps is not None:
        return "adversarial training"
    if isinstance(cell, Chosen):
        return "Train"
    return cell.task if isinstance(cell, Evaluate) else cell.kind


@dataclass
class Prices:
    """Seconds per operation: learned from finished cells of the same group; before there is one, the list's, made as much
    dearer or cheaper as the other groups came out here. A GPU has no list: it is priced by its stated throughput."""

    gpu: bool = False
    per_operation: dict[str, list[float]] = field(default_factory=dict)
    _medians: dict[str, tuple[int, float]] = field(default_factory=dict, repr=False)

    @classmethod
    def learned(cls, provenances: Iterable[dict[str, Any]], *, gpu: bool = False) -> Prices:
        """From the cells that were finished on the same kind of device."""
        prices = cls(gpu)
        for cost in provenances:
            if (_device(cost) != "cpu") == gpu:
                prices.learn(cost["group"], cost["operations"], cost["seconds"])
        return prices

    def learn(self, group: str, operations: float, seconds: float) -> None:
        if operations > 0:
            self.per_operation.setdefault(group, []).append(seconds / operations)

    def _middle(self, group: str) -> float:
        """The median of a group, found again only when it has learned more."""
        own = self.per_operation[group]
        if group not in self._medians or self._medians[group][0] != len(own):
            self._medians[group] = (len(own), median(own))
        return self._medians[group][1]

    @property
    def cells(self) -> int:
        return sum(map(len, self.per_operation.values()))

    def listed(self, group: str) -> float:
        """Before any cell is finished."""
        return 1 / GPU_OPERATIONS_PER_SECOND if self.gpu else PROCESSOR_SECONDS.get(group, GENERAL) / CORES

    def seconds(self, cell: Cell) -> float:
        group = price_group(cell)
        if group in self.per_operation:
            return operations(cell) * self._middle(group)
        here = [self._middle(other) / self.listed(other) for other in self.per_operation if other not in TINY]
        return operations(cell) * self.listed(group) * (median(here) if here else 1.0)

    @property
    def basis(self) -> str:
        """What a price rests on, in words."""
        if self.cells:
            return f"priced by {self.cells} finished cells"
        if self.gpu:
            return f"on one GPU that does {GPU_OPERATIONS_PER_SECOND / 1e12:g} TFLOP/s, an assumption: no cell is finished yet"
        return f"on {CORES} CPU cores of their own, by the price list: no cell is finished yet"


def fit(provenances: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """A price list from finished cells, as PROCESSOR_SECONDS has it: of each group the processor time of all its cells divided
    by their operations. Of cells that ran on one thread: several threads also count the time in which they wait."""
    spent: dict[str, list[tuple[float, float]]] = {}
    for cost in provenances:
        single = cost["environment"]["threads"] == 1 and _device(cost) == "cpu"
        if single and cost["operations"] > 0 and cost["group"] not in TINY:
            spent.setdefault(cost["group"], []).append((cost["operations"], cost["processor_seconds"]))
    return {
        group: {"per_operation": sum(s for _, s in cells) / sum(o for o, _ in cells), "cells": len(cells)}
        for group, cells in sorted(spent.items())
    }


def _device(cost: dict[str, Any]) -> str:
    return str(cost.get("machine", {}).get("device", "cpu"))
