"""The figure of a study, from the lines of its table. What a label names by a number (eps 1/255, depth 4) is the axis, as the
papers draw it; lines without such a number are dots beside each other. One panel a reading."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import Any

from antiphase.report.page_parts import Figure, columns_of_lines
from antiphase.report.theme import INK, SOFT, legend, look_of, other_look

Row = Mapping[str, Any]
NUMBERED = re.compile(r"^(?P<name>[a-z_ ]*[a-z_]) (?P<x>\d[\d.]*)(/255)?( x \d+)?$")
UNITS = {
    "eps": "in 255ths of a pixel's range",
    "patch": "width in pixels",
    "attacked at": "in 255ths of a pixel's range",
}
PLAIN = "all else as usual"
WIDE = 52  # letters of a title on one line
FURTHER = ((1, 1.4), (6, 1.4, 1, 1.4), (9, 2))  # dashes that tell further series of one model apart from its first
MOST = 6  # readings drawn; the table has them all


def figure_of(name: str, title: str, lines: Sequence[Row], places: Mapping[str, int]) -> Figure | None:
    """None where there is no number to draw. `places`: the models of the page, whose colours are theirs here too."""
    there = [line for line in lines if isinstance(line["value"], float | int)]
    axis = axis_of([line["label"] for line in there])
    readings = list(dict.fromkeys((line["reading"], line["unit"]) for line in there))[:MOST]
    panels = []
    for reading, unit in readings:
        chosen = [line for line in there if (line["reading"], line["unit"]) == (reading, unit)]
        told = [(split_label(line["label"], axis), line) for line in chosen]
        curves = axis is not None and len({x for (_, x), _ in told if x is not None}) > 1
        draw = partial(_curves, axis_name=axis or "") if curves else _dots
        panels.append((curves, partial(draw, told=told, title=reading, unit=unit, places=places)))
    if not panels:
        return None
    along = [panel for curves, panel in panels if curves] or [panel for _, panel in panels]
    printed = any(isinstance(line["reference"], float) for line in there)
    return Figure(
        name=f"{name}-figure",
        title=title,
        alt=_alt(there),
        panels=tuple(along),
        data=columns_of_lines(there, ("label", "reading", "value", "interval", "n", "seeds", "reference")),
        note=_note(there) + " A hollow mark is the paper's number." * printed,
    )


def _note(lines: Sequence[Row]) -> str:
    """Over what the intervals are, as the lines say it themselves; nothing where none has one."""
    seeds = {line["seeds"] or 1 for line in lines if line["interval"]}
    over = {False: "images", True: "seeds and images"}
    words = " or ".join(over[several] for several in sorted({n > 1 for n in seeds}))
    return f"Bars and bands are 95 % intervals over {words}." if seeds else ""


def axis_of(labels: Sequence[str]) -> str | None:
    """What the labels number: of several such words the one with most different numbers."""
    seen: dict[str, set[str]] = {}
    for label in labels:
        for part in label.split(", "):
            if match := NUMBERED.match(part):
                seen.setdefault(match["name"], set()).add(match["x"])
    best = max(seen, key=lambda name: len(seen[name]), default=None)
    return best if best is not None and len(seen[best]) > 1 else None


def split_label(label: str, axis: str | None) -> tuple[str, float | None]:
    """The label without its number on the axis, and that number; None where it has none."""
    rest, x = [], None
    for part in label.split(", "):
        match = NUMBERED.match(part)
        if match and match["name"] == axis and x is None:
            x = float(match["x"].rstrip("."))
        else:
            rest.append(part)
    return ", ".join(rest), x


def drawn_as(series: str, places: Mapping[str, int], number: int) -> dict[str, str]:
    """As the model that a series begins with; one that is about no model of the page is grey, with a mark of its own."""
    place = places.get(series.split(", ")[0])
    return other_look(number) if place is None else look_of(place)


def _curves(axis: Any, axis_name: str, told: list[Any], title: str, unit: str, places: Mapping[str, int]) -> None:
    groups: dict[str, list[Any]] = {}
    for (series, x), line in told:
        among_rates = " - " in series and unit != "points"  # a difference, on the scale of what differs
        if x is not None and not among_rates:
            groups.setdefault(series or PLAIN, []).append((x, line))
    groups = {name: of for name, of in groups.items() if len(of) > 1} or groups  # a single point is in the table
    entries: list[tuple[Any, str]] = []
    for number, (series, points) in enumerate(groups.items()):
        points.sort(key=lambda p: p[0])
        style = drawn_as(series, places, number)
        shade = style["color"]
        xs, ys = [x for x, _ in points], [_scaled(line["value"], unit) for _, line in points]
        (curve,) = axis.plot(xs, ys, markersize=5, linewidth=1.8, **style)
        if before := sum(drawn.get_color() == shade and drawn.get_marker() == style["marker"] for drawn, _ in entries):
            curve.set_linestyle((0, FURTHER[(before - 1) % len(FURTHER)]))
        entries.append((curve, series))
        held = [(x, *map(partial(_scaled, unit=unit), line["interval"])) for x, line in points if line["interval"]]
        if held:
            axis.fill_between(*zip(*held), color=shade, alpha=0.16, linewidth=0)
        printed = [(x, _scaled(line["reference"], unit)) for x, line in points if isinstance(line["reference"], float)]
        if printed:
            axis.plot(*zip(*printed), color=shade, linestyle="", marker="o", markerfacecolor="none", markersize=7)
    ticks = sorted({x for points in groups.values() for x, _ in points})
    if len(ticks) > 2 and ticks[0] > 0 and ticks[-1] / ticks[0] >= 8:
        axis.set_xscale("log", base=2)
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.minorticks_off()
    if unit == "points":
        axis.axhline(0, color=SOFT, linewidth=1)
    axis.set_xlabel(f"{axis_name} ({UNITS.get(axis_name, 'no unit')})")
    _finish(axis, title, unit)
    if 1 < len(groups) <= 8 or PLAIN not in groups:
        legend(axis, entries, fontsize=9)


def _dots(axis: Any, told: list[Any], title: str, unit: str, places: Mapping[str, int]) -> None:
    names = [line["label"] for _, line in told]
    for y, (_, line) in enumerate(told):
        style = drawn_as(line["label"], places, 0)
        shade = style["color"]
        if line["interval"]:
            axis.plot([_scaled(v, unit) for v in line["interval"]], [y, y], color=shade, linewidth=2)
        axis.plot(_scaled(line["value"], unit), y, style["marker"], color=shade, markersize=6)
        if isinstance(line["reference"], float):
            axis.plot(_scaled(line["reference"], unit), y, "o", color=INK, markerfacecolor="none", markersize=8)
    axis.set_yticks(range(len(names)), names, fontsize=9)
    axis.invert_yaxis()
    axis.set_title(fill(title, WIDE))
    axis.set_xlabel(unit or "value (no unit)")
    axis.axvline(0, color=SOFT, linewidth=0.8)


def _finish(axis: Any, title: str, unit: str) -> None:
    axis.set_title(fill(f"{title}, difference" if unit == "points" else title, WIDE))
    axis.set_ylabel(unit or "value (no unit)")


def _scaled(value: float, unit: str) -> float:
    return 100 * value if unit else value


def _alt(lines: Sequence[Row]) -> str:
    first = [f"{r['label']}: {_scaled(r['value'], r['unit']):.3g}{' ' * bool(r['unit'])}{r['unit']}" for r in lines[:4]]
    return f"{'; '.join(first)}{'; and more in the table below' if len(lines) > 4 else ''}."
