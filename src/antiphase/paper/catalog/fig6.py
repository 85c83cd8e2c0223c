"""Figure 6: three random restarts, and what is broken by any of them. The cells are those of figures 2a and 3a."""

from __future__ import annotations

from antiphase.measures.seed_intervals import difference
from antiphase.paper.catalog import fig2, fig3
from antiphase.paper.contrasts import Group, predict_sum
from antiphase.paper.grid import VIT_NAMES, Grid, depth_lines
from antiphase.paper.series import difference_line, line
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
    """K11: what single runs say (which model is easier to fool, and what depth does) any of the restarts says too."""
    listed: list[Prediction] = []
    small = next(iter(fig3.pgd(grid).values()))
    places = [(data, tick, attack) for data in fig2.data_sets(grid) for tick, attack in fig2.pixels(grid).items()]
    among = len(places) + 2 * (len(grid.depths) > 1)
    for union, mean in READINGS.items():
        for data, tick, attack in places:
            any_run, single = (
                [Group(tuple(fig2.gap(grid, data, attack, reading)), difference)] for reading in (union, mean)
            )
            name = f"ASR of {Label('DiffViT - ViT', data, tick)}, any restart, in the direction of single runs"
            says = "the order of the models"
            listed.append(predict_sum("K11", name, data, union, any_run, direction_of=single, among=among, says=says))
        if len(grid.depths) > 1:
            like = fig3.trends(grid, small, mean)
            for what, groups in fig3.trends(grid, small, union).items():
                name = f"{what} with depth, PGD {grid.middle}, any restart, in the direction of single runs"
                part = f"{grid.data}, depth"
                says = "what depth does"
                listed.append(
                    predict_sum("K11", name, part, union, groups, direction_of=like[what], among=among, says=says)
                )
    return listed


STUDIES = (
    Study(
        name="fig6",
        claims=("K11",),
        title=lambda grid: (
            f"Figure 6: fooled by {any_restart(grid.s.pgd_restarts)} of PGD, {data_names(fig2.data_sets(grid))}"
        ),
        question="Do restarts raise attack success, and do the order of the models and the depth trend stay?",
        minutes=165.8,
        lines=lines,
        predictions=predictions,
    ),
)
