"""X5: what does the sign of the branches' alignment depend on? Width, training images, epochs, initialisation."""

from __future__ import annotations

from typing import Any

from antiphase.paper.catalog.fig5 import alignment_of, opposition_lines
from antiphase.paper.cost import FULL
from antiphase.paper.grid import Grid
from antiphase.paper.series import trained_lines
from antiphase.paper.study import Label, Line, Study

SEEDS = 5  # at most


def variants(grid: Grid) -> dict[str, dict[str, Any]]:
    """One thing changed at a time from the depth-1 DiffViT of the scale."""
    s = grid.s
    few = s.train_images or FULL[grid.data][0]
    changed: dict[str, dict[str, Any]] = {
        "as usual": {},
        f"width {s.width // 2}": {"width": s.width // 2},
        f"width {2 * s.width}": {"width": 2 * s.width},
        f"{few // 5} training images": {"images": few // 5},
        f"{5 * few} training images": {"images": 5 * few},
        "1 epoch": {"epochs": 1},
        f"{s.epochs // 3} epochs": {"epochs": s.epochs // 3},
        f"{3 * s.epochs} epochs": {"epochs": 3 * s.epochs},
        "matched initialisation": {"init": "matched"},
    }
    more_images = s.train_images is not None
    return {name: options for name, options in changed.items() if more_images or options.get("images", 0) <= few}


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for name, options in variants(grid).items():
        models = [grid.diffvit(seed, **options) for seed in grid.seeds()[:SEEDS]]
        table += trained_lines(Label("DiffViT", name), models)
        table += opposition_lines(alignment_of(grid, models, "R1"), name)
    return table


STUDIES = (
    Study(
        name="alignment-sign",
        aliases=("x5",),
        title="X5: sign of the alignment by width, training images, epochs and initialisation, depth 1",
        question="What does it depend on whether the gradients of the two branches oppose each other?",
        minutes=78.0,
        lines=lines,
    ),
)
