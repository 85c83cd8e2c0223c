"""What a cell will cost: operations counted from its config, times the seconds an operation took in finished cells of its kind.

Counts are estimates: an attack is charged for images that are never fooled, a measure by what dominates it. No torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from antiphase.attacks.question import AttackQuestion
from antiphase.models.config import Tower
from antiphase.paper.questions import Ask, Cell, Evaluate, Images, OtherEncoder, Train, TrainClip, UserClip
from antiphase.store import BACKWARD

SECONDS = 1.5e-11  # an operation, on two AVX2 cores of their own; until a finished cell says better
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


def count(images: Images) -> int:
    whole = FULL.get(images.data, (1_000, 1_000))[images.split == "test"]
    return min(images.n or whole, whole)


def forward(tower: Tower, grid: tuple[int, int], *, class_token_only: bool = False) -> float:
    """Multiplications and additions of one image through the blocks: projections and MLP, then scores and mixing.

    In training and attacks the last block computes keys and values of all tokens and the class token alone.
    """
    tokens = (grid[0] // grid[1]) ** 2 + 1
    block = (8 + 4 * tower.mlp_ratio) * tokens * tower.width**2 + 4 * tokens**2 * tower.width
    return (tower.depth - 1) * block + (4 * tokens * tower.width**2 if class_token_only else block)


def operations(cell: Cell) -> float:
    if isinstance(cell, Train):
        t, (train, test) = cell.training, FULL.get(cell.data, (1_000, 1_000))
        learned = min(cell.images or train, train)
        inner = 0 if t.adv_eps is None else t.adv_steps
        per_epoch = learned * BACKWARD * (1 + inner) + test
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


def price_group(cell: Cell) -> str:
    """Cells that cost alike: the kind, and for attacks which one."""
    if isinstance(cell, Ask):
        return cell.question.price_group
    if isinstance(cell, Train) and cell.training.adv_eps is not None:
        return "adversarial training"
    return cell.task if isinstance(cell, Evaluate) else cell.kind


@dataclass
class Prices:
    """Seconds per operation, learned from finished cells: of the same kind where there is one, else of any."""

    per_operation: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def learned(cls, provenances: Iterable[dict[str, Any]]) -> Prices:
        prices = cls()
        for cost in provenances:
            prices.learn(cost["group"], cost["operations"], cost["seconds"])
        return prices

    def learn(self, group: str, operations: float, seconds: float) -> None:
        if operations > 0:
            self.per_operation.setdefault(group, []).append(seconds / operations)

    @property
    def cells(self) -> int:
        return sum(map(len, self.per_operation.values()))

    def seconds(self, cell: Cell) -> float:
        every = [price for prices in self.per_operation.values() for price in prices]
        own = self.per_operation.get(price_group(cell)) or every
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
