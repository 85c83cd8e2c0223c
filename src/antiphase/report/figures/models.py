"""Figures of several models side by side: their success under attack, and the sensitivity of their maps.

The place of a model among those of a page is its colour and its mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from antiphase.measures.certificates import CertificateAnswer
from antiphase.report.figures.series import RATES, boxes, by_layer, curve, number_axis, rate_points
from antiphase.report.page_parts import Figure
from antiphase.report.theme import INK, SOFT, colour, legend, look_of

Row = dict[str, Any]
LONGEST = 26  # letters of a name in a figure
FEW = 4  # boxes that have room for the name of their model beneath them


class AttackedModel(NamedTuple):
    name: str
    place: int  # among the models of the page
    cells: list[Row]  # one per budget


class CertifiedModel(NamedTuple):
    name: str
    place: int
    answer: CertificateAnswer


class MeasuredModel(NamedTuple):
    name: str
    place: int
    lipschitz: Row  # cell
    alignment: Row | None  # cell; None of a model with one branch


class LayerValues(NamedTuple):
    """One measured number per image of one layer."""

    model: str
    place: int
    layer: int  # from 1
    values: list[float]


def brief(name: str) -> str:
    """The end of a long name, for it is what differs: names of runs may be paths."""
    return name if len(name) <= LONGEST else f"…{name[-LONGEST + 1 :]}"


# ------------------------------------------------------------------------------------------------- success
def success_figure(
    name: str, title: str, models: Sequence[AttackedModel], note: str = "", within: str = "Linf"
) -> Figure:
    """Attack success against the budget, with 95 % intervals; over all images, and over those first correct."""
    rates = [
        (model.name, cell["eps"], rate, cell["rates"][rate])
        for model in models
        for rate in RATES
        for cell in model.cells
        if cell["rates"][rate]["value"] is not None
    ]
    return Figure(
        name=name,
        title=title,
        alt=_success_alt(models),
        panels=tuple(partial(_success_panel, models=models, rate=rate, within=within) for rate in RATES),
        data={
            "model": [model for model, *_ in rates],
            "eps_in_255ths": [round(255 * eps, 6) for _, eps, *_ in rates],
            "rate": [rate for _, _, rate, _ in rates],
            "value": [measured["value"] for *_, measured in rates],
            "low": [measured["interval"][0] for *_, measured in rates],
            "high": [measured["interval"][1] for *_, measured in rates],
            "n": [measured["n"] for *_, measured in rates],
        },
        note=note,
    )


def _success_panel(axis: Any, models: Sequence[AttackedModel], rate: str, within: str) -> None:
    entries, budgets = [], set()
    for name, place, cells in models:
        points = rate_points((255 * cell["eps"], cell["rates"][rate]) for cell in cells)
        if points:
            entries.append((curve(axis, points, **look_of(place)), brief(name)))
            budgets |= {x for x, *_ in points}
    axis.set_title(RATES[rate])
    axis.set_xlabel(f"budget ε ({within}, in 255ths of a pixel's range)")
    axis.set_ylabel("predictions changed (%)")
    axis.set_ylim(-2, 102)
    if entries:
        number_axis(axis, budgets)
        legend(axis, entries)


def _success_alt(models: Sequence[AttackedModel]) -> str:
    """The largest budget's and the middle one's rates, for readers who cannot see the curves."""
    sentences = []
    for name, _, cells in models:
        if cells:
            ends = {
                round(255 * c["eps"], 6): c["rates"]["asr_change"]["value"] for c in (cells[len(cells) // 2], cells[-1])
            }
            words = (f"{'undefined' if v is None else f'{100 * v:.0f} %'} at {eps:g}/255" for eps, v in ends.items())
            sentences.append(f"{name}: {', '.join(words)}")
    return f"Share of predictions changed against the budget. {'; '.join(sentences)}."


# ------------------------------------------------------------------------------------------------- certificates
STEPS = 32  # points of a curve of certified accuracy


def certified_figure(name: str, title: str, models: Sequence[CertifiedModel], note: str = "") -> Figure:
    """Certified accuracy against the L2 radius, with 95 % intervals: a curve for each model."""
    farthest = max(float(model.answer.radius.max()) for model in models) or 1.0
    radii = [farthest * step / STEPS for step in range(STEPS + 1)]
    curves = [(model, model.answer.curve(radii)) for model in models]
    rates = [(model.name, rate) for model, curve_of in curves for rate in curve_of]
    ends = "; ".join(f"{model.name}: {100 * of[0]['value']:.0f} % at radius 0" for model, of in curves)
    return Figure(
        name=name,
        title=title,
        alt=f"Share of images that are predicted correctly and certified, against the L2 radius. {ends}.",
        panels=(partial(_certified_panel, curves=curves),),
        data={
            "model": [model for model, _ in rates],
            "radius": [rate["radius"] for _, rate in rates],
            "value": [rate["value"] for _, rate in rates],
            "low": [rate["interval"][0] for _, rate in rates],
            "high": [rate["interval"][1] for _, rate in rates],
            "n": [rate["n"] for _, rate in rates],
        },
        note=note,
    )


def _certified_panel(axis: Any, curves: Sequence[tuple[CertifiedModel, list[Row]]]) -> None:
    entries = []
    for model, rates in curves:
        points = rate_points((rate["radius"], rate) for rate in rates)
        style = {**look_of(model.place), "marker": ""}
        entries.append((curve(axis, points, **style), brief(model.name)))
    axis.set_title("certified accuracy")
    axis.set_xlabel("L2 radius (pixels in [0,1])")
    axis.set_ylabel("correct and certified (%)")
    axis.set_ylim(-2, 102)
    legend(axis, entries)


# ------------------------------------------------------------------------------------------------- sensitivity
def sensitivity_figure(name: str, title: str, models: Sequence[MeasuredModel], note: str = "") -> Figure:
    """Per-image local Lipschitz estimates of each model, and the cosine between branches where there are two."""
    lipschitz = [
        LayerValues(model.name, model.place, number, values)
        for model in models
        for number, values in enumerate(by_layer(model.lipschitz["rows"], "max").values(), start=1)
    ]
    cosines = [
        LayerValues(model.name, model.place, number, values)
        for model in models
        if model.alignment
        for number, values in enumerate(by_layer(model.alignment["rows"], "cos", pairs="own").values(), start=1)
    ]
    means = "; ".join(f"{of.model} layer {of.layer}: {np.mean(of.values):.3f}" for of in lipschitz if of.values)
    cos = "; ".join(f"{of.model} layer {of.layer}: mean {np.mean(of.values):+.2f}" for of in cosines if of.values)
    return Figure(
        name=name,
        title=title,
        alt=f"Sampled local Lipschitz constants, means over images: {means}." + (f" Cosines: {cos}." if cos else ""),
        panels=(
            partial(_lipschitz_panel, layers=lipschitz),
            *([partial(_cosine_panel, layers=cosines)] if cosines else []),
        ),
        data=_one_row_per_value({"lipschitz": lipschitz, "cosine": cosines}),
        note=note,
    )


def _one_row_per_value(measures: dict[str, list[LayerValues]]) -> dict[str, list[Any]]:
    rows = [(name, of.model, of.layer, v) for name, layers in measures.items() for of in layers for v in of.values]
    return {key: [row[i] for row in rows] for i, key in enumerate(("measure", "model", "layer", "value"))}


def _lipschitz_panel(axis: Any, layers: list[LayerValues]) -> None:
    drawn = [boxes(axis, [of.values], [at], colour(of.place)) for at, of in enumerate(layers)]
    few = len(layers) <= FEW
    names = [f"{brief(of.model)}\nlayer {of.layer}" if few else str(of.layer) for of in layers]
    axis.set_xticks(range(len(layers)), names)
    if not few:
        first_of = {of.place: (box, brief(of.model)) for box, of in zip(drawn, layers)}
        legend(axis, list(first_of.values()))
        axis.set_xlabel("layer")
    axis.set_ylim(bottom=0)
    axis.set_ylabel("‖change of map‖ / ‖noise‖ (no unit)")
    axis.set_title("map moves per unit of pixel noise")


def _cosine_panel(axis: Any, layers: list[LayerValues]) -> None:
    entries = []
    for model, place in dict.fromkeys((of.model, of.place) for of in layers):
        values = [v for of in layers if of.model == model for v in of.values]
        bars = axis.hist(values, bins=24, color=colour(place), alpha=0.6)[2]
        entries.append((bars, brief(model)))
    axis.axvline(0, color=INK, linewidth=1)
    for word, edge, shift in (("opposed", "right", -6), ("aligned", "left", 6)):
        axis.annotate(
            word,
            (0, 1),
            (shift, -2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=edge,
            va="top",
            color=SOFT,
        )
    axis.set_xlabel("cosine between the input gradients of A1 and A2 (no unit)")
    axis.set_ylabel("(image, head) pairs")
    axis.set_title("do the branches react against each other?")
    axis.margins(y=0.2)
    axis.grid(axis="x", visible=False)
    legend(axis, entries)
