"""Fragility over training: after which epoch is the DiffViT easier to fool, and does lambda lead or follow? Our own question.

Models of depth 1 and of one larger depth are looked at after epochs that are fixed before any run, and models whose lambda is
learned, fixed, by a schedule or a mixture of these after the last one. The trainings are those of the other studies once more,
with the weights of these epochs kept: cells of their own, so no other cell changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from antiphase.measures.questions import MarginQuestion, Rows
from antiphase.measures.seed_intervals import difference, difference_of_gaps, estimated
from antiphase.measures.stats import Array, holm
from antiphase.models.config import Attention, Differential, Schedule
from antiphase.paper.catalog.clip_tiles import half_by_schedule
from antiphase.paper.catalog.fig4 import lambda_line
from antiphase.paper.catalog.fig5 import alignment_of
from antiphase.paper.contrasts import Group, predict, predict_seed_ranks
from antiphase.paper.grid import VIT_NAMES, Grid
from antiphase.paper.questions import Ask, Train
from antiphase.paper.series import Series, Success, Values, difference_line, line, mean_of, of_trained, trained_lines
from antiphase.paper.study import Answers, Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import data_name
from antiphase.paper.verdict_rule import LEVEL
from antiphase.store import Content

EVERY = 15  # depth 1: a training of at most so many epochs is looked at after each of them
SOME = (1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 80)  # a longer one, and that of a deeper model, after these and the last
DEEPEST, DEEP_SEEDS = 4, 3
READINGS = ("asr_correct", "asr_change")  # robustness is the question here, so correct images decide
ALIGNMENT = "R3"  # finite changes under noise: the co-primary reading, at a thirtieth of the price of R1


# ------------------------------------------------------------------------------------------------- what is looked at, and when


def depths(grid: Grid) -> tuple[int, ...]:
    """1, and the deepest of the grid up to four layers."""
    deeper = [depth for depth in grid.depths if 1 < depth <= DEEPEST]
    return (1, *deeper[-1:])


def epochs(grid: Grid, depth: int) -> tuple[int, ...]:
    """After which models are looked at; the last is the end of training."""
    last = grid.vit(0, depth).training.epochs
    if depth == 1 and last <= EVERY:
        return tuple(range(1, last + 1))
    return (*(epoch for epoch in SOME if epoch < last), last)


def seeds(grid: Grid, depth: int) -> range:
    return grid.seeds(depth) if depth == 1 else grid.seeds(depth)[:DEEP_SEEDS]


def models_after(grid: Grid, depth: int, epoch: int) -> dict[str, list[Train]]:
    """ViTs and DiffViTs with the weights that they had after an epoch, one of each per seed."""
    makers = dict(zip(VIT_NAMES, (grid.vit, grid.diffvit)))
    kept = epochs(grid, depth)[:-1]
    return {
        name: [_after(make(seed, depth), epoch, kept) for seed in seeds(grid, depth)] for name, make in makers.items()
    }


def _after(model: Train, epoch: int, kept: tuple[int, ...]) -> Train:
    """All of one training, the end too: trained again elsewhere a model may take another course."""
    training = replace(model.training, keep_epochs=kept, fit_images=0)
    return replace(model, training=training, after=epoch if epoch in kept else None)


def _attacked(grid: Grid, models: Sequence[Train]) -> tuple[Ask, ...]:
    return tuple(grid.under_attack(model, grid.pgd(grid.middle), grid.s.measure_images) for model in models)


def _success(grid: Grid, depth: int, epoch: int, reading: str) -> dict[str, Series]:
    return {
        name: Series(_attacked(grid, models), Success(reading))
        for name, models in models_after(grid, depth, epoch).items()
    }


def _lambda(grid: Grid, depth: int, epoch: int) -> Series:
    """Mean over layers."""
    models = models_after(grid, depth, epoch)["DiffViT"]
    return of_trained(
        _attacked(grid, models), lambda trained: float(np.mean([layer["lambda"] for layer in trained["lambda"]]))
    )


def _kappa(content: Content) -> tuple[Array, Array]:
    """lambda ||J2|| / ||J1||, over an image's heads and layers"""
    rows = Rows.of(content["rows"])
    values = rows.numbers("lambda") * rows.numbers("rho")
    return rows.sums(values, rows.where(pairs="own") & np.isfinite(values))


BRANCHES: dict[str, Values] = {
    f"{ALIGNMENT}: mean cos": mean_of("cos", pairs="own"),
    f"{ALIGNMENT}: mean rho": mean_of("rho", pairs="own"),
    f"{ALIGNMENT}: mean kappa": _kappa,
}


