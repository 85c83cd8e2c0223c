"""Figures of one run under attack: success against the budget, or against the distance that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from antiphase.report.figures.series import curve, number_axis, rate_points, rates_in, success_word
from antiphase.report.numbers import attack_name, attack_text, scaled
from antiphase.report.theme import LINES, SOFT, colour, legend

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
    correct = cell["distances"]["correct"]["found"]["n"]
    points = rate_points([(rate["at"], rate) for rate in cell["distances"]["asr"]])
    entries = [(curve(axis, points, color=ONE, zorder=3), attack_name(cell["attack"]))]
    for (name, part), dashes in zip(cell.get("alone", {}).items(), LINES[1:]):
        alone = [(rate["at"], scaled(rate["value"] or 0, "%"), None) for rate in part["distances"]["asr"]]
        entries.append((curve(axis, alone, color=SOFT, linestyle=dashes, linewidth=1.3), f"{name} alone"))
    axis.set_xlabel("L2 distance τ")
    success = "fooled" if cell["attack"].get("target") is None else "at the target"
    axis.set_ylabel(f"of {correct} correct images, {success} within τ (%)")
    legend(axis, entries, loc="lower right")
    return figure


def _budgets(cells: list[Row]) -> Figure:
    """Success against the budget, of all images and of the correct ones, with 95 % intervals."""
    figure, axis = _axis(cells[0])
    kind = cells[0]["attack"]["within"]["kind"]
    unit, words = (1, "L2") if kind == "L2" else (255, f"{kind}, in 255ths of a pixel's range")
    entries = []
    styles: tuple[dict[str, Any], ...] = ({"marker": "o"}, {"marker": "s", "linestyle": "--"})
    for (name, label), style in zip(rates_in(cells[0]).items(), styles):
        points = rate_points([(unit * cell["eps"], cell["rates"][name]) for cell in cells])
        entries.append((curve(axis, points, color=ONE, **style), label))
    number_axis(axis, (unit * cell["eps"] for cell in cells))
    axis.set_xlabel(f"budget ε ({words})")
    axis.set_ylabel(success_word(cells[0]))
    legend(axis, entries)
    return figure


def _axis(cell: Row) -> tuple[Figure, Any]:
    figure, axis = plt.subplots(figsize=(5.6, 3.7), layout="constrained")
    axis.set_title(f"{cell['run']}, {attack_text(cell['attack'])}, n = {cell['data']['n']}")
    axis.set_ylim(-2, 102)
    return figure, axis
