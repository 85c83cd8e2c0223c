"""Colours and the style of figures. One colour per model, distinguishable without red and green; ink that follows the theme.

A figure is drawn in the colours of the light theme. Inside a page each becomes a CSS variable, so that it follows the theme too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from matplotlib import rcParams
from matplotlib.transforms import ScaledTranslation

MODELS = ("#0b6aa8", "#c2490a", "#00795a", "#9a4f8f", "#8a6d00", "#4d5a68")  # light theme; at least 4.5 : 1 on white
MODELS_DARK = ("#5cb3f0", "#ff8f4d", "#3fcf9f", "#e08fd0", "#e5c242", "#a9b4c0")
MARKERS = ("o", "s", "^", "D", "v", "P")  # so that a figure can be read without any colour
OTHERS = ("X", "*", "<", ">", "p", "h", "d", "8")  # of what is no model
LINES = ("-", "--", "-.", ":", "-", "--")
CONTROL_MARKS = {"control: untrained": "v", "control: shuffled": "D", "control: pseudo": "X"}  # hollow
DIVERGING = ("#0a4a80", "#6aa5cf", "#f4f4f2", "#e09a66", "#8f3206")  # below zero, zero, above: as in the lens
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


def look_of(place: int) -> dict[str, Any]:
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


LEGEND_ROW = 1.6  # height of a row of a legend, in its letters
LEGEND_WIDTH = 62  # letters that fit above a panel of usual width


def letter(kind: str) -> float:
    """Points of the letters of a kind of text (`xtick.labelsize`); matplotlib's own default is a word."""
    size = rcParams[kind]
    return float(size if isinstance(size, float | int) else rcParams["font.size"])


def _columns(names: Sequence[str], width: int) -> int:
    if sum(len(name) + 7 for name in names) <= width:
        return max(1, len(names))
    return max(1, width // (max(map(len, names)) + 7))


def legend_rows(names: Sequence[str], width: int = LEGEND_WIDTH) -> int:
    """How many rows a legend of these names takes above an axis."""
    return -(-len(names) // _columns(names, width))


def legend_above(
    axis: Any, entries: Sequence[tuple[Any, str]], title: str, width: int = LEGEND_WIDTH, left: float = 0.0
) -> None:
    """The title of an axis, and the legend in rows between the two: never over data. Both begin `left` points before the axis."""
    names = [name for _, name in entries]
    columns, rows = _columns(names, width), legend_rows(names, width)
    above = 6 + LEGEND_ROW * letter("legend.fontsize") * rows
    if left:
        at = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
        axis.annotate(title, (0, 1), (-left, above), fontsize=letter("axes.titlesize"), color=INK, **at)
    else:
        axis.set_title(title, pad=above)
    beside = axis.transAxes + ScaledTranslation(-left / 72, 0, axis.figure.dpi_scale_trans)
    if entries:
        row = {"borderpad": 0.2, "borderaxespad": 0.2, "labelspacing": 0.3, "columnspacing": 1.4, "handletextpad": 0.5}
        by_row = [entries[i] for column in range(columns) for i in range(column, len(entries), columns)]
        place = {"loc": "lower left", "bbox_to_anchor": (-0.01, 1), "bbox_transform": beside, "ncols": columns}
        legend(axis, by_row, **place, **row, handlelength=2.4)


def themed(svg: str) -> str:
    """The colours of an SVG as variables of the page, and no names in it that a second one could repeat."""
    for hex_colour, variable in THEMED.items():
        svg = svg.replace(hex_colour, f"var(--{variable})")
    svg = re.sub(r'(<g) id="[^"]*"', r"\1", svg)
    own = hashlib.sha256(svg.encode()).hexdigest()[
        :8
    ]  # clip paths and hatches: one that is hidden would hide what it clips
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{own}-", svg)
