"""X3: controls. What of the effects is the initialisation, the output gain, or nothing that was learned?"""

from __future__ import annotations

from typing import Any

from antiphase.paper.catalog.fig5 import alignment_of, opposition_lines
from antiphase.paper.grid import Grid
from antiphase.paper.questions import Train
from antiphase.paper.series import ASR, Series, Success, difference_line, line, trained_lines
from antiphase.paper.study import Label, Line, Study

VARIANTS: dict[str, dict[str, Any]] = {
    "official": {},
    "matched initialisation": {"init": "matched"},  # the twin's own weights
    "gain 1": {"out_scale": "none"},  # the head output is not shrunk by 1 - lambda_init
}


def _models(grid: Grid, variant: str) -> list[Train]:
    return [grid.diffvit(seed, **VARIANTS[variant]) for seed in grid.seeds()]


def lines(grid: Grid) -> list[Line]:
    attack = grid.pgd(grid.middle)
    softmax = tuple(grid.under_attack(grid.vit(seed), attack) for seed in grid.seeds())
    table: list[Line] = []
    for variant in VARIANTS:
        models = _models(grid, variant)
        table += trained_lines(Label("DiffViT", variant), models)
        for reading in ASR:
            diff = Series(tuple(grid.under_attack(model, attack) for model in models), Success(reading))
            where = (variant, f"eps {grid.middle}")
            table.append(line(Label("DiffViT", *where), diff, reading))
            base = Series(softmax, Success(reading))
            table.append(difference_line(Label("DiffViT - ViT", *where), diff, base, reading))
        table += opposition_lines(alignment_of(grid, models, "R1"), variant)
    return table


STUDIES = (
    Study(
        name="controls",
        aliases=("x3",),
        title="X3: initialisation, output gain, untrained models, shuffled and pseudo-branches",
        question="How much of attack success and opposition is the initialisation, the gain, or there without any training?",
        minutes=32.6,
        lines=lines,
    ),
)
