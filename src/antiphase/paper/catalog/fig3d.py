"""Figure 3d: the local Lipschitz estimate of the maps, against depth."""

from __future__ import annotations

import numpy as np

from antiphase.measures.questions import Estimator, LipschitzQuestion
from antiphase.measures.seed_intervals import log_ratio
from antiphase.paper.contrasts import along_depth, predict, predict_sum
from antiphase.paper.grid import AskVit, Grid, vit_series
from antiphase.paper.questions import Ask, Train
from antiphase.paper.series import Series, line, mean_of
from antiphase.paper.study import FIGURE_ONLY, Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import data_name, depths


def lipschitz(grid: Grid, estimator: Estimator = "sample") -> AskVit:
    """Asked of a model on images of the data that it was trained on."""
    n = grid.s.measure_images if estimator == "sample" else grid.s.sharp_images
    question = LipschitzQuestion(draws=grid.s.lipschitz_draws, estimator=estimator)

    def ask(of: Train) -> Ask:
        return Ask(of=of, images=grid.test(n, of.data), question=question)

    return ask


def sampled(grid: Grid, depth: int, layer: int | None = None, relative_to: str | None = None) -> dict[str, Series]:
    """L-sample of one layer, or its mean over the layers."""
    return vit_series(grid, depth, lipschitz(grid), mean_of("max", layer, relative_to=relative_to))


def _per_head(name: str, grid: Grid) -> float:
    """Twins differ in their number of heads: the Frobenius norm over heads is divided by the root of it."""
    return float(np.sqrt(grid.s.heads / (1 if name == "ViT" else 2)))


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for depth in grid.depths:
        at = Tick.at("depth", depth)
        for name, series in sampled(grid, depth).items():
            reading = "L-sample of maps, mean over layers"
            table.append(line(Label(name, at), series, reading, reference=FIGURE_ONLY, unit=""))
            heads = _per_head(name, grid)
            table.append(line(Label(name, at), series, "the same per head", unit="", divided_by=heads))
        for name, series in sampled(grid, depth, relative_to="size").items():
            table.append(line(Label(name, at), series, "the same relative to the size of the map", unit=""))
        for column in ("power", "ascent"):
            for name, series in vit_series(grid, depth, lipschitz(grid, "sharp"), mean_of(column)).items():
                table.append(line(Label(name, at), series, f"L-{column} of maps, mean over layers", unit=""))
    return table


def predictions(grid: Grid) -> list[Prediction]:
    """K6: L of the DiffViT grows with depth, over all depths, and is larger than the ViT's at every depth."""
    reading, deepest = "L-sample", max(grid.depths)
    listed: list[Prediction] = []
    if len(grid.depths) > 1:
        grows = along_depth(grid.depths, lambda depth: [sampled(grid, depth)["DiffViT"]], np.log)
        name = f"rise of log L of DiffViT from depth 1 to {deepest}"
        listed.append(predict_sum("K6", name, grid.data, reading, grows, unit="", says="the rise with depth"))
    for depth in grid.depths:
        both = sampled(grid, depth)
        larger, name = [both["DiffViT"], both["ViT"]], f"log L of DiffViT / ViT, depth {depth}"
        says = "which model's is larger"
        listed.append(predict("K6", name, grid.data, reading, larger, log_ratio, unit="", says=says))
    return listed


STUDIES = (
    Study(
        name="fig3d",
        claims=("K6",),
        title=lambda grid: f"Figure 3d: local Lipschitz of the maps, {depths(grid.depths)}, {data_name(grid.data)}",
        question="Does the local Lipschitz estimate rise with depth, and is it larger for the DiffViT?",
        minutes=137.3,
        lines=lines,
        predictions=predictions,
    ),
)
