"""Natural corruptions: is a DiffViT hurt less by noise than its ViT, and do the changes of its two maps say under which?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from antiphase.data.catalog import entry_of
from antiphase.data.corruption_table import CORRUPTIONS, SEVERITIES, applicable
from antiphase.evals.config import CorruptionQuestion
from antiphase.measures.questions import PredictionQuestion, Rows
from antiphase.measures.seed_intervals import difference, difference_of_gaps
from antiphase.measures.stats import Array, Unit, mean_interval
from antiphase.paper.contrasts import Group, predict, predict_ranks
from antiphase.paper.grid import Grid, vits
from antiphase.paper.questions import Ask
from antiphase.paper.series import Series, Success, difference_line, line
from antiphase.paper.study import Answers, Label, Line, Prediction, Study
from antiphase.paper.titles import data_name
from antiphase.store import Content

FEW, FEW_SEVERITIES = ("gaussian_noise", "contrast", "pixelate"), (3,)  # at the scale for tests
GREY = ("digits", "tiles-digits")
READING = "accuracy, mean over severities"
ECE = "ECE (15 bins), mean over severities"


@dataclass(frozen=True)
class Under:
    """Of the answer about one corruption, a column's mean over severities (and layers)."""

    column: str

    def __call__(self, content: Content) -> tuple[Array, Array]:
        rows = Rows.of(content["per_image"])
        values = rows.numbers(self.column)
        return rows.sums(values, np.isfinite(values) & (rows.numbers("severity") > 0))


def corruptions(grid: Grid) -> tuple[str, ...]:
    """All that make sense for the images of the grid; at the scale for tests three."""
    if grid.scale == "smoke":
        return FEW
    side = entry_of(grid.data).size
    return applicable(tuple(CORRUPTIONS), (1 if grid.data in GREY else 3, side, side))[0]


def _asked(grid: Grid, corruption: str | None) -> dict[str, tuple[Ask, ...]]:
    """Both models under a corruption, or on clean images."""
    images = grid.test(grid.s.measure_images)
    severities = FEW_SEVERITIES if grid.scale == "smoke" else SEVERITIES
    question: Any = PredictionQuestion()
    if corruption is not None:
        question = CorruptionQuestion(corruption=corruption, severities=severities)
    return vits(grid, 1, lambda of: Ask(of=of, images=images, question=question))


def _accuracies(grid: Grid, corruption: str | None) -> dict[str, Series]:
    values = Success("accuracy") if corruption is None else Under("correct")
    return {name: Series(cells, values) for name, cells in _asked(grid, corruption).items()}


def _maps(grid: Grid, corruption: str, column: str) -> Series:
    return Series(_asked(grid, corruption)["DiffViT"], Under(column))


def lines(grid: Grid) -> list[Line]:
    table = _compared("clean", _accuracies(grid, None), "accuracy")
    for name in corruptions(grid):
        table += _compared(name, _accuracies(grid, name), READING)
        table += _ece_lines(grid, name)
        for column, reading in (("cos", "cos of the changes of A1 and A2"), ("residue", "1 / CMRR, maps")):
            table.append(line(Label("DiffViT", name), _maps(grid, name, column), reading, unit=""))
    return table


def _compared(where: str, of: dict[str, Series], reading: str) -> list[Line]:
    listed = [line(Label(model, where), series, reading) for model, series in of.items()]
    return [*listed, difference_line(Label("DiffViT - ViT", where), of["DiffViT"], of["ViT"], reading)]


def _ece_lines(grid: Grid, name: str) -> list[Line]:
    """Of each model, and of the DiffViT minus the ViT of the same seed."""
    of = _asked(grid, name)
    listed = [_ece_line(Label(model, name), cells) for model, cells in of.items()]
    return [*listed, _ece_line(Label("DiffViT - ViT", name), of["DiffViT"], of["ViT"])]


def _ece_line(label: Label, cells: tuple[Ask, ...], minus: tuple[Ask, ...] = ()) -> Line:
    """Of one model, or less that of another, seed by seed. Its interval is Student's over seeds: the error of calibration is no
    mean over images. All seeds are asked about the same images, so it does not cover the choice of these."""

    def read(answers: Answers) -> dict[str, Any]:
        of_seeds = _ece_of_seeds(answers, cells)
        if minus:
            of_seeds = of_seeds - _ece_of_seeds(answers, minus)
        estimate = mean_interval(of_seeds)
        images = answers(cells[0])["severities"][0]["accuracy"]["n"]
        interval = None if estimate["interval"] is None else tuple(estimate["interval"])
        sizes = {"n": images, "seeds": len(cells), "note": "interval over seeds, on the same images"}
        return {"value": estimate["value"], "interval": interval, **sizes}

    unit: Unit = "points" if minus else "%"
    return Line(label=label, reading=ECE, cells=(*cells, *minus), read=read, unit=unit)


def _ece_of_seeds(answers: Answers, cells: tuple[Ask, ...]) -> Array:
    """(S,): mean over severities, without the clean images"""
    each = [[part["ece"]["value"] for part in answers(cell)["severities"][1:]] for cell in cells]
    of_seeds: Array = np.array(each, dtype=np.float64).mean(axis=1)
    return of_seeds


def predictions(grid: Grid) -> list[Prediction]:
    """E5: under every noise the ViT loses more accuracy than the DiffViT. E6: corruptions under which the changes of the two maps
    are more alike are those under which the DiffViT is ahead by more (clean accuracy is the same for all, so ranks are those of
    the accuracy lost). Corruptions of one family are alike."""
    clean, listed = _accuracies(grid, None), []
    every = corruptions(grid)
    for name in every:
        if CORRUPTIONS[name].family == "noise":
            here = _accuracies(grid, name)
            four = [clean["ViT"], here["ViT"], clean["DiffViT"], here["DiffViT"]]
            what = f"accuracy lost under {name}, ViT - DiffViT"
            listed.append(predict("E5", what, "noise", "accuracy lost", four, difference_of_gaps))
    alike = [_maps(grid, name, "cos") for name in every]
    ahead = [Group((of["DiffViT"], of["ViT"]), difference) for of in (_accuracies(grid, name) for name in every)]
    what = f"rank correlation over {len(every)} corruptions: cos of changes, and how far the DiffViT is ahead"
    families = [CORRUPTIONS[name].family for name in every]
    listed.append(
        predict_ranks("E6", what, "corruptions", "accuracy", [(alike, ahead)], over="corruptions", clusters=families)
    )
    return listed


def _more_classes(grid: Grid) -> Grid:
    """The same about the second data set of the scale, where it has one."""
    return replace(grid, data=grid.s.more_classes or grid.data)


STUDIES = (
    Study(
        name="corrupted",
        claims=("E5", "E6"),
        aliases=("natural-noise",),
        title=lambda grid: f"Natural corruptions: {data_name(grid.data)}, depth 1",
        question="Does differential attention help against noise, and do the changes of its maps say under which corruption?",
        minutes=18.1,
        lines=lines,
        predictions=predictions,
    ),
    Study(
        name="corrupted-more-classes",
        title=lambda grid: f"Natural corruptions: {data_name(_more_classes(grid).data)}, depth 1",
        question="Does differential attention help against noise where there are more classes?",
        minutes=18.1,
        lines=lambda grid: lines(_more_classes(grid)),
    ),
)
