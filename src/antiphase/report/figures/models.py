"""Figures of attacked and measured models, from their cells. The place of a model in `sides` is its colour and its mark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from antiphase.report.page_parts import Figure
from antiphase.report.theme import INK, SOFT, colour, legend, look_of

Row = dict[str, Any]
Side = tuple[str, int, list[Row]]  # name, place among the models of the page, cells
LONGEST = 26  # letters of a name in a figure
RATES = {"asr_change": "of all images", "asr_correct": "of correctly classified images"}


def by_layer(rows: Row, name: str, **only: Any) -> dict[str, list[float]]:
    """One column of a cell's rows, layer by layer, where the other columns say so; what is undefined is left out."""
    found: dict[str, list[float]] = {}
    for i, (layer, value) in enumerate(zip(rows["layer"], rows[name])):
        if all(rows[key][i] == wanted for key, wanted in only.items()):
            found.setdefault(layer, []).extend([] if value is None else [value])
    return found


def brief(name: str) -> str:
    """The end of a long name, for it is what differs: names of runs may be paths."""
    return name if len(name) <= LONGEST else f"…{name[-LONGEST + 1 :]}"


# ------------------------------------------------------------------------------------------------- success
def success_figure(name: str, title: str, sides: Sequence[Side], note: str = "", within: str = "Linf") -> Figure:
    """Attack success against the budget, with 95 % intervals; over all images, and over those first correct."""
    points = [
        (side, place, cell["eps"], rate, cell["rates"][rate])
        for side, place, cells in sides
        for rate in RATES
        for cell in cells
        if cell["rates"][rate]["value"] is not None
    ]
    return Figure(
        name=name,
        title=title,
        alt=_success_alt(sides),
        panels=tuple(partial(_success_panel, points=points, rate=rate, within=within) for rate in RATES),
        data={
            "model": [p[0] for p in points],
            "eps_in_255ths": [round(255 * p[2], 6) for p in points],
            "rate": [p[3] for p in points],
            "value": [p[4]["value"] for p in points],
            "low": [p[4]["interval"][0] for p in points],
            "high": [p[4]["interval"][1] for p in points],
            "n": [p[4]["n"] for p in points],
        },
        note=note,
    )


def _success_panel(axis: Any, points: list[Any], rate: str, within: str) -> None:
    chosen = [p for p in points if p[3] == rate]
    entries = []
    for name, place in dict.fromkeys((p[0], p[1]) for p in chosen):
        mine = sorted((p for p in chosen if p[0] == name), key=lambda p: p[2])
        eps = np.array([255 * p[2] for p in mine])
        low, high = 100 * np.array([p[4]["interval"] for p in mine]).T
        axis.fill_between(eps, low, high, color=colour(place), alpha=0.16, linewidth=0)
        rates = [100 * p[4]["value"] for p in mine]
        (curve,) = axis.plot(eps, rates, markersize=5, linewidth=1.8, **look_of(place))
        entries.append((curve, brief(name)))
    axis.set_title(RATES[rate])
    axis.set_xlabel(f"budget ε ({within}, in 255ths of a pixel's range)")
    axis.set_ylabel("predictions changed (%)")
    axis.set_ylim(-2, 102)
    ticks = sorted({round(255 * p[2], 6) for p in chosen} - {0.0})
    if ticks:
        axis.set_xscale("log", base=2)
        axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.minorticks_off()
    if chosen:
        legend(axis, entries)


def _success_alt(sides: Sequence[Side]) -> str:
    """The largest budget's and the middle one's rates, so that the curves can be told without seeing them."""
    told = []
    for name, _, cells in sides:
        if cells:
            ends = {
                round(255 * c["eps"], 6): c["rates"]["asr_change"]["value"] for c in (cells[len(cells) // 2], cells[-1])
            }
            words = (f"{'undefined' if v is None else f'{100 * v:.0f} %'} at {eps:g}/255" for eps, v in ends.items())
            told.append(f"{name}: {', '.join(words)}")
    return f"Share of predictions changed against the budget. {'; '.join(told)}."


# ------------------------------------------------------------------------------------------------- sensitivity
def sensitivity_figure(
    name: str, title: str, sides: Sequence[tuple[str, int, Row, Row | None]], note: str = ""
) -> Figure:
    """Per-image local Lipschitz estimates of each model, and the cosine between branches where there are two.

    A side is (name, place, cell of lipschitz, cell of alignment or None).
    """
    boxes = [
        (side, place, number, values)
        for side, place, lipschitz, _ in sides
        for number, values in enumerate(by_layer(lipschitz["rows"], "max").values(), start=1)
    ]
    cosines = [
        (side, place, number, values)
        for side, place, _, aligned in sides
        if aligned
        for number, values in enumerate(by_layer(aligned["rows"], "cos", pairs="own").values(), start=1)
    ]
    means = "; ".join(f"{side} layer {k}: {np.mean(v):.3f}" for side, _, k, v in boxes if v)
    cos = "; ".join(f"{side} layer {k}: mean {np.mean(v):+.2f}" for side, _, k, v in cosines if v)
    return Figure(
        name=name,
        title=title,
        alt=f"Sampled local Lipschitz constants, means over images: {means}." + (f" Cosines: {cos}." if cos else ""),
        panels=(partial(_boxes, series=boxes), *((partial(_cosines, series=cosines),) if cosines else ())),
        data=_long({"lipschitz": boxes, "cosine": cosines}),
        note=note,
    )


def _long(series: dict[str, list[Any]]) -> dict[str, list[Any]]:
    flat = [(what, side, k, v) for what, found in series.items() for side, _, k, values in found for v in values]
    return {key: [row[i] for row in flat] for i, key in enumerate(("measure", "model", "layer", "value"))}


def _boxes(axis: Any, series: list[Any]) -> None:
    drawn = axis.boxplot(
        [values for *_, values in series],
        tick_labels=[f"{brief(side)}\nlayer {k}" if len(series) <= 4 else f"{k}" for side, _, k, _ in series],
        patch_artist=True,
        widths=0.5,
        showfliers=False,
        medianprops={"color": INK},
    )
    for box, (_, place, *_rest) in zip(drawn["boxes"], series):
        box.set(facecolor=colour(place), alpha=0.5, edgecolor=colour(place))
    if len(series) > 4:
        of = {place: (box, brief(side)) for box, (side, place, *_rest) in zip(drawn["boxes"], series)}
        legend(axis, list(of.values()))
        axis.set_xlabel("layer")
    axis.set_ylim(bottom=0)
    axis.set_ylabel("‖change of map‖ / ‖noise‖ (no unit)")
    axis.set_title("map moves per unit of pixel noise")
    axis.grid(axis="x", visible=False)


def _cosines(axis: Any, series: list[Any]) -> None:
    entries = []
    for side, place in dict.fromkeys((s, p) for s, p, *_ in series):
        values = [v for s, _, _, found in series if s == side for v in found]
        bars = axis.hist(values, bins=24, color=colour(place), alpha=0.6)[2]
        entries.append((bars, brief(side)))
    axis.axvline(0, color=INK, linewidth=1)
    for word, side, shift in (("opposed", "right", -6), ("aligned", "left", 6)):
        axis.annotate(
            word,
            (0, 1),
            (shift, -2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=side,
            va="top",
            color=SOFT,
        )
    axis.set_xlabel("cosine between the input gradients of A1 and A2 (no unit)")
    axis.set_ylabel("(image, head) pairs")
    axis.set_title("do the branches react against each other?")
    axis.margins(y=0.2)
    axis.grid(axis="x", visible=False)
    legend(axis, entries)
