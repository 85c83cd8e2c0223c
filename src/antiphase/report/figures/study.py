"""The figure of a study, from the lines of its table: a panel per reading.

Lines that lie on an axis (eps, depth, lambda_init) are curves along it, as the papers draw them; where no line does, they are
dots, in one row what differs in its model or is a control of the same. What all lines of a panel have in common is in its title.
Units decide what is multiplied by 100: shares and their differences, and nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import Any

from antiphase.report.figures.series import apart, curve, number_axis
from antiphase.report.numbers import scaled
from antiphase.report.page_parts import Figure, Panel, columns_of_lines
from antiphase.report.theme import CONTROL_MARKS, INK, SOFT, legend_above, legend_rows, letter, look_of, other_look
from antiphase.report.words import axis_words, detail_words, label_words, reading_words, told_apart

Row = Mapping[str, Any]  # a line of a study (paper/study.py)
Places = Mapping[str, int]  # the models of the page, whose colours are theirs here too
Sized = tuple[Panel, float]  # a panel, and its height on a page in inches
PLAIN = "all else as usual"  # the name of a series that differs from the others in nothing but its number
PAPER = "the paper's number"
WIDE, LABEL = 52, 30  # letters of a title and of a row on one line
LETTER = 0.56  # width of a letter, of its height
FURTHER = ((1, 1.4), (6, 1.4, 1, 1.4), (9, 2))  # dashes that tell further series of one model apart from its first
MOST, MOST_CURVES = 8, 8  # panels, and curves in one of them; the table has every line
CURVES, FRAME, LEGEND = 3.1, 0.75, 0.2  # inches: axes with curves, what is around dots, a row of a legend or of a title
PRINT = 2.9  # inches in print of a panel of usual height
TEXT, DOT, GAP = (
    0.14,
    0.1,
    0.1,
)  # inches: a row of dots for each line of its words or each of its dots, and between rows
COLUMNS = ("label", "model", "axis", "x", "reading", "value", "interval", "n", "seeds", "reference")


def study_figure(name: str, lines: Sequence[Row], places: Places) -> Figure | None:
    """None where there is no number to draw."""
    measured = [line for line in lines if isinstance(line["value"], float | int)]
    panels = _curve_panels(measured, places) or _dot_panels(measured, places)
    if not panels:
        return None
    more = len(panels) - MOST
    return Figure(
        name=name,
        alt=_alt(measured),
        panels=tuple(panel for panel, _ in panels[:MOST]),
        heights=tuple(height for _, height in panels[:MOST]),
        data=columns_of_lines(measured, COLUMNS),
        height=PRINT,
        note=_note(measured) + f" {more} further panels are left out: the table has every line." * (more > 0),
    )


def _grouped(lines: Sequence[Row], keys: Sequence[str]) -> list[list[Row]]:
    groups: dict[Hashable, list[Row]] = {}
    for line in lines:
        groups.setdefault(tuple(line[key] for key in keys), []).append(line)
    return list(groups.values())


def _title(line: Row, common: Iterable[str]) -> str:
    """The reading in words, and what all lines of the panel have in common; on lines of their own where one is too short."""
    words = list(filter(None, [reading_words(line["reading"]), label_words(", ".join(filter(None, common)))]))
    whole = ": ".join(words)
    return whole if len(whole) <= WIDE else ":\n".join(fill(part, WIDE) for part in words)


def _above(title: str, names: Sequence[str]) -> float:
    """Inches that a title and a legend of these names take above a panel."""
    return LEGEND * (title.count("\n") + 1 + legend_rows(names))


# ------------------------------------------------------------------------------------------------- curves


def _curve_panels(lines: Sequence[Row], places: Places) -> list[Sized]:
    """One per reading, unit and axis along which there is more than one number; one per model where there are many curves."""
    groups = _grouped([line for line in lines if line["axis"]], ("reading", "unit", "axis"))
    along = [group for group in groups if len({line["x"] for line in group}) > 1]
    split = [
        part
        for group in along
        for part in ([group] if len(_series(group)) <= MOST_CURVES else _grouped(group, ("model",)))
    ]
    return [
        (partial(_curves, lines=group, places=places), CURVES + _above(_title(group[0], common), names))
        for group in split
        for common, names in [_curve_names(group)]
    ]


def _series(lines: Sequence[Row]) -> list[list[Row]]:
    """The curves of a panel; a single point is in the table."""
    series = _grouped(lines, ("series",))
    return [of for of in series if len(of) > 1] or series


def _curve_names(lines: Sequence[Row]) -> tuple[list[str], list[str]]:
    common, names = told_apart([of[0]["series"].split(", ") for of in _series(lines)])
    return common, [label_words(name) or PLAIN for name in names] if len(names) > 1 else []


def _curves(axis: Any, lines: Sequence[Row], places: Places) -> None:
    unit, series = lines[0]["unit"], _series(lines)
    common, names = _curve_names(lines)
    styles = [_style(of[0], places, number) for number, of in enumerate(series)]
    alike = len({style["color"] for style in styles}) < len(styles)  # then bands could not be told apart
    drawn: list[Any] = []
    for of, style, beside in zip(series, styles, apart(len(series))):
        points = [(line["x"], scaled(line["value"], unit), _ends(line)) for line in of]
        drawn.append(curve(axis, points, beside if alike else None, **style))
        before = [(d.get_color(), d.get_marker()) for d in drawn[:-1]].count((style["color"], style["marker"]))
        if before:
            drawn[-1].set_linestyle((0, FURTHER[(before - 1) % len(FURTHER)]))
        printed = [(line["x"], scaled(line["reference"], unit)) for line in of if isinstance(line["reference"], float)]
        if printed:
            hollow = {"linestyle": "", "marker": "o", "markerfacecolor": "none", "markersize": 7}
            axis.plot(*zip(*printed), color=style["color"], **hollow)
    number_axis(axis, (line["x"] for of in series for line in of))
    if all(end >= 0 for of in series for line in of for end in (line["value"], *(line["interval"] or ()))):
        axis.set_ylim(0, 104 if unit == "%" else None)
    else:
        axis.axhline(0, color=SOFT, linewidth=1)
    axis.set_xlabel(axis_words(lines[0]["axis"]))
    axis.set_ylabel(unit)
    legend_above(axis, list(zip(drawn, names)), _title(lines[0], common))


# ------------------------------------------------------------------------------------------------- dots


def _dot_panels(lines: Sequence[Row], places: Places) -> list[Sized]:
    return [
        (partial(_dots, lines=group, places=places), _height(group)) for group in _grouped(lines, ("reading", "unit"))
    ]


def _height(lines: Sequence[Row]) -> float:
    common, rows = _dot_rows(lines)
    kinds = list(dict.fromkeys(map(_kind, lines)))
    above = _above(_dot_title(lines, common), kinds if len(kinds) > 1 else [])
    text, dots = max(name.count("\n") + 1 for name in rows), max(map(len, rows.values()))
    return FRAME + (GAP + max(TEXT * text, DOT * dots)) * len(rows) + above


def _dot_title(lines: Sequence[Row], common: Sequence[str]) -> str:
    """With the model in it where all dots are of one; else the legend says which is whose."""
    kinds = dict.fromkeys(map(_kind, lines))
    return _title(lines[0], [*(kinds if len(kinds) == 1 else ()), *common])


def _parts(line: Row) -> list[str]:
    """Of its label, without its model and without saying that it is a control."""
    parts = str(line["label"]).split(", ")
    return [part for part in parts[parts[0] == line["model"] :] if part not in CONTROL_MARKS]


def _control(line: Row) -> str:
    return next((part for part in str(line["label"]).split(", ") if part in CONTROL_MARKS), "")


def _kind(line: Row) -> str:
    """What its mark says."""
    return detail_words(_control(line)).removeprefix("control: ") or str(line["model"])


def _dot_rows(lines: Sequence[Row]) -> tuple[list[str], dict[str, list[Row]]]:
    """What all labels have in common; the lines of each row by the rest of their labels."""
    common, names = told_apart([_parts(line) for line in lines])
    rows: dict[str, list[Row]] = {}
    for name, line in zip(names, lines):
        rows.setdefault(fill(label_words(name), LABEL), []).append(line)
    return common, rows


def _dots(axis: Any, lines: Sequence[Row], places: Places) -> None:
    """A row of dots beside the words that it is about, each with its interval."""
    unit = lines[0]["unit"]
    common, rows = _dot_rows(lines)
    entries: dict[str, Any] = {}
    for y, row in enumerate(rows.values()):
        for number, line in enumerate(row):
            at = y + 0.6 * ((number + 0.5) / len(row) - 0.5)
            style, ends = _dot_style(line, places), _ends(line)
            if ends is not None:
                axis.plot(ends, [at, at], color=style["color"], linewidth=1 if _control(line) else 2)
            (mark,) = axis.plot(scaled(line["value"], unit), at, linestyle="", clip_on=False, **style)
            entries.setdefault(_kind(line), mark)
            if isinstance(line["reference"], float):
                hollow = {"marker": "o", "color": INK, "markerfacecolor": "none", "markersize": 8, "linestyle": ""}
                entries[PAPER] = axis.plot(scaled(line["reference"], unit), at, **hollow)[0]
    axis.set_ylim(len(rows) - 0.5, -0.5)
    points = letter("legend.fontsize")
    axis.set_yticks(range(len(rows)), rows, fontsize=points)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="y", visible=False)
    if unit == "%":
        axis.set_xlim(0, 102)
    axis.axvline(0, color=SOFT, linewidth=0.8)
    axis.set_xlabel(unit)
    named = [(mark, name) for name, mark in entries.items() if name and len(entries) > 1]
    words = max(len(part) for name in rows for part in name.split("\n"))
    legend_above(axis, named, _dot_title(lines, common), left=LETTER * points * words)


def _dot_style(line: Row, places: Places) -> dict[str, Any]:
    """Filled in the colour of its model; a control is hollow, as in figure 5."""
    if control := _control(line):
        return {"color": INK, "marker": CONTROL_MARKS[control], "markerfacecolor": "none", "markersize": 5}
    look = _style(line, places, 0)
    return {"color": look["color"], "marker": look["marker"], "markersize": 6}


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
    printed = any(isinstance(line["reference"], float) for line in lines)
    note = f"Bars and bands are 95 % intervals over {words}." if seeds else ""
    return note + " A hollow circle is the paper's number." * printed


def _alt(lines: Sequence[Row]) -> str:
    first = [
        f"{label_words(r['label'])}: {scaled(r['value'], r['unit']):.3g}{' ' * bool(r['unit'])}{r['unit']}"
        for r in lines[:4]
    ]
    return f"{'; '.join(first)}{'; and more in the table below' if len(lines) > 4 else ''}."
