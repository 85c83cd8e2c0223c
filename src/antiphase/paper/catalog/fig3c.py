"""Figure 3c: the L2 perturbation that Carlini-Wagner needs, against depth."""

from __future__ import annotations

from antiphase.measures.bootstrap import log_ratio
from antiphase.measures.stats import Array
from antiphase.paper.contrasts import Series, Values, distance, line, predict, success
from antiphase.paper.grid import AskVit, Grid, crossover_line, vit_series, vits_under
from antiphase.paper.study import FIGURE_ONLY, Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import data_name, depths
from antiphase.store import Content

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


def fooled_within(radius: float) -> Values:
    """Of images first correct, those that a perturbation no larger than this fools."""

    def values(content: Content) -> tuple[Array, Array]:
        size, correct = distance(content)
        return (size <= radius) * correct, correct

    return values


def _radius_lines(grid: Grid) -> list[Line]:
    """Attack success as a function of the L2 radius, at every depth: what the paper's panel draws."""
    return [
        line(
            Label(name, f"depth {depth}", Tick.at("L2 radius", radius)),
            series,
            "share of correct images fooled within an L2 radius",
            reference=FIGURE_ONLY,
        )
        for depth in grid.s.depths
        for radius in RADII
        for name, series in vit_series(grid, depth, _cw(grid), fooled_within(radius)).items()
    ]


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
    crossing = crossover_line(grid, Label("crossover depth", "CW"), pairs, "- median CW l2")
    return [*table, crossing, *_radius_lines(grid)]


def predictions(grid: Grid) -> list[Prediction]:
    deep = grid.deepest
    grown = [_distances(grid, depth, 0.5)["DiffViT"] for depth in (deep, 1)]
    name = f"log of median CW l2 of DiffViT, depth {deep} / 1"
    return [predict("K5", name, grid.data, "median CW l2", grown, log_ratio, unit="")]


STUDIES = (
    Study(
        name="fig3c",
        claims=("K5",),
        title=lambda grid: (
            f"Figure 3c: attack success of Carlini-Wagner against its L2 perturbation, {depths(grid.s.depths)}, "
            f"{data_name(grid.data)}"
        ),
        question="Does a deeper DiffViT need a larger perturbation?",
        minutes=29.5,
        priced=True,
        lines=lines,
        predictions=predictions,
    ),
)
