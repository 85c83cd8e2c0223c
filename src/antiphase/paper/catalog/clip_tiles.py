"""CLIP on tiles: experiments N1 to N3 (docs/method.md 3.3). In minutes a small CLIP learns what is there and how many, not where.

Surrogates trained here, at every scale: they decide no claim of the papers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from antiphase.clip_scales import TILE_SCALES
from antiphase.measures.questions import PredictionQuestion
from antiphase.models.config import Attention, Differential, Schedule, Softmax
from antiphase.paper.grid import Grid, tile_clips, tile_images
from antiphase.paper.questions import Ask, Evaluate, Model
from antiphase.paper.series import Series, Success, difference_line, line
from antiphase.paper.study import SURROGATE, Answers, Label, Line, Study

Towers = tuple[tuple[Attention, ...], tuple[Attention, ...]]  # vision, text
READINGS = {  # of an evaluation: its task and the names of its rows
    "text retrieval R@5": "retrieval",
    "image retrieval R@5": "retrieval",
    "pairs": "pairs",
    "pairs: left or right": "pairs",
    "pairs: above or below": "pairs",
    "pairs: which object": "pairs",
    "pairs: how many": "pairs",
}


def half_by_schedule(depth: int) -> tuple[Attention, ...]:
    """lambda_init by the schedule in the first half of the layers, 0.8 in the others."""
    schedule = Schedule()
    return (Differential(lambda_init=tuple(schedule.at(k) if k < depth / 2 else 0.8 for k in range(depth))),)


def _variants(grid: Grid) -> dict[str, Towers]:
    """Which tower is differential (N1, N3), lambda_init (N2), and lambda_init by schedule, fixed, or a mixture of both."""
    scale, fixed, schedule = TILE_SCALES[grid.scale], Differential(), Differential(lambda_init=Schedule())
    softmax: tuple[Attention, ...] = (Softmax(),)
    return {
        "CLIP": (softmax, softmax),
        "DiffCLIP": ((fixed,), (fixed,)),
        "DiffCLIP-dagger": ((fixed,), softmax),
        "DiffCLIP-dagger, lambda_init 0.5": ((Differential(lambda_init=0.5),), softmax),
        "DiffCLIP-dagger, lambda_init 1, gain fixed at 0.2": (
            (Differential(lambda_init=1.0, out_scale="fixed"),),
            softmax,
        ),
        "DiffCLIP-star": ((schedule,), (schedule,)),
        "DiffCLIP, schedule in the vision tower, 0.8 in the text tower": ((schedule,), (fixed,)),
        "DiffCLIP, schedule in the first half of the layers, then 0.8": (
            half_by_schedule(scale.depth),
            half_by_schedule(scale.text_depth),
        ),
    }


def lines(grid: Grid) -> list[Line]:
    models = {name: tile_clips(grid, *towers) for name, towers in _variants(grid).items()}
    table: list[Line] = []
    zero_shot = {name: _zero_shot(grid, each) for name, each in models.items()}
    for name, series in zero_shot.items():
        table.append(line(Label(name), series, "zero-shot accuracy"))
        if name != "CLIP":
            apart = Label(f"{name} - CLIP")
            table.append(difference_line(apart, series, zero_shot["CLIP"], "zero-shot accuracy"))
    for reading in READINGS:
        for name, each in models.items():
            table.append(_evaluated(grid, Label(name), reading, each))
            if name != "CLIP":
                table.append(_apart(grid, Label(f"{name} - CLIP"), reading, each, models["CLIP"]))
    return table


def _zero_shot(grid: Grid, models: list[Model]) -> Series:
    images = tile_images(grid)
    asked = tuple(Ask(of=model, images=images, question=PredictionQuestion()) for model in models)
    return Series(asked, Success("accuracy"))


def _cells(grid: Grid, reading: str, models: list[Model]) -> tuple[Evaluate, ...]:
    n = 64 if grid.scale == "smoke" else None  # pictures; pairs of statements are always all
    data = tile_images(grid).data
    task: Any = READINGS[reading]
    return tuple(Evaluate(of=model, data=data, task=task, n=n) for model in models)


def _evaluated(grid: Grid, label: Label, reading: str, models: list[Model]) -> Line:
    cells = _cells(grid, reading, models)

    def read(answers: Answers) -> dict[str, Any]:
        values, error, n, chance = _of_seeds(answers, cells, reading)
        note = f"{SURROGATE}, chance {100 * chance:.2g} %" if chance is not None else SURROGATE
        return {**_interval(values, error, bounded=True), "n": n, "seeds": len(cells), "note": note}

    return Line(label=label, reading=reading, cells=cells, read=read)


def _apart(grid: Grid, label: Label, reading: str, models: list[Model], base: list[Model]) -> Line:
    ours, theirs = (_cells(grid, reading, each) for each in (models, base))

    def read(answers: Answers) -> dict[str, Any]:
        (a, e, n, _), (b, f, _, _) = (_of_seeds(answers, cells, reading) for cells in (ours, theirs))
        note = (
            f"{SURROGATE}; images are taken as drawn for each model anew, which makes the interval wider than need be"
        )
        return {**_interval(a - b, math.hypot(e, f)), "n": n, "seeds": len(ours), "note": note}

    return Line(label=label, reading=reading, cells=(*ours, *theirs), read=read, unit="points")


def _of_seeds(
    answers: Answers, cells: tuple[Evaluate, ...], reading: str
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], float, int, float | None]:
    """A row's values by seed, the standard error of one of them over images, n and what chance gives."""
    rows = [next(row for row in answers(cell)["rows"] if row["name"] == reading) for cell in cells]
    widths = [row["interval"][1] - row["interval"][0] for row in rows]
    return (
        np.array([row["value"] for row in rows]),
        float(np.mean(widths)) / (2 * 1.96),
        rows[0]["n"],
        rows[0].get("chance"),
    )


def _interval(values: Any, error: float, *, bounded: bool = False) -> dict[str, Any]:
    """Mean over seeds; a normal interval from their spread and from the images, which all seeds share."""
    between = float(np.var(values, ddof=1)) / len(values) if len(values) > 1 else 0.0
    mean, half = float(np.mean(values)), 1.96 * math.sqrt(between + error**2)
    low, high = mean - half, mean + half
    return {"value": mean, "interval": (max(0.0, low), min(1.0, high)) if bounded else (low, high)}


STUDIES = (
    Study(
        name="clip-tiles",
        aliases=("tiles",),
        title="CLIP on tiles: retrieval, zero-shot and pairs of statements by variant of DiffCLIP",
        question="What do differential attention in one tower or both, lambda_init and a schedule do to a small CLIP that "
        "learns who stands where?",
        minutes=204.1,
        lines=lines,
    ),
)
