"""Figures of what the lens saw, layer by layer. Rows in, functions that save a figure out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from antiphase.report.figures.models import by_layer
from antiphase.report.theme import AXIS, MODELS

matplotlib.use("Agg")


Row = dict[str, Any]
OWN, CONTROL = MODELS[1], AXIS
SERIES = ("#9ecae1", "#1b4965", "#e6a57e", "#c8553d", "#6a994e", "#7b5ea7", "#8a8f98")  # noise cold, attacks warm
MARKS = {"untrained": "o", "shuffled": "s", "pseudo": "^"}


def draw_lens(result: Row) -> dict[str, Callable[[], Figure]]:
    """One figure a measure: its name -> how to draw it."""
    return {measure: partial(draw, result[measure]) for measure, draw in DRAWN.items() if result.get(measure)}


def _panels(n: int, layers: int) -> tuple[Figure, Any]:
    figure, axes = plt.subplots(
        n, 1, figsize=(max(5.0, 1.2 * layers + 3), 3.1 * n), squeeze=False, layout="constrained"
    )
    return figure, axes[:, 0]


def _ticks(axis: Any, n: int) -> None:
    axis.set_xticks(range(n), [str(i + 1) for i in range(n)])
    axis.set_xlabel("layer")
    axis.set_xlim(-0.6, n - 0.4)
    axis.grid(axis="x", visible=False)


def _log(axis: Any) -> None:
    """A logarithmic axis with plain numbers on it."""
    axis.set_yscale("log")
    for which in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
        which(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))


def _title(axis: Any, text: str) -> None:
    axis.set_title(text, fontsize=11, loc="left", color="#30343b")


def _boxes(axis: Any, values: list[list[float]], at: Any, colour: str, label: str, width: float) -> None:
    drawn = axis.boxplot(
        values, positions=at, widths=width, patch_artist=True, showfliers=False, medianprops={"color": "#20242a"}
    )
    for i, box in enumerate(drawn["boxes"]):
        box.set(facecolor=colour, alpha=0.45, edgecolor=colour, label=label if i == 0 else None)


def _lipschitz(cells: list[Row]) -> Figure:
    """The estimates of each level, one box an estimate and layer, over images."""
    levels = list(dict.fromkeys(cell["level"] for cell in cells))
    layers = len(cells[0]["layers"])
    figure, axes = _panels(len(levels), layers)
    shades = {"sample": "#9ecae1", "power": "#4a90b8", "ascent": "#1b4965"}
    for axis, level in zip(axes, levels):
        series: dict[str, dict[str, list[float]]] = {}
        for cell in (cell for cell in cells if cell["level"] == level):
            names = (
                {"max": "sample"}
                if cell["estimator"] == "sample"
                else {"sample": "sample", "power": "power", "ascent": "ascent"}
            )
            series |= {label: by_layer(cell["rows"], column) for column, label in names.items()}
        width = 0.7 / len(series)
        for i, (label, found) in enumerate(series.items()):
            shift = (i - (len(series) - 1) / 2) * width
            words = {
                "sample": "largest random draw",
                "power": "at the image (power)",
                "ascent": "within 8/255 (ascent)",
            }
            _boxes(axis, list(found.values()), np.arange(layers) + shift, shades[label], words[label], 0.85 * width)
        _log(axis)
        axis.set_ylabel("‖change‖ / ‖ξ‖₂")
        _title(axis, f"local Lipschitz of {level}, over {cells[0]['data']['n']} images (lower bounds)")
        axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
        _ticks(axis, layers)
    return figure


def _alignment(cells: list[Row]) -> Figure:
    """The cosines of each reading by layer, with the mean of each control beside them, and the share below zero."""
    layers = max(len(cell["layers"]) for cell in cells)
    figure, axes = _panels(len(cells), layers)
    for axis, cell in zip(axes, cells):
        own = by_layer(cell["rows"], "cos", pairs="own")
        _boxes(axis, list(own.values()), np.arange(len(own)), OWN, "this model", 0.4)
        for name, rows in cell["controls"].items():
            means = [np.nan if row["cos"] is None else row["cos"] for row in rows]
            axis.plot(
                np.arange(len(rows)) + 0.32, means, MARKS[name], color=CONTROL, markersize=6, label=f"{name}, mean"
            )
        axis.axhline(0, color="#20242a", linewidth=1)
        for i, row in enumerate(cell["layers"]):
            if row["negative"]["value"] is not None:
                share = f"{100 * row['negative']['value']:.0f} % < 0"
                axis.annotate(share, (i, 1), xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=9)
        axis.set_ylabel("cosine of the branches")
        axis.set_title(
            f"{cell['reading']}, {cell['data']['n']} images", fontsize=11, loc="left", color="#30343b", pad=18
        )
        axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
        _ticks(axis, len(own))
    return figure


def _lambda(rows: list[Row]) -> Figure:
    figure, (axis,) = _panels(1, len(rows))
    places = np.arange(len(rows))
    axis.vlines(places, [r["lambda_init"] for r in rows], [r["lambda"] for r in rows], color=CONTROL)
    axis.plot(places, [r["lambda_init"] for r in rows], "_", color=CONTROL, markersize=14, label="where it started")
    axis.plot(places, [r["lambda"] for r in rows], "o", color=OWN, label="learned")
    axis.set_ylabel("λ")
    axis.margins(y=0.25)
    _title(axis, "λ of every layer")
    axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    _ticks(axis, len(rows))
    return figure


def _cancellation(cells: list[Row]) -> Figure:
    """Cosine of the branches' changes under each perturbation, layer by layer, at each level."""
    (cell,) = cells
    levels = list(dict.fromkeys(row["level"] for row in cell["layers"]))
    kinds = list(dict.fromkeys(row["perturbation"] for row in cell["layers"]))
    layers = len(dict.fromkeys(row["layer"] for row in cell["layers"]))
    figure, axes = _panels(len(levels), layers)
    words = {
        "maps": "of the maps",
        "values": "of A1 V and A2 V (they share the change of V)",
        "held": "of A1 V and A2 V with V held",
    }
    width = 0.75 / len(kinds)
    for axis, level in zip(axes, levels):
        for i, kind in enumerate(kinds):
            found = by_layer(cell["rows"], "cos", level=level, perturbation=kind)
            at = np.arange(layers) + (i - (len(kinds) - 1) / 2) * width
            _boxes(axis, list(found.values()), at, SERIES[i % len(SERIES)], kind, 0.85 * width)
        axis.axhline(0, color="#20242a", linewidth=1)
        axis.set_ylabel("cosine of the changes")
        _title(axis, f"changes {words[level]}: for λ > 0, above 0 cancelled, below 0 amplified")
        axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
        _ticks(axis, layers)
    return figure


