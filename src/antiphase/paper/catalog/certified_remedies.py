"""Certified accuracy of models that were trained otherwise: with noise on their pixels, or by the first-placed remedy.

The models of the study `certificates` never saw noise, and a smoothed model classifies noisy images. Every model here is one of
the study `remedies`, so nothing is trained for this study alone: its control `noise augmentation` (three seeds, noise of
8/255, which is a quarter of the smaller sigma that is certified), and the recipe at place 1 with its softmax control (the seeds
of the confirmation). Each is held against the plain model of the same seeds. It decides no claim.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphase.measures.certificates import RADII
from antiphase.paper.catalog.certificates import ABSTAINED, DECIDED_AT, READING, abstained, certificate, certified_at
from antiphase.paper.catalog.remedies import NOISE, chosen, controls, look_seeds, plain, recipe_line
from antiphase.paper.grid import VIT_NAMES, Grid
from antiphase.paper.questions import Model
from antiphase.paper.series import Series, Values, difference_line, line
from antiphase.paper.study import Label, Line, Study, Tick
from antiphase.paper.titles import data_name

FIRST = "place 1"


def trainings(grid: Grid) -> dict[str, dict[str, Sequence[Model]]]:
    """How models were trained -> ViTs and DiffViTs that were trained so, one per seed."""
    noisy: dict[str, Sequence[Model]] = {
        entry.model: [entry.make(grid, seed) for seed in look_seeds(grid)]
        for entry in controls(grid)
        if entry.name == NOISE
    }
    return {NOISE: noisy, FIRST: {"ViT": chosen(grid, 0, softmax=True), "DiffViT": chosen(grid, 0)}}


def lines(grid: Grid) -> list[Line]:
    table = [recipe_line(grid, 0)]
    for sigma in DECIDED_AT:
        for training in trainings(grid):
            for radius in RADII:
                at = Tick.at("L2 radius", radius)
                table += _compared(grid, training, sigma, certified_at(radius), READING, at)
            table += _compared(grid, training, sigma, abstained, ABSTAINED)
    return table


def _compared(grid: Grid, training: str, sigma: float, values: Values, reading: str, *at: Tick) -> list[Line]:
    """Both models, their difference, and how far each is from the plain model of the same seeds; and the DiffViT from the plain
    ViT, which it is to reach."""
    own, usual = {}, {}
    for name, models in trainings(grid)[training].items():
        beside = [plain(grid, name, model.run_seed) for model in models]
        own[name], usual[name] = (_series(grid, of, sigma, values) for of in (models, beside))
    noise = f"sigma {sigma:g}"
    table = [line(Label(name, training, noise, *at), own[name], reading) for name in VIT_NAMES]
    table.append(difference_line(Label("DiffViT - ViT", training, noise, *at), own["DiffViT"], own["ViT"], reading))
    for name, base in (("ViT", "ViT"), ("DiffViT", "DiffViT"), ("DiffViT", "ViT")):
        apart = Label(f"{name} ({training}) - plain {base}", noise, *at)
        table.append(difference_line(apart, own[name], usual[base], reading))
    return table


def _series(grid: Grid, models: Sequence[Model], sigma: float, values: Values) -> Series:
    return Series(tuple(certificate(grid, model, sigma) for model in models), values)


STUDIES = (
    Study(
        name="certified-remedies",
        title=lambda grid: (
            f"X6: certified accuracy of models trained with noise and by the first-placed remedy, depth 1, {data_name(grid.data)}"
        ),
        question="Is more certified of models that were trained with noise, or by the first-placed remedy?",
        minutes=87.4,
        lines=lines,
    ),
)
