"""Figures of several models side by side: their success under attack, and the sensitivity of their maps.

The place of a model among those of a page is its colour and its mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from antiphase.measures.certificates import CertificateAnswer
from antiphase.measures.questions import Rows
from antiphase.measures.stats import Array, decided, finite, over
from antiphase.report.figures.series import (
    TARGET_RATES,
    boxes,
    by_layer,
    curve,
    number_axis,
    rate_points,
    rates_in,
    success_word,
)
from antiphase.report.page_parts import Figure, Panel, Switch
from antiphase.report.theme import INK, SOFT, colour, legend_above, look_of

Row = dict[str, Any]
LONGEST = 26  # letters of a name in a figure
FEW = 4  # boxes that have room for the name of their model beneath them
BINS = 24  # of a histogram
ROOM = 0.28  # of a histogram's width, at least, on either side of zero: for a word


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
    name: str,
    title: str,
    models: Sequence[AttackedModel],
    note: str = "",
    within: str = "Linf",
    one_at_a_time: bool = False,
) -> Figure:
    """Attack success against the budget, with 95 % intervals; over all images, and over those first correct.

    Side by side, or in one place with a switch, which begins with the images first correct: of the others an attack says little.
    """
    first = _first_cell(models)
    of_all, of_correct = names = tuple(rates_in(first))
    panels: dict[str, Panel] = {
        rate: partial(_success_panel, models=models, rate=rate, within=within) for rate in names
    }
    views = {"correct images": panels[of_correct], "all images": panels[of_all]}
    rates = [
        (model.name, cell["eps"], rate, cell["rates"][rate])
        for model in models
        for rate in names
        for cell in model.cells
        if cell["rates"][rate]["value"] is not None
    ]
    return Figure(
        name=name,
        title=title,
        alt=_success_alt(models),
        panels=(Switch("Of which images?", views),) if one_at_a_time else tuple(panels.values()),
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


def _first_cell(models: Sequence[AttackedModel]) -> Row:
    """Any cell: all have the same rates."""
    return next((cell for model in models for cell in model.cells), {"rates": {}})


def _success_panel(axis: Any, models: Sequence[AttackedModel], rate: str, within: str) -> None:
    entries, budgets = [], set()
    first = _first_cell(models)
    for name, place, cells in models:
        points = rate_points((255 * cell["eps"], cell["rates"][rate]) for cell in cells)
        if points:
            entries.append((curve(axis, points, **look_of(place)), brief(name)))
            budgets |= {x for x, *_ in points}
    axis.set_xlabel(f"budget ε ({within}, in 255ths of a pixel's range)")
    axis.set_ylabel(success_word(first))
    axis.set_ylim(-2, 102)
    legend_above(axis, entries, rates_in(first)[rate])
    if entries:
        number_axis(axis, budgets)


def _success_alt(models: Sequence[AttackedModel]) -> str:
    """The largest budget's and the middle one's rates of images first correct, for readers who cannot see the curves."""
    sentences, success = [], "are fooled"
    for name, _, cells in models:
        if cells:
            _, of_correct = rates_in(cells[0])
            success = "reach the target" if of_correct in TARGET_RATES else success
            ends = {
                round(255 * c["eps"], 6): c["rates"][of_correct]["value"] for c in (cells[len(cells) // 2], cells[-1])
            }
            words = (f"{'undefined' if v is None else f'{100 * v:.0f} %'} at {eps:g}/255" for eps, v in ends.items())
            sentences.append(f"{name}: {', '.join(words)}")
    return f"Share of correctly classified images that {success}, against the budget. {'; '.join(sentences)}."


# ------------------------------------------------------------------------------------------------- certificates
STEPS = 32  # points of a curve of certified accuracy


def certified_figure(name: str, title: str, models: Sequence[CertifiedModel], note: str = "") -> Figure:
    """Certified accuracy against the L2 radius, with 95 % intervals: a curve for each model."""
    farthest = max(float(model.answer.radius.max()) for model in models) or models[0].answer.largest_radius
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
    axis.set_xlabel("L2 radius (pixels in [0,1])")
    axis.set_ylabel("correct and certified (%)")
    axis.set_ylim(-2, 102)
    legend_above(axis, entries, "certified accuracy")


# ------------------------------------------------------------------------------------------------- sensitivity
def sensitivity_figure(name: str, title: str, models: Sequence[MeasuredModel], note: str = "") -> Figure:
    """Per-image local Lipschitz estimates of the maps: relative to the size of the map, and on request as they are.

    Twins differ in the size of their maps (rows of A1 - lambda A2 sum to 1 - lambda) and in their number of heads, so only
    the relative estimates can be held against each other.
    """
    relative = [of for model in models for of in _layers(model, relative_sensitivity(model.lipschitz))]
    absolute = [of for model in models for of in _layers(model, Rows(model.lipschitz["rows"]).numbers("max"))]
    means = "; ".join(f"{of.model} layer {of.layer}: {np.mean(of.values):.3f}" for of in relative)
    views = {
        "relative": partial(_lipschitz_panel, layers=relative, relative=True),
        "absolute": partial(_lipschitz_panel, layers=absolute, relative=False),
    }
    return Figure(
        name=name,
        title=title,
        alt=f"Sampled local Lipschitz constants relative to the size of the map, means over images: {means}.",
        panels=(Switch("Relative or absolute?", views),),
        data=_one_row_per_value({"relative": relative, "absolute": absolute}),
        note=note,
    )


def relative_sensitivity(lipschitz: Row) -> Array:
    """Of a sampled local Lipschitz measure, one number per row: the largest ratio over the draws, over the size of the map."""
    rows = Rows(lipschitz["rows"])
    return over(rows.numbers("max"), rows.numbers("size"))


def _layers(model: MeasuredModel, column: Array) -> list[LayerValues]:
    """A column of its sensitivity, layer by layer."""
    rows = {**model.lipschitz["rows"], "value": [finite(value) for value in column]}
    return [
        LayerValues(model.name, model.place, number, values)
        for number, values in enumerate(by_layer(rows, "value").values(), start=1)
        if values
    ]


def _one_row_per_value(measures: dict[str, list[LayerValues]]) -> dict[str, list[Any]]:
    rows = [(name, of.model, of.layer, v) for name, layers in measures.items() for of in layers for v in of.values]
    return {key: [row[i] for row in rows] for i, key in enumerate(("measure", "model", "layer", "value"))}


def _lipschitz_panel(axis: Any, layers: list[LayerValues], relative: bool) -> None:
    drawn = [boxes(axis, [of.values], [at], colour(of.place)) for at, of in enumerate(layers)]
    few = len(layers) <= FEW
    names = [f"{brief(of.model)}\nlayer {of.layer}: mean {np.mean(of.values):.3g}" for of in layers]
    axis.set_xticks(range(len(layers)), names if few else [str(of.layer) for of in layers])
    axis.set_ylim(bottom=0)
    axis.set_ylabel("‖change of map‖ / (‖noise‖ ‖map‖)" if relative else "‖change of map‖ / ‖noise‖")
    entries = {} if few else {of.place: (box, brief(of.model)) for box, of in zip(drawn, layers)}
    legend_above(
        axis, list(entries.values()), f"how far a map moves, {'relative to' if relative else 'whatever'} its size"
    )
    if not few:
        axis.set_xlabel("layer")


# ------------------------------------------------------------------------------------------------- cosines
def cosine_figure(name: str, title: str, models: Sequence[MeasuredModel], note: str = "") -> Figure | None:
    """How the branches of each differential model react, one panel per model; None where no model has two branches.

    A pair of image and head whose sign the probes leave undecided is marked: it is in no share of opposed pairs.
    """
    pairs = [_pairs_of(model) for model in models if model.alignment]
    if not pairs:
        return None
    words = (
        f"{of.model}: {sum(v < 0 for v in of.decided)} of {len(of.decided)} decided pairs are opposed, {len(of.undecided)} are "
        "undecided"
        for of in pairs
    )
    rows = [
        (of.model, layer, cosine, "yes" if known else "no")
        for of in pairs
        for layer, cosine, known in zip(of.layers, of.cosines, of.known)
    ]
    return Figure(
        name=name,
        title=title,
        alt=f"Histogram of cosines between the input gradients of A1 and A2. {'; '.join(words)}.",
        panels=tuple(partial(_cosine_panel, pairs=of) for of in pairs),
        data={key: [row[i] for row in rows] for i, key in enumerate(("model", "layer", "cosine", "decided"))},
        note=note,
    )


class Pairs(NamedTuple):
    """The cosine of every (image, head) pair of a model, and whether its sign is decided."""

    model: str
    place: int
    layers: list[str]
    cosines: list[float]
    known: list[bool]

    @property
    def decided(self) -> list[float]:
        return [cosine for cosine, known in zip(self.cosines, self.known) if known]

    @property
    def undecided(self) -> list[float]:
        return [cosine for cosine, known in zip(self.cosines, self.known) if not known]


def _pairs_of(model: MeasuredModel) -> Pairs:
    rows = Rows((model.alignment or {})["rows"])
    cosines = rows.numbers("cos")
    kept = np.flatnonzero(rows.where(pairs="own") & np.isfinite(cosines))  # a dead branch has no cosine
    known = decided(cosines, rows.numbers("cos_se"))
    layers = [str(rows.columns["layer"][i]) for i in kept.tolist()]
    return Pairs(model.name, model.place, layers, cosines[kept].tolist(), known[kept].tolist())


def _cosine_panel(axis: Any, pairs: Pairs) -> None:
    low, high = min([*pairs.cosines, 0.0]), max([*pairs.cosines, 0.0])
    width = max(high - low, 0.01) / BINS
    bins = width * np.arange(np.floor(low / width), np.ceil(high / width) + 1)  # zero is an edge: no bar has both signs
    both = [pairs.decided, pairs.undecided]
    solid, hatched = axis.hist(both, bins=bins, stacked=True, color=[colour(pairs.place)] * 2)[2]
    for bar in hatched:
        bar.set(facecolor="none", edgecolor=SOFT, hatch="//////", linewidth=0.6)
    entries = [
        (solid, f"sign decided ({len(pairs.decided)} pairs)"),
        (hatched, f"undecided ({len(pairs.undecided)} pairs)"),
    ]
    room = ROOM * (bins[-1] - bins[0])
    axis.set_xlim(min(bins[0], -room), max(bins[-1], room))
    axis.axvline(0, color=INK, linewidth=1)
    for word, edge, shift in (("← opposed", "right", -6), ("aligned →", "left", 6)):
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
    axis.set_xlabel("cosine between the input gradients of A1 and A2")
    axis.set_ylabel("(image, head) pairs")
    axis.margins(y=0.2)  # for the words
    axis.locator_params(axis="x", nbins=6)
    axis.grid(axis="x", visible=False)
    legend_above(axis, entries, f"{brief(pairs.model)}: gradients of its branches")
