"""Figure 6: three random restarts, and what is broken by any of them. The cells are those of figures 2a and 3a."""

from __future__ import annotations

from antiphase.measures.bootstrap import difference
from antiphase.paper.catalog import fig2, fig3
from antiphase.paper.contrasts import Side, contrast, difference_line, line, success
from antiphase.paper.grid import Setting, depth_lines, every
from antiphase.paper.questions import Cell
from antiphase.paper.study import FIGURE_ONLY, Found, Line, Prediction, Study

READINGS = {"union_change": "asr_change", "union_correct": "asr_correct"}  # any restart; mean over restarts


def cells(setting: Setting) -> list[Cell]:
    at_depth_1 = [
        cell
        for data in fig2.data_sets(setting)
        for attack in fig2.pixels(setting).values()
        for side in fig2.twins(setting, data, attack)
        for cell in side
    ]
    return [*at_depth_1, *every(setting, list(fig3.pgd(setting).values()))]


def lines(setting: Setting, found: Found) -> list[Line]:
    table: list[Line] = []
    for data in fig2.data_sets(setting):
        for label, attack in fig2.pixels(setting).items():
            for union, mean in READINGS.items():
                both = fig2.twins(setting, data, attack)
                told = FIGURE_ONLY if union == "union_change" else None
                for name, of_seeds in zip(("ViT", "DiffViT"), both):
                    one, average = Side(of_seeds, success(union)), Side(of_seeds, success(mean))
                    where = f"{name}, {data}, {label}"
                    table.append(line(found, where, one, union, reference=told))
                    table.append(difference_line(found, where, one, average, f"{union} - {mean}"))
    return [*table, *depth_lines(setting, found, fig3.pgd(setting), tuple(READINGS))]


def contrasts(setting: Setting) -> list[Prediction]:
    """K11: a union is above the mean for both models at every budget, and what figures 2a and 3a show stays."""
    found: list[Prediction] = []
    for union, mean in READINGS.items():
        for data in fig2.data_sets(setting):
            for label, attack in fig2.pixels(setting).items():
                any_run, mean_run = (
                    [Side(cells, success(reading)) for cells in fig2.twins(setting, data, attack)]
                    for reading in (union, mean)
                )
                where = f"{data}, {label}"
                for name, one, average in zip(("ViT", "DiffViT"), any_run, mean_run):
                    pair = [one, average]
                    found.append(contrast("K11", f"union - mean, {name}, {where}", data, union, pair, difference))
                order = list(reversed(any_run))
                found.append(contrast("K11", f"union of DiffViT - ViT, {where}", data, union, order, difference))
        small = next(iter(fig3.pgd(setting).values()))
        found += fig3.crossing(setting, "K11", f"union, PGD {setting.middle}", small, union)
    return found


STUDIES = (
    Study(
        name="fig6",
        title="Figure 6: the union of three restarts",
        question="Do restarts raise attack success, and do the order of the models and the depth trend stay?",
        minutes=40.2,
        priced=True,
        cells=cells,
        lines=lines,
        contrasts=contrasts,
    ),
)
