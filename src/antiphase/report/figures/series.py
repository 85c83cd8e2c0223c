"""The two ways in which every figure here draws measured numbers: a curve with its intervals, and boxes per layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from matplotlib.transforms import ScaledTranslation

from antiphase.report.numbers import scaled
from antiphase.report.theme import INK

Row = dict[str, Any]
Point = tuple[float, float, Sequence[float] | None]  # x, y, and the two ends of the 95 % interval of y where it has one
RATES = {"asr_change": "of all images", "asr_correct": "of correctly classified images"}  # of success, and their titles
TARGET_RATES = {  # the same of an attack with a target
    "target_reached": "of images not predicted as the target before",
    "target_reached_correct": "of those correctly classified",
}
BESIDE = 2.2  # points of print from one bar to the next
OCTAVES = 8  # from this ratio of the largest to the smallest x on, an axis is logarithmic


def rates_in(cell: Mapping[str, Any]) -> dict[str, str]:
    """The rates of success that a stored attack has, and their titles."""
    return TARGET_RATES if "target_reached" in cell["rates"] else RATES


def success_word(cell: Mapping[str, Any]) -> str:
    """What these are rates of."""
    return "target reached (%)" if "target_reached" in cell["rates"] else "predictions changed (%)"


def curve(axis: Any, points: Iterable[Point], bars: float | None = None, /, **style: Any) -> Any:
    """Values joined by a line, with their intervals as a band behind it; returns the line, for a legend.

    Where several curves have one colour, their bands could not be told apart: `bars` draws each interval as a line instead and
    moves the whole curve sideways by so many points of print. A single value has a bar as well.
    """
    points = sorted(points, key=lambda point: point[0])
    band = [(x, *interval) for x, _, interval in points if interval is not None]
    (line,) = axis.plot(
        [x for x, *_ in points], [y for _, y, _ in points], **{"markersize": 5, "linewidth": 1.8, **style}
    )
    if band and (bars is not None or len(points) == 1):
        moved = axis.transData + ScaledTranslation((bars or 0.0) / 72, 0, axis.figure.dpi_scale_trans)
        line.set_transform(moved)
        axis.vlines(*zip(*band), color=line.get_color(), linewidth=1.2, transform=moved)
    elif band:
        axis.fill_between(*zip(*band), color=line.get_color(), alpha=0.16, linewidth=0)
    return line


def apart(curves: int) -> Iterator[float]:
    """How far each of so many curves is moved sideways, so that their bars stand beside each other."""
    return (BESIDE * (place - (curves - 1) / 2) for place in range(curves))


def rate_points(rates: Iterable[tuple[float, Row]]) -> list[Point]:
    """(x, stored rate) as points of a curve in percent; a rate without any image is left out."""
    return [
        (x, scaled(rate["value"], "%"), [scaled(end, "%") for end in rate["interval"]])
        for x, rate in rates
        if rate["value"] is not None
    ]


def number_axis(axis: Any, values: Iterable[float]) -> None:
    """Ticks at the numbers that were measured, and only there; octaves apart where they span several."""
    ticks = sorted({round(value, 6) for value in values})
    positive = [tick for tick in ticks if tick > 0]
    if len(positive) > 2 and positive[-1] / positive[0] >= OCTAVES:
        axis.set_xscale("log", base=2)
        ticks = positive
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


def boxes(axis: Any, values: Sequence[Sequence[float]], at: Sequence[float], colour: str, width: float = 0.5) -> Any:
    """One box per entry of `values`: quartiles and median, no outliers; returns the first, for a legend."""
    lines = {f"{part}props": {"color": INK} for part in ("median", "whisker", "cap")}
    drawn = axis.boxplot(values, positions=at, widths=width, patch_artist=True, showfliers=False, **lines)
    for box in drawn["boxes"]:
        box.set(facecolor=colour, alpha=0.5, edgecolor=colour)
    axis.grid(axis="x", visible=False)
    return drawn["boxes"][0]


def by_layer(rows: Row, name: str, **only: Any) -> dict[str, list[float]]:
    """One column of a cell's rows, layer by layer, where the other columns say so; what is undefined is left out."""
    layers: dict[str, list[float]] = {}
    for i, (layer, value) in enumerate(zip(rows["layer"], rows[name])):
        if all(rows[key][i] == wanted for key, wanted in only.items()):
            layers.setdefault(layer, []).extend([] if value is None else [value])
    return layers