# ------------------------------------------------------------------------------------------------- lines


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for depth in depths(grid):
        for epoch in epochs(grid, depth):
            table += _lines_after(grid, depth, epoch)
        table += [_appearance_line(grid, depth, reading) for reading in READINGS]
    table += [_rank_line(prediction) for prediction in _lags(grid)]
    for depth in depths(grid):
        for kind, attention in kinds(depth).items():
            table += _kind_lines(grid, depth, kind, attention)
    return table


def _lines_after(grid: Grid, depth: int, epoch: int) -> list[Line]:
    at, table = (f"depth {depth}", Tick.at("epoch", epoch)), []
    both = models_after(grid, depth, epoch)
    for name, models in both.items():
        table += trained_lines(Label(name, *at), models)
    for reading in READINGS:
        of = _success(grid, depth, epoch, reading)
        table += [line(Label(name, *at), series, reading) for name, series in of.items()]
        table.append(difference_line(Label("DiffViT - ViT", *at), of["DiffViT"], of["ViT"], reading))
    aligned = alignment_of(grid, both["DiffViT"], ALIGNMENT)
    table += [
        line(Label("DiffViT", *at), Series(aligned, read), reading, unit="") for reading, read in BRANCHES.items()
    ]
    table.append(lambda_line(Label("DiffViT", *at), both["DiffViT"], None, "lambda, mean over layers"))
    if depth > 1:
        table += [
            lambda_line(Label("DiffViT", f"depth {depth}", f"layer {layer + 1}", at[1]), both["DiffViT"], layer)
            for layer in range(depth)
        ]
    for name, models in both.items():
        cells = _margins(grid, models)
        table.append(line(Label(name, *at), Series(cells, mean_of("margin")), "mean margin", unit=""))
        nearest = Series(cells, _first_order, 0.5)
        table.append(line(Label(name, *at), nearest, "first-order Linf radius, median", unit="", divided_by=1 / 255))
    return table


def _margins(grid: Grid, models: Sequence[Train]) -> tuple[Ask, ...]:
    images = grid.test(grid.s.measure_images)
    return tuple(Ask(of=model, images=images, question=MarginQuestion()) for model in models)


def _first_order(content: Content) -> tuple[Array, Array]:
    """Of images first correct, the Linf distance to the nearest boundary by the gradients at the image."""
    rows = Rows.of(content["rows"])
    sizes = rows.numbers("first_linf")
    return rows.sums(sizes, np.isfinite(sizes))


# ------------------------------------------------------------------------------------------------- when the gap appears


def appears(ps: Sequence[float]) -> int | None:
    """Given p of "no gap" after each epoch, the place of the first epoch from which on there is one after every epoch, corrected
    over all of them (Holm); None where there is none after the last."""
    after = [p < LEVEL for p in holm(list(ps))]
    none = [place for place, there in enumerate(after) if not there]
    first = none[-1] + 1 if none else 0
    return first if first < len(after) else None


def _appearance_line(grid: Grid, depth: int, reading: str) -> Line:
    listed = epochs(grid, depth)
    gaps = [_success(grid, depth, epoch, reading) for epoch in listed]

    def read(answers: Answers) -> dict[str, Any]:
        measured = [estimated([of["DiffViT"].arm(answers), of["ViT"].arm(answers)], difference) for of in gaps]
        first = appears([1.0 if gap is None else gap.p_above() for gap in measured])
        size = {"seeds": len(seeds(grid, depth)), "note": f"Holm's correction over {len(listed)} epochs"}
        return size | ({"text": "none"} if first is None else {"value": float(listed[first])})

    cells = tuple(cell for of in gaps for series in of.values() for cell in series.sources)
    label = Label("DiffViT - ViT", f"depth {depth}")
    return Line(
        label=label, reading=f"{reading}: first epoch from which on it is above 0", cells=cells, read=read, unit=""
    )


# ------------------------------------------------------------------------------------------------- does lambda lead or follow


