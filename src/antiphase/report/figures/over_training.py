"""Fragility over training: attack success, the gap, lambda, how the branches change and margins, epoch by epoch.

Colour and mark say the model, the kind of line says the depth, as in the figures of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.ticker import LogLocator, MaxNLocator, ScalarFormatter

from antiphase.report.figures.paper_figures import DASHES, PLACES, VITS, Lines, PaperFigure, Part, Row, points_of, where
from antiphase.report.figures.series import apart, curve
from antiphase.report.numbers import scaled
from antiphase.report.theme import INK, SOFT, legend_above, look_of

STUDY = "fragility-over-training"
GAP = "DiffViT - ViT"  # no model of its own
LONG = 40  # from so many epochs on their axis is logarithmic
PANELS = (  # reading, whose, title, what is along the axis
    ("asr_correct", VITS, "attack success, images classified correctly", "attack success (%)"),
    ("asr_correct", (GAP,), "the gap: DiffViT − ViT", "points"),
    ("lambda, mean over layers", VITS, "λ, mean over layers", "λ"),
    ("R3: mean cos", VITS, "changes of A1 and A2 under noise", "mean cosine"),
    ("R3: mean kappa", VITS, "κ = λ × size of A2's change / A1's", "mean κ"),
    ("mean margin", VITS, "margin of clean images", "mean margin (logits)"),
)


def _parts(lines: Lines) -> list[Part]:
    parts = []
    for letter, (reading, whose, title, ylabel) in zip("abcdef", PANELS):
        models = tuple("" if name == GAP else name for name in whose)
        mine = where(lines[STUDY], reading, "epoch", models)
        parts.append(Part(partial(_course, lines=mine, title=f"({letter}) {title}", ylabel=ylabel), mine))
    return parts


def _depths(line: Row) -> tuple[str, ...]:
    return tuple(detail for detail in line["details"] if detail.startswith("depth "))


def _course(axis: Any, lines: Sequence[Row], title: str, ylabel: str) -> None:
    """A curve for each model and depth along the epochs."""
    depths = list(dict.fromkeys(_depths(line) for line in lines))
    models = list(dict.fromkeys(line["model"] for line in lines))
    beside, entries = apart(len(depths) * len(models)), []
    for depth, dashes in zip(depths, DASHES):
        for model in models:
            look = look_of(PLACES[model]) if model else {"color": INK, "marker": "D"}
            mine = [line for line in lines if line["model"] == model and _depths(line) == depth]
            bars = next(beside) if len(depths) > 1 else None
            style = {**look, "linestyle": dashes, "markersize": 3.5, "linewidth": 1.5}
            entries.append((curve(axis, points_of(mine), bars, **style), ", ".join(filter(None, (model, *depth)))))
    _epochs(axis, max(line["x"] for line in lines))
    if lines[0]["unit"] == "%":
        axis.set_ylim(0, 104)
    else:
        _ends(axis, [scaled(end, lines[0]["unit"]) for x in lines for end in (x["value"], *(x["interval"] or ()))])
    axis.set_ylabel(ylabel)
    legend_above(axis, entries, title)


def _ends(axis: Any, values: Sequence[float]) -> None:
    """Room for all intervals, and a line at 0 where they lie on both sides of it."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low or 1.0)
    axis.set_ylim(low - room, high + room)
    if low < 0 < high:
        axis.axhline(0, color=SOFT, linewidth=1)


def _epochs(axis: Any, last: float) -> None:
    """Whole epochs; doubled from one tick to the next where training is long."""
    if last >= LONG:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_locator(LogLocator(base=2, subs=(1.0,), numticks=12))
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.minorticks_off()
    else:
        axis.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axis.set_xlabel("after epoch")


OVER_TRAINING = PaperFigure(
    STUDY,
    "Fragility over training: attack success, λ and the two branches, epoch by epoch",
    (STUDY,),
    _parts,
    note="Bars and bands are 95 % intervals.",
)
