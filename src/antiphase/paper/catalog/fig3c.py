"""Figure 3c: the L2 perturbation that Carlini-Wagner needs, against depth."""

from __future__ import annotations

import numpy as np

from antiphase.paper.contrasts import along_depth, predict_sum
from antiphase.paper.grid import AskVit, Grid, crossover_line, vit_series, vits_under
from antiphase.paper.series import Series, Success, distance, fooled_within, line
from antiphase.paper.study import FIGURE_ONLY, Answers, Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import data_name, depths

RADII = (
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.125,
    0.15,
    0.2,
    0.25,
    0.3,
    0.4,
    0.5,
    0.6,
    0.8,
    1,
    1.5,
    2,
)  # L2, of pixels in [0, 1]
QUANTILES = {"median": 0.5, "90 %": 0.9, "95 %": 0.95, "99 %": 0.99, "largest": 1.0}  # the largest is one outlier


def _cw(grid: Grid) -> AskVit:
    return vits_under(grid, grid.cw(), grid.s.cw_images)


def _distances(grid: Grid, depth: int, quantile: float) -> dict[str, Series]:
    return vit_series(grid, depth, _cw(grid), distance, quantile)


def _radius_lines(grid: Grid) -> list[Line]:
    """Attack success as a function of the L2 radius, at every depth: what the paper's panel draws."""
    return [
        line(
            Label(name, f"depth {depth}", Tick.at("L2 radius", radius)),
            series,
            "share of correct images fooled within an L2 radius",
            reference=FIGURE_ONLY,
        )
        for depth in grid.depths
        for radius in RADII
        for name, series in vit_series(grid, depth, _cw(grid), fooled_within(radius)).items()
    ]


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for depth in grid.depths:
        at = Tick.at("depth", depth)
        for what, quantile in QUANTILES.items():
            for name, series in _distances(grid, depth, quantile).items():
                reference = FIGURE_ONLY if what == "largest" else None
                table.append(line(Label(name, at), series, f"CW l2, {what}", reference=reference, unit=""))
        for name, series in vit_series(grid, depth, _cw(grid), Success("asr_correct")).items():
            table.append(line(Label(name, at), series, "share of correct images that CW fools"))
    pairs = [(d["ViT"], d["DiffViT"]) for d in (_distances(grid, depth, 0.5) for depth in grid.depths)]
    crossing = crossover_line(grid, Label("crossover depth", "CW"), pairs, "- median CW l2")
    return [*table, crossing, *_radius_lines(grid)]


def _usual_radius(grid: Grid, answers: Answers) -> float:
    """The median over all depth-1 DiffViTs of the distance at which an image falls."""
    sizes = [
        size[counts > 0] for size, counts in map(distance, map(answers, _distances(grid, 1, 0.5)["DiffViT"].cells))
    ]
    return float(np.quantile(np.concatenate(sizes), 0.5, method="inverted_cdf"))


def _fooled_early(grid: Grid, depth: int) -> Series:
    """Of the correct images of DiffViTs of a depth, those that fall within the radius at which half fall at depth 1.

    A distance that Carlini-Wagner did not find is censored, not missing: such an image has not fallen.
    """
    cells = _distances(grid, depth, 0.5)["DiffViT"].cells
    return Series(cells, distance, values_from=lambda answers: fooled_within(_usual_radius(grid, answers)))


def predictions(grid: Grid) -> list[Prediction]:
    """K5: the deeper the DiffViT, the fewer of its images fall within the radius at which half fall at depth 1."""
    deepest = max(grid.depths)
    if len(grid.depths) == 1:
        return []
    fall = along_depth(grid.depths, lambda depth: [_fooled_early(grid, depth)], sign=-1)
    name = (
        f"fall, from depth 1 to {deepest}, of images of DiffViT that the L2 radius fools at which half fall at depth 1"
    )
    return [predict_sum("K5", name, grid.data, "CW l2, censored", fall)]


STUDIES = (
    Study(
        name="fig3c",
        claims=("K5",),
        title=lambda grid: (
            f"Figure 3c: attack success of Carlini-Wagner against its L2 perturbation, {depths(grid.depths)}, "
            f"{data_name(grid.data)}"
        ),
        question="Does a deeper DiffViT need a larger perturbation?",
        minutes=112.6,
        lines=lines,
        predictions=predictions,
    ),
)
