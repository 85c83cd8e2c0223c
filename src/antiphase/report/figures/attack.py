"""Figures of one run under attack: success against the budget, or against the distance that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from antiphase.report.theme import LINES, SOFT, colour

Row = dict[str, Any]
ONE = colour(0)  # one run, one colour: what is shown of it differs by marks and dashes


def draw_attacks(result: Row) -> dict[str, Callable[[], Figure]]:
    """The name of the figure -> how to draw it."""
    first = result["cells"][0]
    draw = partial(_distances, first) if "distances" in first else partial(_budgets, result["cells"])
    return {"success": draw}


def _distances(cell: Row) -> Figure:
    """ASR(tau): share of the correct images whose nearest adversarial image is at most tau away, with its 95 % interval."""
    figure, axis = _axis(cell)
    kind, correct = cell["attack"]["kind"], cell["distances"]["correct"]["found"]["n"]
    _curve(axis, "at", cell["distances"]["asr"], kind, zorder=3)
    for (name, part), dashes in zip(cell.get("alone", {}).items(), LINES[1:]):
        points = part["distances"]["asr"]
        share = [100 * (p["value"] or 0) for p in points]
        axis.plot([p["at"] for p in points], share, color=SOFT, linestyle=dashes, linewidth=1.3, label=f"{name} alone")
    axis.set_xlabel("L2 distance τ")
    axis.set_ylabel(f"of {correct} correct images, fooled within τ (%)")
    axis.legend(frameon=False, loc="lower right")
    return figure


def _budgets(cells: list[Row]) -> Figure:
    """Predictions changed against the budget, of all images and of the correct ones, with 95 % intervals."""
    figure, axis = _axis(cells[0])
    names = {"asr_change": "of all images", "asr_correct": "of correctly classified images"}
    kind = cells[0]["attack"]["within"]["kind"]
    unit, words = (1, "L2") if kind == "L2" else (255, f"{kind}, in 255ths")
    for (name, label), style in zip(names.items(), ({"marker": "o"}, {"marker": "s", "linestyle": "--"})):
        points = [{"eps": unit * c["eps"], **c["rates"][name]} for c in cells]
        _curve(axis, "eps", points, label, **style)
    axis.set_xlabel(f"budget ε ({words})")
    axis.set_ylabel("predictions changed (%)")
    axis.legend(frameon=False)
    return figure


def _axis(cell: Row) -> tuple[Figure, Any]:
    figure, axis = plt.subplots(figsize=(5.6, 3.7), layout="constrained")
    axis.set_title(f"{cell['run']}, {cell['attack']['kind']}, n = {cell['data']['n']}", fontsize=11, loc="left")
    axis.set_ylim(-2, 102)
    return figure, axis


def _curve(axis: Any, along: str, points: list[Row], label: str, **style: Any) -> None:
    """Rates of the one model with their intervals; nothing where there is no image to speak of."""
    points = [p for p in points if p["value"] is not None]
    at = [p[along] for p in points]
    low, high = 100 * np.array([p["interval"] for p in points]).reshape(-1, 2).T
    axis.fill_between(at, low, high, color=ONE, alpha=0.16, linewidth=0)
    axis.plot(at, [100 * p["value"] for p in points], color=ONE, label=label, linewidth=1.8, markersize=4.5, **style)
