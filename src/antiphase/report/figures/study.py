"""The figure of a study, from the lines of its table: a panel per reading.

Lines that lie on an axis (eps, depth, lambda_init) are curves along it, as the papers draw them; where no line does, all lines
are dots below each other. Units decide what is multiplied by 100: shares and their differences, and nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import Any

from matplotlib import rcParams

from antiphase.report.figures.series import curve, number_axis
from antiphase.report.numbers import scaled
from antiphase.report.page_parts import Figure, Panel, columns_of_lines
from antiphase.report.theme import INK, SOFT, legend, look_of, other_look
from antiphase.report.words import reading_words

Row = Mapping[str, Any]  # a line of a study (paper/study.py)
Places = Mapping[str, int]  # the models of the page, whose colours are theirs here too
AXES = {
    "eps": "in 255ths of a pixel's range",
    "patch": "width in pixels",
    "attacked at": "in 255ths of a pixel's range",
}
PLAIN = "all else as usual"  # the name of a series that differs from the others in nothing but its number
WIDE = 52  # letters of a title on one line
FURTHER = ((1, 1.4), (6, 1.4, 1, 1.4), (9, 2))  # dashes that tell further series of one model apart from its first
MOST = 8  # panels; the table has every line
COLUMNS = ("label", "model", "axis", "x", "reading", "value", "interval", "n", "seeds", "reference")


def study_figure(name: str, title: str, lines: Sequence[Row], places: Places) -> Figure | None:
    """None where there is no number to draw."""
    measured = [line for line in lines if isinstance(line["value"], float | int)]
    panels = _curve_panels(measured, places) or _dot_panels(measured, places)
    if not panels:
        return None
    printed = any(isinstance(line["reference"], float) for line in measured)
    return Figure(
        name=name,
        title=title,
        alt=_alt(measured),
        panels=tuple(panels[:MOST]),
        data=columns_of_lines(measured, COLUMNS),
        note=_note(measured) + " A hollow mark is the paper's number." * printed,
    )


def _curve_panels(lines: Sequence[Row], places: Places) -> list[Panel]:
    """One per reading, unit and axis along which there is more than one number."""
    groups = _grouped([line for line in lines if line["axis"]], ("reading", "unit", "axis"))
    along = [group for group in groups if len({line["x"] for line in group}) > 1]
    return [partial(_curves, lines=group, places=places) for group in along]


def _dot_panels(lines: Sequence[Row], places: Places) -> list[Panel]:
    return [partial(_dots, lines=group, places=places) for group in _grouped(lines, ("reading", "unit"))]


def _grouped(lines: Sequence[Row], keys: Sequence[str]) -> list[list[Row]]:
    groups: dict[Hashable, list[Row]] = {}
    for line in lines:
        groups.setdefault(tuple(line[key] for key in keys), []).append(line)
    return list(groups.values())


def _curves(axis: Any, lines: Sequence[Row], places: Places) -> None:
    reading, unit, along = (lines[0][key] for key in ("reading", "unit", "axis"))
    series = _grouped(lines, ("series",))
    series = [of for of in series if len(of) > 1] or series  # a single point is in the table
    entries: list[tuple[Any, str]] = []
    for number, of in enumerate(series):
        style = _style(of[0], places, number)
        drawn = curve(axis, [(line["x"], scaled(line["value"], unit), _ends(line)) for line in of], **style)
        if before := sum((d.get_color(), d.get_marker()) == (style["color"], style["marker"]) for d, _ in entries):
            drawn.set_linestyle((0, FURTHER[(before - 1) % len(FURTHER)]))
        entries.append((drawn, of[0]["series"] or PLAIN))
        printed = [(line["x"], scaled(line["reference"], unit)) for line in of if isinstance(line["reference"], float)]
        if printed:
            hollow = {"linestyle": "", "marker": "o", "markerfacecolor": "none", "markersize": 7}
            axis.plot(*zip(*printed), color=style["color"], **hollow)
    number_axis(axis, (line["x"] for of in series for line in of))
    if unit == "points":
        axis.axhline(0, color=SOFT, linewidth=1)
    axis.set_xlabel(f"{along} ({AXES.get(along, 'no unit')})")
    axis.set_ylabel(unit or "value (no unit)")
    words = reading_words(reading)
    axis.set_title(fill(f"{words}, difference" if unit == "points" else words, WIDE))
    if 1 < len(entries) <= 8 or PLAIN not in (name for _, name in entries):
        legend(axis, entries)


def _dots(axis: Any, lines: Sequence[Row], places: Places) -> None:
    unit = lines[0]["unit"]
    for y, line in enumerate(lines):
        style, ends = _style(line, places, 0), _ends(line)
        if ends is not None:
            axis.plot(ends, [y, y], color=style["color"], linewidth=2)
        axis.plot(scaled(line["value"], unit), y, style["marker"], color=style["color"], markersize=6)
        if isinstance(line["reference"], float):
            axis.plot(scaled(line["reference"], unit), y, "o", color=INK, markerfacecolor="none", markersize=8)
    axis.set_yticks(range(len(lines)), [line["label"] for line in lines], fontsize=rcParams["legend.fontsize"])
    axis.invert_yaxis()
    axis.set_title(fill(reading_words(lines[0]["reading"]), WIDE))
    axis.set_xlabel(unit or "value (no unit)")
    axis.axvline(0, color=SOFT, linewidth=0.8)


def _style(line: Row, places: Places, number: int) -> dict[str, str]:
    """That of its model; a line about no model of the page is grey, with a mark of its own."""
    place = places.get(line["model"])
    return other_look(number) if place is None else look_of(place)


def _ends(line: Row) -> list[float] | None:
    """Of its interval, in the unit of the axis."""
    return None if line["interval"] is None else [scaled(end, line["unit"]) for end in line["interval"]]


def _note(lines: Sequence[Row]) -> str:
    """What the intervals are taken over, as the lines state it; nothing where none has one."""
    seeds = {line["seeds"] or 1 for line in lines if line["interval"]}
    over = {False: "images", True: "seeds and images"}
    words = " or ".join(over[several] for several in sorted({n > 1 for n in seeds}))
    return f"Bars and bands are 95 % intervals over {words}." if seeds else ""


def _alt(lines: Sequence[Row]) -> str:
    first = [f"{r['label']}: {scaled(r['value'], r['unit']):.3g}{' ' * bool(r['unit'])}{r['unit']}" for r in lines[:4]]
    return f"{'; '.join(first)}{'; and more in the table below' if len(lines) > 4 else ''}."
