"""Figure 3c: the L2 perturbation that Carlini-Wagner needs, against depth."""

from __future__ import annotations

from antiphase.measures.bootstrap import log_ratio
from antiphase.paper.contrasts import Series, distance, line, predict, success
from antiphase.paper.grid import AskVit, Grid, crossover_line, vit_series, vits_under
from antiphase.paper.study import FIGURE_ONLY, Label, Line, Prediction, Study, Tick

QUANTILES = {"median": 0.5, "90 %": 0.9, "95 %": 0.95, "99 %": 0.99, "largest": 1.0}  # the largest is one outlier


def _cw(grid: Grid) -> AskVit:
    return vits_under(grid, grid.cw(), grid.s.cw_images)


def _distances(grid: Grid, depth: int, quantile: float) -> dict[str, Series]:
    return vit_series(grid, depth, _cw(grid), distance, quantile)


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for depth in grid.s.depths:
        at = Tick.at("depth", depth)
        for what, quantile in QUANTILES.items():
            for name, series in _distances(grid, depth, quantile).items():
                reference = FIGURE_ONLY if what == "largest" else None
                table.append(line(Label(name, at), series, f"CW l2, {what}", reference=reference, unit=""))
        for name, series in vit_series(grid, depth, _cw(grid), success("asr_correct")).items():
            table.append(line(Label(name, at), series, "share of correct images that CW fools"))
    pairs = [(d["ViT"], d["DiffViT"]) for d in (_distances(grid, depth, 0.5) for depth in grid.s.depths)]
    return [*table, crossover_line(grid, Label("crossover depth", "CW"), pairs, "- median CW l2")]


def predictions(grid: Grid) -> list[Prediction]:
    deep = grid.deepest
    grown = [_distances(grid, depth, 0.5)["DiffViT"] for depth in (deep, 1)]
    name = f"log of median CW l2 of DiffViT, depth {deep} / 1"
    return [predict("K5", name, grid.data, "median CW l2", grown, log_ratio, unit="")]


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
