"""Figure 3d: the local Lipschitz estimate of the maps, against depth."""

from __future__ import annotations

import numpy as np

from antiphase.measures.bootstrap import log_ratio
from antiphase.measures.questions import Estimator, LipschitzQuestion
from antiphase.paper.contrasts import Series, line, mean_of, predict
from antiphase.paper.grid import AskVit, Grid, vit_series
from antiphase.paper.questions import Ask, Train
from antiphase.paper.study import FIGURE_ONLY, Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import data_name, depths


def lipschitz(grid: Grid, estimator: Estimator = "sample") -> AskVit:
    """Asked of a model on images of the data that it was trained on."""
    n = grid.s.measure_images if estimator == "sample" else grid.s.sharp_images
    question = LipschitzQuestion(draws=grid.s.lipschitz_draws, estimator=estimator)

    def ask(of: Train) -> Ask:
        return Ask(of=of, images=grid.test(n, of.data), question=question)

    return ask


def sampled(grid: Grid, depth: int, layer: int | None = None) -> dict[str, Series]:
    """L-sample of one layer, or its mean over the layers."""
    return vit_series(grid, depth, lipschitz(grid), mean_of("max", layer))


def _per_head(name: str, grid: Grid) -> float:
    """Twins differ in their number of heads: the Frobenius norm over heads is divided by the root of it."""
    return float(np.sqrt(grid.s.heads / (1 if name == "ViT" else 2)))


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for depth in grid.s.depths:
        at = Tick.at("depth", depth)
        for name, series in sampled(grid, depth).items():
            reading = "L-sample of maps, mean over layers"
            table.append(line(Label(name, at), series, reading, reference=FIGURE_ONLY, unit=""))
            heads = _per_head(name, grid)
            table.append(line(Label(name, at), series, "the same per head", unit="", divided_by=heads))
        for column in ("power", "ascent"):
            for name, series in vit_series(grid, depth, lipschitz(grid, "sharp"), mean_of(column)).items():
                table.append(line(Label(name, at), series, f"L-{column} of maps, mean over layers", unit=""))
    return table


def predictions(grid: Grid) -> list[Prediction]:
    """K6: L grows from depth 1 to the deepest in the DiffViT, and is larger than the ViT's at every depth."""
    deep, reading = grid.deepest, "L-sample"
    grows = [sampled(grid, depth)["DiffViT"] for depth in (deep, 1)]
    listed = [predict("K6", f"log L of DiffViT, depth {deep} / 1", grid.data, reading, grows, log_ratio, unit="")]
    for depth in (d for d in grid.s.depths if d <= deep):
        both = sampled(grid, depth)
        larger, name = [both["DiffViT"], both["ViT"]], f"log L of DiffViT / ViT, depth {depth}"
        listed.append(predict("K6", name, grid.data, reading, larger, log_ratio, unit=""))
    return listed


STUDIES = (
    Study(
        name="fig3d",
        claims=("K6",),
        title=lambda grid: f"Figure 3d: local Lipschitz of the maps, {depths(grid.s.depths)}, {data_name(grid.data)}",
        question="Does the local Lipschitz estimate rise with depth, and is it larger for the DiffViT?",
        minutes=35.2,
        priced=True,
        lines=lines,
        predictions=predictions,
    ),
)
