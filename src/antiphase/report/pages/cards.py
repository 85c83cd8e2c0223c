"""What cards and slots share: an accuracy with its n and interval, and the command that fills a slot, ready to be pasted."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from antiphase.rates import wilson
from antiphase.report.numbers import interval_text, value_text
from antiphase.report.page_parts import Value


def accuracy(value: float, n: int | None) -> Value:
    """With Wilson's 95 % interval where it is known of how many images it is."""
    interval = f"{interval_text(wilson(value, n), '%')}, n = {n}" if n else ""
    return Value(value_text(value, "%"), interval)


def command(verb: str, folders: Sequence[object], *options: str) -> str:
    """A line for a shell, whatever the names of the folders."""
    return " ".join(["antiphase", verb, *(shlex.quote(str(folder)) for folder in folders), *options])


def needs_data(about: Mapping[str, Any]) -> bool:
    """A CLIP that was converted, or trained on captions, has no classes of its own: images must be named."""
    return not (about["data"] or {}).get("class_names")
