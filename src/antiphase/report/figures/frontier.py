"""The frontier of the study remedies: test accuracy against attack success, every recipe a numbered mark.

Colour says the architecture that a recipe starts from, the mark what kind of change it is; numbers stand in the legend. Up and to
the left is better. Shaded: at least as accurate as the plain DiffViT less one point, and fooled no more often than the plain ViT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from matplotlib.lines import Line2D

from antiphase.report.figures.paper_figures import PLACES
from antiphase.report.numbers import scaled
from antiphase.report.page_parts import Figure, columns_of_lines
from antiphase.report.theme import GRID, INK, LEGEND_WIDTH, SOFT, legend_above, legend_rows, letter, look_of

Row = Mapping[str, Any]  # a line of a study
SUCCESS, ACCURACY = "asr_correct", "test_accuracy"
CONFIRMED, ELSEWHERE, RECIPE = "confirmation", "elsewhere", "recipe"
MARKS = {"plain": "*", "structure": "s", "penalty": "^", "control": "o", "place": "D"}
OF_DIFFVIT = "v"  # a control of a DiffViT, so that no colour is needed to tell it from that of a ViT
WIDTH = 2 * LEGEND_WIDTH  # letters above a panel that takes the whole width
MARGIN = 1.0  # points of accuracy that a remedy may lose
FRAME, TITLE = 3.6, 0.35  # inches of axes, and above them
_PLACE = re.compile(r"place (\d+)")
COLUMNS = ("label", "model", "reading", "value", "interval", "n", "seeds")


class Spot(NamedTuple):
    """A recipe on the plane."""

    name: str
    model: str
    kind: str
    success: Row
    accuracy: Row

    @property
    def at(self) -> tuple[float, float]:
        return tuple(scaled(line["value"], "%") for line in (self.success, self.accuracy))  # type: ignore[return-value]

    @property
    def mark(self) -> dict[str, Any]:
        """A control is hollow."""
        colour = look_of(PLACES[self.model])["color"]
        control = self.kind == "control"
        shape = {"markersize": 11 if self.kind == "plain" else 5.5, "markerfacecolor": "none" if control else colour}
        marker = OF_DIFFVIT if control and self.model == "DiffViT" else MARKS[self.kind]
        return {"color": colour, "marker": marker, "linestyle": "", **shape}


def frontier_figure(name: str, lines: Sequence[Row]) -> Figure | None:
    """The first look, and the confirmation as far as it was run; None where neither has both numbers of a recipe."""
    measured = [line for line in lines if isinstance(line["value"], float | int) and line["model"] in PLACES]
    recipes = {line["details"][-1]: line["text"] for line in lines if line["reading"] == RECIPE and line["text"]}
    every = _spots([line for line in measured if ELSEWHERE not in line["details"]], recipes)
    panels = {
        "(a) first look": [spot for spot in every if CONFIRMED not in spot.success["details"]],
        "(b) confirmation, other seeds and images": [spot for spot in every if CONFIRMED in spot.success["details"]],
    }
    panels = {title: spots for title, spots in panels.items() if spots}
    if not panels:
        return None
    drawn = [line for spots in panels.values() for spot in spots for line in (spot.success, spot.accuracy)]
    budget = drawn[0]["label"].split(", ")[-1]
    return Figure(
        name=name,
        alt=_alt(next(iter(panels.values()))),
        panels=tuple(partial(_panel, title=title, spots=spots, budget=budget) for title, spots in panels.items()),
        heights=tuple(FRAME + TITLE + 0.19 * legend_rows(_names(spots), WIDTH) for spots in panels.values()),
        height=2.9,
        wide=True,
        data=columns_of_lines(drawn, COLUMNS),
        note="Up and to the left is better; shaded: within one point of the plain DiffViT's accuracy, or above, and fooled no "
        "more often than the plain ViT. Stars: the plain models; hollow: controls, circles of a ViT and triangles of a "
        "DiffViT. Crosses of thin lines are 95 % intervals over seeds and images.",
    )


def _spots(lines: Sequence[Row], recipes: Mapping[str, str]) -> list[Spot]:
    """Every label that has both numbers; success at the middle one of its budgets."""
    accuracies = {(line["model"], *line["details"]): line for line in lines if line["reading"] == ACCURACY}
    by_label: dict[tuple[str, ...], list[Row]] = {}
    for line in lines:
        if line["reading"] == SUCCESS and line["axis"] == "eps":
            by_label.setdefault((line["model"], *line["details"]), []).append(line)
    return [
        Spot(
            _name(label, recipes),
            label[0],
            _kind(label),
            sorted(of, key=lambda line: line["x"])[len(of) // 2],
            accuracies[label],
        )
        for label, of in by_label.items()
        if label in accuracies
    ]


def _kind(label: tuple[str, ...]) -> str:
    details = [part for part in label[1:] if part != CONFIRMED]
    if not details:
        return "plain"
    first = details[0].split(" ")[0]  # "place 1" and "control of place 1" of the confirmation
    return first if first in MARKS else "control"


def _name(label: tuple[str, ...], recipes: Mapping[str, str]) -> str:
    """A place with the name of its recipe, as soon as that is known."""
    own = [part for part in label[1:] if part not in (CONFIRMED, *MARKS)]
    named = [
        f"{part}: {recipes[place[0]]}" if (place := _PLACE.search(part)) and place[0] in recipes else part
        for part in own
    ]
    return ", ".join(named) or label[0]


def _names(spots: Sequence[Spot]) -> list[str]:
    """As the legend has them: numbered, but for the plain models; of the confirmation by places, a control as its place."""
    numbers = map(str, count(1))
    return [
        spot.name
        if spot.kind == "plain"
        else f"{place[1] if (place := _PLACE.search(spot.name)) else next(numbers)}  {spot.name}"
        for spot in spots
    ]


def _panel(axis: Any, title: str, spots: Sequence[Spot], budget: str) -> None:
    names = _names(spots)
    plain = {spot.model: spot for spot in spots if spot.kind == "plain"}
    for spot, name in zip(spots, names):
        x, y = spot.at
        colour = spot.mark["color"]
        for line, ends in ((spot.success, "x"), (spot.accuracy, "y")):
            if line["interval"] is not None:
                low, high = (scaled(end, "%") for end in line["interval"])
                across = ([low, high], [y, y]) if ends == "x" else ([x, x], [low, high])
                axis.plot(*across, color=colour, linewidth=0.6, alpha=0.45)
        axis.plot(x, y, zorder=3, **spot.mark)
        if spot.kind != "plain":
            number = name.split(" ")[0]
            offset = {"xytext": (4, 2.5), "textcoords": "offset points"}
            axis.annotate(number, (x, y), fontsize=letter("xtick.labelsize"), color=INK, zorder=4, **offset)
    if len(plain) == len({"ViT", "DiffViT"}):
        left, bottom = plain["ViT"].at[0], plain["DiffViT"].at[1] - MARGIN
        (low_x, _), (_, high_y) = axis.get_xlim(), axis.get_ylim()
        axis.fill_between([low_x, left], bottom, high_y, color=GRID, alpha=0.7, linewidth=0, zorder=0)
        axis.plot([low_x, left, left], [bottom, bottom, high_y], color=SOFT, linewidth=0.8, linestyle="--", zorder=1)
        axis.set_xlim(left=low_x)
        axis.set_ylim(top=high_y)
    axis.set_xlabel(f"attack success at {budget.removeprefix('eps ')}, images classified correctly (%)")
    axis.set_ylabel("test accuracy (%)")
    entries = [(Line2D([], [], **spot.mark), name) for spot, name in zip(spots, names)]
    legend_above(axis, entries, title, width=WIDTH)


def _alt(spots: Sequence[Spot]) -> str:
    first = [f"{spot.name}: fooled {spot.at[0]:.0f} %, accuracy {spot.at[1]:.0f} %" for spot in spots[:6]]
    return f"{'; '.join(first)}{'; and more in the table below' if len(spots) > len(first) else ''}."