def _depth(cells: list[Row]) -> Figure:
    """Size of the perturbation along the residual stream, absolute and relative to the stream, with 95 % intervals."""
    (cell,) = cells
    blocks = len(cell["curves"][0]["layers"])
    figure, axes = _panels(2, blocks)
    for axis, (key, label) in zip(axes, (("change", "‖change‖"), ("relative", "‖change‖ / ‖stream‖"))):
        for i, curve in enumerate(cell["curves"]):
            means = np.array([point["value"] for point in curve[key]], dtype=float)
            ends = np.array([point["interval"] or [m, m] for point, m in zip(curve[key], means)], dtype=float)
            colour = SERIES[i % len(SERIES)]
            axis.plot(range(blocks + 1), means, "o-", color=colour, label=curve["perturbation"], markersize=4)
            axis.fill_between(range(blocks + 1), *ends.T, color=colour, alpha=0.2, linewidth=0)
        _log(axis)
        axis.set_ylabel(label)
        axis.set_xticks(range(blocks + 1), ["input", *(str(k + 1) for k in range(blocks))])
        axis.set_xlabel("after block")
        axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    _title(axes[0], f"a perturbation of {round(255 * cell['eps'], 3):g}/255 along the residual stream")
    return figure


def _correlation(cells: list[Row]) -> Figure:
    """Do the maps look alike on clean and corrupted images, and do they move alike?"""
    (cell,) = cells
    layers = list(dict.fromkeys(row["layer"] for row in cell["layers"]))
    figure, axes = _panels(2, len(layers))
    kinds = list(dict.fromkeys(row["perturbation"] for row in cell["layers"]))
    titles = {"pearson": "correlation of the rows of A1 and A2", "change_cosine": "cosine of their changes"}
    for axis, (key, title) in zip(axes, titles.items()):
        for i, kind in enumerate(kinds):
            rows = [row[key] for row in cell["layers"] if row["perturbation"] == kind]
            if any(row["value"] is not None for row in rows):
                at = np.arange(len(layers)) + (i - (len(kinds) - 1) / 2) * 0.1
                means = [np.nan if row["value"] is None else row["value"] for row in rows]
                axis.plot(at, means, "o", color=SERIES[i % len(SERIES)], label=kind, markersize=5)
        axis.axhline(0, color="#20242a", linewidth=1)
        _title(axis, title)
        axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
        _ticks(axis, len(layers))
    return figure


DRAWN: dict[str, Callable[[Any], Figure]] = {
    "lipschitz": _lipschitz,
    "alignment": _alignment,
    "cancellation": _cancellation,
    "depth": _depth,
    "correlation": _correlation,
    "lambda": _lambda,
}
