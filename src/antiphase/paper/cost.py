"""What a cell will cost: operations counted from its config, times the seconds an operation took in finished cells of its kind.

Counts are estimates: an attack is charged for images that are never fooled, a measure by what dominates it. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from antiphase.attacks.config import PGD
from antiphase.models.config import Tower
from antiphase.paper.questions import (
    Aligned,
    Attacked,
    Audited,
    Cancelled,
    Cell,
    Correlated,
    Evaluated,
    Foreign,
    Given,
    Images,
    Lipschitz,
    Looked,
    OfImages,
    Propagated,
    Train,
    TrainClip,
)

SECONDS = 1.5e-11  # an operation, on two AVX2 cores of their own; until a finished cell says better
SPENT = {"AutoAttack": 0.16}  # of the worst case: measured at 1/255 on a depth-1 DiffViT
STEP = 3  # forwards that a forward with its backward costs
FULL = {  # images of the train and test split, where all of them are used
    "digits": (1_437, 360),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "tiny-imagenet": (100_000, 10_000),
    "imagenet": (1_281_167, 50_000),
    "coco": (118_287, 5_000),
    "cc12m": (7_900_000, 50_000),
}


def count(images: Images) -> int:
    whole = FULL.get(images.data, (1_000, 1_000))[images.split == "test"]
    return min(images.n or whole, whole)


def forward(tower: Tower, grid: tuple[int, int], *, lean: bool = False) -> float:
    """Multiplications and additions of one image through the blocks: projections and MLP, then scores and mixing.

    Lean, as in training and attacks, the last block computes keys and values of all tokens and the class token alone.
    """
    tokens = (grid[0] // grid[1]) ** 2 + 1
    block = (8 + 4 * tower.mlp_ratio) * tokens * tower.width**2 + 4 * tokens**2 * tower.width
    return (tower.depth - 1) * block + (4 * tokens * tower.width**2 if lean else block)


def operations(cell: Cell) -> float:
    if isinstance(cell, Train):
        t, (train, test) = cell.training, FULL.get(cell.data, (1_000, 1_000))
        learned = min(cell.images or train, train)
        inner = 0 if t.adv_eps is None else t.adv_steps
        per_epoch = learned * STEP * (1 + inner) + test
        return t.epochs * per_epoch * forward(cell.tower, cell.grid, lean=True)
    if isinstance(cell, TrainClip | Foreign):
        train, test = FULL.get(cell.pairs, (1_000, 1_000))
        vision = cell.model.vision
        once = forward(vision, (vision.image, vision.patch), lean=True)
        attacked = sum(a.forwards for a in cell.attacks) * STEP * count(cell.judged) if isinstance(cell, Foreign) else 0
        return once * (cell.training.epochs * (min(cell.images or train, train) * STEP + test) + attacked)
    if isinstance(cell, Given):
        return forward(cell.tower, cell.grid)
    if isinstance(cell, Evaluated):
        return 2 * count(Images(data=cell.data, n=cell.n)) * forward(cell.of.tower, cell.of.grid)
    assert isinstance(cell, OfImages)
    once = forward(cell.of.tower, cell.of.grid, lean=isinstance(cell, Attacked))
    return count(cell.images) * looks(cell) * once


def looks(cell: OfImages) -> float:
    """Forwards' worth of work on one image."""
    layers = cell.of.tower.depth
    if isinstance(cell, Attacked):
        tried = SPENT.get(cell.attack.name, 1.0) * cell.attack.forwards
        return STEP * (tried + 20 * min(1.0, 32 / count(cell.images)))  # and the check at a huge budget
    if isinstance(cell, Looked):
        return STEP * cell.attack.forwards
    if isinstance(cell, Lipschitz):
        return cell.draws + (0 if cell.estimator == "sample" else layers * (50 * 6 + 4 * 31 * STEP))
    if isinstance(cell, Aligned):
        adaptive = math.sqrt((cell.max_probes or cell.probes) / cell.probes)
        once = {"R1": cell.probes * 2 * adaptive, "R2": cell.probes * 2 * adaptive, "R3": 2.0}.get(cell.reading, 20.0)
        return 4 * once  # with its controls
    if isinstance(cell, Cancelled | Propagated):
        steps = sum({"pgd": 20, "scrambled": 20, "fgsm": 1}.get(name, 0) for name in cell.perturbations)
        sigma = 50 * 6 if isinstance(cell, Propagated) else 0
        return STEP * steps + 3 * len(cell.perturbations) + sigma
    if isinstance(cell, Audited):
        return 2 * (8 * cell.probes + layers * (cell.draws + 50 * 12 + 4 * 31 * STEP) + STEP * 200)
    return 25 if isinstance(cell, Correlated) else 1


def group(cell: Cell) -> str:
    """Cells that cost alike: the kind, and for attacks which one."""
    if isinstance(cell, Attacked):
        within = "" if isinstance(cell.attack, PGD) and cell.attack.within.eps < 1 else " patch"
        return cell.attack.name + (within if isinstance(cell.attack, PGD) else "")
    if isinstance(cell, Train) and cell.training.adv_eps is not None:
        return "adversarial training"
    if isinstance(cell, Evaluated):
        return cell.task
    return f"{cell.kind} {cell.reading}" if isinstance(cell, Aligned) else cell.kind


@dataclass
class Prices:
    """Seconds an operation, learned from finished cells: of the same kind where there is one, else of any."""

    seen: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def learned(cls, rows: Iterable[dict[str, Any]]) -> Prices:
        prices = cls()
        for row in rows:
            cost = row["provenance"]
            prices.see(cost["group"], cost["operations"], cost["seconds"])
        return prices

    def see(self, kind: str, operations: float, seconds: float) -> None:
        if operations > 0:
            self.seen.setdefault(kind, []).append(seconds / operations)

    @property
    def cells(self) -> int:
        return sum(map(len, self.seen.values()))

    def seconds(self, cell: Cell) -> float:
        own = self.seen.get(group(cell)) or [price for prices in self.seen.values() for price in prices]
        return operations(cell) * (median(own) if own else SECONDS)


def duration(seconds: float) -> str:
    """As people say it: 40 s, 12 min, 3.4 h, 26 days, 3.0 years."""
    for size, unit in ((31_557_600.0, "years"), (86_400.0, "days"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return (
                f"{seconds / size:.0f} {unit}"
                if seconds >= 10 * size or unit == "min"
                else f"{seconds / size:.1f} {unit}"
            )
    return f"{seconds:.0f} s"
