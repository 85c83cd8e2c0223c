"""Figures of what `antiphase measure` found in one run, layer by layer: one figure per measure, a panel per level or reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from antiphase.config import Budget
from antiphase.report.figures.series import boxes, by_layer, curve
from antiphase.report.theme import AXIS, INK, MODELS, legend

Row = dict[str, Any]
Entries = list[tuple[Any, str]]  # of a legend
OWN, CONTROL = MODELS[1], AXIS
SERIES = ("#9ecae1", "#1b4965", "#e6a57e", "#c8553d", "#6a994e", "#7b5ea7", "#8a8f98")  # noise cold, attacks warm
MARKS = {"untrained": "o", "shuffled": "s", "pseudo": "^"}
ESTIMATES = {  # of local Lipschitz: colour, and what it is
    "sample": ("#9ecae1", "largest random draw"),
    "power": ("#4a90b8", "at the image (power)"),
    "ascent": ("#1b4965", "within 8/255 (ascent)"),
}


def draw_measures(result: Row) -> dict[str, Callable[[], Figure]]:
    """The name of each measure -> how to draw its figure."""
    return {measure: partial(draw, result[measure]) for measure, draw in DRAWN.items() if result.get(measure)}


# ------------------------------------------------------------------------------------------------- one figure per measure
def _lipschitz(cells: list[Row]) -> Figure:
    """The estimates of each level, one box per estimate and layer, over images."""
    levels = list(dict.fromkeys(cell["level"] for cell in cells))
    layers = len(cells[0]["layers"])
    figure, axes = _panels(len(levels), layers)
    for axis, level in zip(axes, levels):
        series: dict[tuple[str, str], dict[str, list[float]]] = {}
        for cell in (cell for cell in cells if cell["level"] == level):
            columns = {"max": "sample"} if cell["estimator"] == "sample" else {name: name for name in ESTIMATES}
            series |= {ESTIMATES[name]: by_layer(cell["rows"], column) for column, name in columns.items()}
        entries = _side_by_side(axis, series, room=0.7)
        _logarithmic(axis)
        axis.set_ylabel("‖change‖ / ‖ξ‖₂")
        axis.set_title(f"local Lipschitz of {level}, over {cells[0]['data']['n']} images (lower bounds)")
        _finish(axis, entries, layers)
    return figure


def _alignment(cells: list[Row]) -> Figure:
    """The cosines of each reading by layer, with the mean of each control beside them, and the share below zero."""
    figure, axes = _panels(len(cells), max(len(cell["layers"]) for cell in cells))
    for axis, cell in zip(axes, cells):
        own = by_layer(cell["rows"], "cos", pairs="own")
        entries: Entries = [(boxes(axis, list(own.values()), range(len(own)), OWN, 0.4), "this model")]
        for name, rows in cell["controls"].items():
            means = [np.nan if row["cos"] is None else row["cos"] for row in rows]
            (marks,) = axis.plot(np.arange(len(rows)) + 0.32, means, MARKS[name], color=CONTROL, markersize=6)
            entries.append((marks, f"{name}, mean"))
        axis.axhline(0, color=INK, linewidth=1)
        for i, row in enumerate(cell["layers"]):
            if row["negative"]["value"] is not None:
                share = f"{100 * row['negative']['value']:.0f} % < 0"
                axis.annotate(share, (i, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=9)
        axis.set_ylabel("cosine of the branches")
        axis.set_title(f"{cell['reading']}, {cell['data']['n']} images", pad=18)
        _finish(axis, entries, len(own))
    return figure


def _lambda(rows: list[Row]) -> Figure:
    figure, (axis,) = _panels(1, len(rows))
    start, learned = ([row[key] for row in rows] for key in ("lambda_init", "lambda"))
    layers = np.arange(len(rows))
    axis.vlines(layers, start, learned, color=CONTROL)
    (dashes,) = axis.plot(layers, start, "_", color=CONTROL, markersize=14)
    (dots,) = axis.plot(layers, learned, "o", color=OWN)
    axis.set_ylabel("λ")
    axis.margins(y=0.25)
    axis.set_title("λ of every layer")
    _finish(axis, [(dashes, "where it started"), (dots, "learned")], len(rows))
    return figure


def _cancellation(cells: list[Row]) -> Figure:
    """Cosine of the branches' changes under each perturbation, layer by layer, at each level."""
    (cell,) = cells
    levels, kinds, layers = (_distinct(cell["layers"], key) for key in ("level", "perturbation", "layer"))
    figure, axes = _panels(len(levels), len(layers))
    words = {
        "maps": "of the maps",
        "values": "of A1 V and A2 V (they share the change of V)",
        "held": "of A1 V and A2 V with V held",
    }
    for axis, level in zip(axes, levels):
        series = {
            (shade, kind): by_layer(cell["rows"], "cos", level=level, perturbation=kind)
            for shade, kind in _shaded(kinds)
        }
        entries = _side_by_side(axis, series, room=0.75)
        axis.axhline(0, color=INK, linewidth=1)
        axis.set_ylabel("cosine of the changes")
        axis.set_title(f"changes {words[level]}: for λ > 0, above 0 cancelled, below 0 amplified")
        _finish(axis, entries, len(layers))
    return figure


