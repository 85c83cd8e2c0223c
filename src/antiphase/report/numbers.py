"""Numbers as text: rates in percent, differences in points, intervals, and a line of a study as the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphase.config import Budget
from antiphase.tables import number

Row = dict[str, Any]
COLUMNS = ("", "reference", "ours", "interval", "reading", "n", "seeds")


def scaled(value: float, unit: str) -> float:
    """A share or a difference of shares in percent or points; any other number as it was measured."""
    return 100 * value if unit else value


def value_text(value: float | str | None, unit: str) -> str:
    """A rate in percent, a difference of rates in points, another number to three digits, a word as it is."""
    if value is None or isinstance(value, str):
        return value or "-"
    if unit == "points":
        return f"{scaled(value, unit):+.1f} points"
    return f"{scaled(value, unit):.1f} %" if unit == "%" else number(value)


def interval_text(interval: Sequence[float] | None, unit: str) -> str:
    """Its two ends, in the unit of the value that they belong to."""
    if interval is None:
        return "-"
    low, high = (scaled(end, unit) for end in interval)
    if unit == "points":
        return f"[{low:+.1f}, {high:+.1f}]"
    return f"[{low:.1f}, {high:.1f}]" if unit == "%" else f"[{number(low)}, {number(high)}]"


def columns_of(line: Row) -> tuple[str, ...]:
    """A line of a study as texts: label, reference, ours, interval, reading, n, seeds."""
    unit = line["unit"]
    ours = value_text(line["value"], unit) if line["value"] is not None else line.get("text") or line["note"] or "-"
    n, seeds = ("-" if line[key] is None else str(line[key]) for key in ("n", "seeds"))
    reference, interval = value_text(line["reference"], unit), interval_text(line["interval"], unit)
    return line["label"], reference, ours, interval, line["reading"], n, seeds


def worth_noting(line: Row) -> bool:
    """Not what stands in the table or its title already."""
    return bool(line["note"]) and line["note"] != "surrogate" and (line["value"] is not None or bool(line.get("text")))


def eps_of(row: Row) -> str:
    """The budget of a stored attack in 255ths, as pixels are; an L2 distance is of no single pixel and stays a number."""
    l2 = row.get("attack", {}).get("within", {}).get("kind") == "L2"
    return f"{row['eps']:g}" if l2 else str(Budget(row["eps"]))


def attack_name(attack: Row) -> str:
    """What a stored attack is called: one step of PGD from the image itself is FGSM."""
    one_step = attack["kind"] == "PGD" and attack["steps"] == 1 and not attack.get("random_start", True)
    return "FGSM" if one_step else str(attack["kind"])


def threat_text(attack: Row) -> str:
    """Where the perturbation of a stored attack may live; a patch with its width and its place."""
    within = attack.get("within") or {"kind": "its own set"}
    if within["kind"] != "Patch":
        return str(within["kind"])
    places = {"random": "a random place", "attention": "the place that the model attends to most"}
    place = within["place"]
    where = places[place] if isinstance(place, str) else f"top {place[0]}, left {place[1]}"
    return f"a patch of {within['width']} x {within['width']} pixels at {where}"


def attack_text(attack: Row) -> str:
    """The name of a stored attack; a patch attack with the patch."""
    patch = (attack.get("within") or {}).get("kind") == "Patch"
    return attack_name(attack) + (f" within {threat_text(attack)}" if patch else "")