def _lags(grid: Grid) -> list[Prediction]:
    """Rank correlations over seeds, of how lambda and the gap moved: in the same epoch, the gap one later, the gap one earlier.

    The first listed decides: half of (lead - follow). What shakes both numbers in one epoch and is gone in the next adds the
    same to lead and to follow, so it is in neither direction.
    """
    listed = epochs(grid, 1)
    lam = {epoch: _lambda(grid, 1, epoch) for epoch in listed}
    gap = {epoch: _success(grid, 1, epoch, READINGS[0]) for epoch in listed}
    steps = [
        (
            Group((lam[late], lam[early]), difference),
            Group(
                (gap[late]["DiffViT"], gap[late]["ViT"], gap[early]["DiffViT"], gap[early]["ViT"]), difference_of_gaps
            ),
        )
        for early, late in pairwise(listed)
    ]
    lead = [(moved, later) for (moved, _), (_, later) in pairwise(steps)]
    follow = [(later, moved) for (_, moved), (later, _) in pairwise(steps)]
    less = [(moved, replace(gap_moved, weight=-1.0)) for moved, gap_moved in follow]
    readings = {
        "lead - follow, halved": [*lead, *less],
        "lead: λ, and the gap an epoch later": lead,
        "follow: λ, and the gap an epoch earlier": follow,
        "λ and the gap in the same epoch": steps,
    }
    return [
        predict_seed_ranks("E9", f"rank correlation over seeds, {reading}", "depth 1", reading, pairs)
        for reading, pairs in readings.items()
    ]


def _rank_line(prediction: Prediction) -> Line:
    cells = tuple(cell for group in prediction.groups for series in group.series for cell in series.sources)

    def read(answers: Answers) -> dict[str, Any]:
        for cell in cells:
            answers(cell)  # a contrast does not raise `Missing`
        test = prediction.contrast(lambda series: series.arm(answers))
        if test.value is None:
            return {"text": "does not exist: a seed has no image that is classified correctly"}
        note = f"p {test.p_above:.2g} above 0, {test.p_below:.2g} below, seeds permuted for all epochs at once"
        return {"value": test.value, "seeds": prediction.planned.seeds, "note": note}

    label = Label("changes of lambda and of the gap", "depth 1")
    return Line(label=label, reading=prediction.name, cells=cells, read=read, unit="")


# ------------------------------------------------------------------------------------------------- kinds of lambda


def kinds(depth: int) -> dict[str, tuple[Attention, ...]]:
    """Where lambda comes from. A mixture takes two layers or more."""
    learned, fixed = Differential(), Differential(learned=False)
    alone: dict[str, tuple[Attention, ...]] = {
        "lambda learned": (learned,),
        "lambda fixed at 0.8": (fixed,),
        "lambda_init by schedule": (Differential(lambda_init=Schedule()),),
    }
    if depth == 1:
        return alone
    half = depth // 2
    return alone | {
        "fixed in the first half of the layers and learned in the second": (fixed,) * half
        + (learned,) * (depth - half),
        "by schedule in the first half of the layers and 0.8 in the second": half_by_schedule(depth),
    }


def _kind_lines(grid: Grid, depth: int, kind: str, attention: tuple[Attention, ...]) -> list[Line]:
    own = [grid.diffvit(seed, depth) for seed in seeds(grid, depth)]
    models = [replace(model, model=replace(model.model, attention=attention)) for model in own]
    at = (f"depth {depth}", kind)
    table = trained_lines(Label("DiffViT", *at), models)
    softmax = [grid.vit(seed, depth) for seed in seeds(grid, depth)]
    for reading in READINGS:
        one, base = (Series(_attacked(grid, each), Success(reading)) for each in (models, softmax))
        table.append(line(Label("DiffViT", *at), one, reading))
        table.append(difference_line(Label("DiffViT - ViT", *at), one, base, reading))
    for layer in range(depth):
        table.append(lambda_line(Label("DiffViT", *at, f"layer {layer + 1}"), models, layer, "lambda after training"))
    return table


# ------------------------------------------------------------------------------------------------- claims


def predictions(grid: Grid) -> list[Prediction]:
    """E8: the gap is above 0 after every epoch that is looked at. E9: lambda leads it."""
    appearing = [
        predict(
            "E8",
            f"ASR of DiffViT - ViT, epoch {epoch}",
            "depth 1",
            reading,
            [of["DiffViT"], of["ViT"]],
            difference,
        )
        for reading in READINGS
        for epoch in epochs(grid, 1)
        for of in [_success(grid, 1, epoch, reading)]
    ]
    return [*appearing, *_lags(grid)]


STUDIES = (
    Study(
        name="fragility-over-training",
        claims=("E8", "E9"),
        title=lambda grid: (
            f"Fragility over training: {data_name(grid.data)}, depth {' and '.join(map(str, depths(grid)))}, PGD at {grid.middle}"
        ),
        question="After which epoch is the DiffViT easier to fool than its ViT, does lambda lead or follow, and what if it is "
        "fixed, scheduled or mixed?",
        minutes=313.8,
        lines=lines,
        predictions=predictions,
    ),
)
