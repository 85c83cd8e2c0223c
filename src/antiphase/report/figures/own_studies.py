"""Studies of our own that have a figure of their own kind, by name; any other study's is drawn by `study_figure`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from antiphase.report.figures.frontier import frontier_figure
from antiphase.report.figures.over_training import OVER_TRAINING
from antiphase.report.figures.paper_figures import Row, paper_figure
from antiphase.report.page_parts import Figure

Draw = Callable[[str, Sequence[Row]], Figure | None]  # from the name of the figure and the lines of the study


def _over_training(name: str, lines: Sequence[Row]) -> Figure | None:
    drawn = paper_figure(OVER_TRAINING, {OVER_TRAINING.name: lines})
    return None if drawn is None else replace(drawn, name=name)


OF_STUDY: dict[str, Draw] = {"remedies": frontier_figure, OVER_TRAINING.name: _over_training}