def _depth(cells: list[Row]) -> Figure:
    """Size of the perturbation along the residual stream, absolute and relative to the stream, with 95 % intervals."""
    (cell,) = cells
    blocks = len(cell["curves"][0]["layers"])
    figure, axes = _panels(2, blocks)
    shades = [shade for shade, _ in _shaded(cell["curves"])]
    for axis, (key, label) in zip(axes, (("change", "‖change‖"), ("relative", "‖change‖ / ‖stream‖"))):
        entries: Entries = []
        for along, shade in zip(cell["curves"], shades):
            points = [(block, _or_nan(mean["value"]), mean["interval"]) for block, mean in enumerate(along[key])]
            entries.append((curve(axis, points, marker="o", color=shade), along["perturbation"]))
        _logarithmic(axis)
        axis.set_ylabel(label)
        axis.set_xticks(range(blocks + 1), ["input", *(str(k + 1) for k in range(blocks))])
        axis.set_xlabel("after block")
        _legend_beside(axis, entries)
    axes[0].set_title(f"a perturbation of {Budget(cell['eps'])} along the residual stream")
    return figure


def _correlation(cells: list[Row]) -> Figure:
    """Do the maps look alike on clean and corrupted images, and do they move alike?"""
    (cell,) = cells
    kinds, layers = (_distinct(cell["layers"], key) for key in ("perturbation", "layer"))
    figure, axes = _panels(2, len(layers))
    titles = {"pearson": "correlation of the rows of A1 and A2", "change_cosine": "cosine of their changes"}
    for axis, (key, title) in zip(axes, titles.items()):
        entries: Entries = []
        for i, (shade, kind) in enumerate(_shaded(kinds)):
            means = [_or_nan(row[key]["value"]) for row in cell["layers"] if row["perturbation"] == kind]
            if not np.isnan(means).all():
                at = np.arange(len(layers)) + (i - (len(kinds) - 1) / 2) * 0.1
                (dots,) = axis.plot(at, means, "o", color=shade, markersize=5)
                entries.append((dots, kind))
        axis.axhline(0, color=INK, linewidth=1)
        axis.set_title(title)
        _finish(axis, entries, len(layers))
    return figure


DRAWN: dict[str, Callable[[Any], Figure]] = {
    "lipschitz": _lipschitz,
    "alignment": _alignment,
    "cancellation": _cancellation,
    "depth": _depth,
    "correlation": _correlation,
    "lambda": _lambda,
}


# ------------------------------------------------------------------------------------------------- what they share
def _panels(n: int, layers: int) -> tuple[Figure, Any]:
    figure, axes = plt.subplots(
        n, 1, figsize=(max(5.0, 1.2 * layers + 3), 3.1 * n), squeeze=False, layout="constrained"
    )
    return figure, axes[:, 0]


def _side_by_side(axis: Any, series: Mapping[tuple[str, str], Mapping[str, list[float]]], room: float) -> Entries:
    """Several boxes per layer within so much room: (colour, name) -> layer -> values; what a legend then says."""
    width, entries = room / len(series), []
    for i, ((shade, name), layers) in enumerate(series.items()):
        at = [layer + (i - (len(series) - 1) / 2) * width for layer in range(len(layers))]
        entries.append((boxes(axis, list(layers.values()), at, shade, 0.85 * width), name))
    return entries


def _finish(axis: Any, entries: Entries, layers: int) -> None:
    """Layers from 1 below the panel, the legend beside it."""
    axis.set_xticks(range(layers), [str(i + 1) for i in range(layers)])
    axis.set_xlabel("layer")
    axis.set_xlim(-0.6, layers - 0.4)
    axis.grid(axis="x", visible=False)
    _legend_beside(axis, entries)


def _legend_beside(axis: Any, entries: Entries) -> None:
    if entries:
        legend(axis, entries, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))


def _logarithmic(axis: Any) -> None:
    """A logarithmic axis with plain numbers on it."""
    axis.set_yscale("log")
    for which in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
        which(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))


def _shaded(things: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(SERIES[i % len(SERIES)], thing) for i, thing in enumerate(things)]


def _distinct(rows: list[Row], key: str) -> list[str]:
    return list(dict.fromkeys(row[key] for row in rows))


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
