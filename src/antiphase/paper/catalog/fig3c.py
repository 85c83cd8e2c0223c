"""Figure 3c: the L2 perturbation that Carlini-Wagner needs, against depth."""

from __future__ import annotations

import numpy as np

from antiphase.paper.contrasts import Series, along_depth, beyond, distance, line, predict_sum, success
from antiphase.paper.grid import AskVit, Grid, crossover_line, vit_series, vits_under
from antiphase.paper.study import FIGURE_ONLY, Answers, Label, Line, Prediction, Study, Tick

QUANTILES = {"median": 0.5, "90 %": 0.9, "95 %": 0.95, "99 %": 0.99, "largest": 1.0}  # the largest is one outlier


def _cw(grid: Grid) -> AskVit:
    return vits_under(grid, grid.cw(), grid.s.cw_images)


def _distances(grid: Grid, depth: int, quantile: float) -> dict[str, Series]:
    return vit_series(grid, depth, _cw(grid), distance, quantile)


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for depth in grid.depths:
        at = Tick.at("depth", depth)
        for what, quantile in QUANTILES.items():
            for name, series in _distances(grid, depth, quantile).items():
                reference = FIGURE_ONLY if what == "largest" else None
                table.append(line(Label(name, at), series, f"CW l2, {what}", reference=reference, unit=""))
        for name, series in vit_series(grid, depth, _cw(grid), success("asr_correct")).items():
            table.append(line(Label(name, at), series, "share of correct images that CW fools"))
    pairs = [(d["ViT"], d["DiffViT"]) for d in (_distances(grid, depth, 0.5) for depth in grid.depths)]
    return [*table, crossover_line(grid, Label("crossover depth", "CW"), pairs, "- median CW l2")]


def _usual_radius(grid: Grid, answers: Answers) -> float:
    """The median over all depth-1 DiffViTs of the distance at which an image falls."""
    sizes = [
        size[counts > 0] for size, counts in map(distance, map(answers, _distances(grid, 1, 0.5)["DiffViT"].cells))
    ]
    return float(np.quantile(np.concatenate(sizes), 0.5, method="inverted_cdf"))


def _survivors(grid: Grid, depth: int) -> Series:
    """Of the correct images of DiffViTs of a depth, those that are still right where half of the depth-1 models' images fell.

    A distance that Carlini-Wagner did not find is censored, not missing: such an image is a survivor.
    """
    cells = _distances(grid, depth, 0.5)["DiffViT"].cells
    return Series(cells, distance, values_from=lambda answers: beyond(_usual_radius(grid, answers)))


def predictions(grid: Grid) -> list[Prediction]:
    """K5: the deeper the DiffViT, the more of its images survive the radius at which half fall at depth 1."""
    deepest = max(grid.depths)
    if deepest == 1:
        return []
    grown = along_depth(grid.depths, lambda depth: [_survivors(grid, depth)])
    name = f"rise, from depth 1 to {deepest}, of images of DiffViT that need a larger L2 perturbation than half do at depth 1"
    return [predict_sum("K5", name, grid.data, "CW l2, censored", grown)]


STUDIES = (
    Study(
        name="fig3c",
        claims=("K5",),
        title="Figure 3c: the L2 perturbation that Carlini-Wagner needs, against depth",
        question="Does a deeper DiffViT need a larger perturbation?",
        minutes=29.5,
        priced=True,
        lines=lines,
        predictions=predictions,
    ),
)
