"""Figure 6: three random restarts, and what is broken by any of them. The cells are those of figures 2a and 3a."""

from __future__ import annotations

from antiphase.measures.bootstrap import difference
from antiphase.paper.catalog import fig2, fig3
from antiphase.paper.contrasts import difference_line, line, predict
from antiphase.paper.grid import VIT_NAMES, Grid, depth_lines
from antiphase.paper.study import FIGURE_ONLY, Label, Line, Prediction, Study
from antiphase.paper.titles import any_restart, data_names

READINGS = {"union_change": "asr_change", "union_correct": "asr_correct"}  # any restart; mean over restarts


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for data in fig2.data_sets(grid):
        for tick, attack in fig2.pixels(grid).items():
            for union, mean in READINGS.items():
                unions, means = (fig2.series(grid, data, attack, reading) for reading in (union, mean))
                reference = FIGURE_ONLY if union == "union_change" else None
                for name in VIT_NAMES:
                    label = Label(name, data, tick)
                    table.append(line(label, unions[name], union, reference=reference))
                    table.append(difference_line(label, unions[name], means[name], f"{union} - {mean}"))
    return [*table, *depth_lines(grid, fig3.pgd(grid), tuple(READINGS))]


def predictions(grid: Grid) -> list[Prediction]:
    """K11: a union is above the mean for both models at every budget, and what figures 2a and 3a show stays."""
    listed: list[Prediction] = []
    for union, mean in READINGS.items():
        for data in fig2.data_sets(grid):
            for tick, attack in fig2.pixels(grid).items():
                unions, means = (fig2.series(grid, data, attack, reading) for reading in (union, mean))
                where = str(Label(data, tick))
                for name in VIT_NAMES:
                    pair = [unions[name], means[name]]
                    listed.append(predict("K11", f"union - mean, {name}, {where}", data, union, pair, difference))
                order = [unions["DiffViT"], unions["ViT"]]
                listed.append(predict("K11", f"union of DiffViT - ViT, {where}", data, union, order, difference))
        small = next(iter(fig3.pgd(grid).values()))
        listed += fig3.crossing(grid, "K11", f"union, PGD {grid.middle}", small, union)
    return listed


STUDIES = (
    Study(
        name="fig6",
        claims=("K11",),
        title=lambda grid: (
            f"Figure 6: fooled by {any_restart(grid.s.pgd_restarts)} of PGD, {data_names(fig2.data_sets(grid))}"
        ),
        question="Do restarts raise attack success, and do the order of the models and the depth trend stay?",
        minutes=40.2,
        priced=True,
        lines=lines,
        predictions=predictions,
    ),
)
