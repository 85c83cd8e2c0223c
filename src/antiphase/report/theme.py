"""Colours and the style of figures. One colour per model, distinguishable without red and green; ink that follows the theme.

A figure is drawn in the colours of the light theme. Inside a page each becomes a CSS variable, so that it follows the theme too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

MODELS = ("#0b6aa8", "#c2490a", "#00795a", "#9a4f8f", "#8a6d00", "#4d5a68")  # light theme; at least 4.5 : 1 on white
MODELS_DARK = ("#5cb3f0", "#ff8f4d", "#3fcf9f", "#e08fd0", "#e5c242", "#a9b4c0")
MARKERS = ("o", "s", "^", "D", "v", "P")  # so that a figure can be read without any colour
OTHERS = ("X", "*", "<", ">", "p", "h", "d", "8")  # of what is no model
LINES = ("-", "--", "-.", ":", "-", "--")
DIVERGING = ("#0a4a80", "#6aa5cf", "#f4f4f2", "#e09a66", "#8f3206")  # below zero, zero, above: as in the lens
LONG_LABEL = 15  # letters of which a legend above a panel holds two side by side, of shorter ones three
INK, SOFT, AXIS, GRID = "#20242a", "#565c66", "#8a8f98", "#e6e8eb"
THEMED = {INK: "ink", SOFT: "soft", AXIS: "axis", GRID: "grid", **{c: f"m{i}" for i, c in enumerate(MODELS)}}
STYLE = {
    "font.family": "sans-serif",
    "font.size": 11,
    "text.parse_math": False,  # a name is shown as it is written
    "text.color": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": AXIS,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.grid": True,
    "grid.color": GRID,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "antiphase",  # the same rows give the same bytes
    "legend.fontsize": 9,
}
PRINT = {  # on top of STYLE, for a figure of 180 mm: no letter below 7 points
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "axes.linewidth": 0.7,
    "grid.linewidth": 0.6,
    "pdf.fonttype": 42,  # letters stay letters
}


def colour(place: int) -> str:
    return MODELS[place % len(MODELS)]


def look_of(place: int) -> dict[str, str]:
    """How the model at this place is drawn on the whole page: its colour, its mark and its line."""
    return {
        "color": colour(place),
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": LINES[place % len(LINES)],
    }


def other_look(number: int) -> dict[str, str]:
    """Of a series that is about no model: never the colour of one, and marks that no model has."""
    return {"color": SOFT, "marker": OTHERS[number % len(OTHERS)], "linestyle": LINES[number % len(LINES)]}


def legend(axis: Any, entries: Sequence[tuple[Any, str]], **style: Any) -> None:
    """What is drawn and its name. Given one by one, for matplotlib leaves out a label that begins with an underscore."""
    axis.legend([drawn for drawn, _ in entries], [name for _, name in entries], **{"loc": "best", **style})


def legend_above(axis: Any, entries: Sequence[tuple[Any, str]]) -> None:
    """A legend in a line of its own between the title of a panel and its data, over none of them."""
    columns = 3 if max(len(name) for _, name in entries) < LONG_LABEL else 2
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "borderpad": 0.1}
    legend(axis, entries, ncols=columns, columnspacing=1.4, **place)
    axis.set_title(axis.get_title(loc="left"), pad=6 + 15 * -(-len(entries) // columns))


def themed(svg: str) -> str:
    """The colours of an SVG as variables of the page, and no names in it that a second one could repeat."""
    for hex_colour, variable in THEMED.items():
        svg = svg.replace(hex_colour, f"var(--{variable})")
    return re.sub(r'(<g) id="[^"]*"', r"\1", svg)
