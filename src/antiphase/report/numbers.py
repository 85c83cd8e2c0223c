"""Numbers as text: rates in percent, differences in points, intervals, and a line of a study as the columns of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from antiphase.attacks.config import APGD, CW, DDN, FAB, FMN, PGD, Attack, AutoAttack, MinimalL2, Square, target_text
from antiphase.attacks.threat_model import budget_text
from antiphase.config import Budget, stored_name
from antiphase.tables import number

Row = dict[str, Any]
ATTACKS: dict[str, type[Attack]] = {
    kind.__name__: kind for kind in (PGD, APGD, FAB, Square, AutoAttack, CW, DDN, FMN, MinimalL2)
}
COUNTED = {  # settings that are counts: the word for one, and for more
    "steps": ("step", "steps"),
    "restarts": ("restart", "restarts"),
    "queries": ("query", "queries"),
    "searches": ("search", "searches"),
    "targets": ("target class", "target classes"),
}
ALWAYS = ("version", "steps", "restarts", "queries", "searches")  # settings that are named even at their defaults
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
    """The budget of a stored attack in 255ths, as pixels are; an L2 distance is of no single pixel: as it was written."""
    l2 = row.get("attack", {}).get("within", {}).get("kind") == "L2"
    return budget_text(row["eps"]) if l2 else str(Budget(row["eps"]))


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
    """The name of a stored attack; a patch attack with the patch, and one with a target with that."""
    patch = (attack.get("within") or {}).get("kind") == "Patch"
    return attack_name(attack) + (f" within {threat_text(attack)}" if patch else "") + _towards(attack)


def _towards(attack: Row) -> str:
    return "" if attack.get("target") is None else f" towards {target_text(attack['target'])}"


def attack_with_settings(attack: Row) -> str:
    """The name of a stored attack, where it may go and how it was set: steps and restarts, and what is not as by default."""
    where = f" within {threat_text(attack)}" if attack.get("within") else ""  # minimum-norm attacks have no such set
    return ", ".join([attack_name(attack) + where + _towards(attack), *_settings(attack)])


def _settings(attack: Row) -> Iterator[str]:
    by_name = attack_name(attack) == "FGSM"  # whose name says its step and where it begins
    for setting in fields(ATTACKS[attack["kind"]]):  # type: ignore[arg-type]
        name, value = setting.name, attack.get(stored_name(setting))
        if name in ("within", "target") or (by_name and name in ("steps", "restarts", "step_size", "random_start")):
            continue
        if isinstance(value, dict):  # a part of several
            yield f"{value['kind']} ({', '.join(_settings(value))})"
        elif name in ALWAYS or value != _default(setting):
            yield _setting_text(name, value)


def _default(setting: Field[Any]) -> Any:
    return None if setting.default is MISSING else setting.default


def _setting_text(name: str, value: Any) -> str:
    """3 restarts, loss margin, away from the predicted label"""
    if name in COUNTED:
        one, more = COUNTED[name]
        return f"{value} {one if value == 1 else more}"
    if name == "label":
        return f"away from the {value} label"
    word = name.replace("_", " ")
    return f"no {word}" if value is False else f"{word} {value:g}" if isinstance(value, float) else f"{word} {value}"
