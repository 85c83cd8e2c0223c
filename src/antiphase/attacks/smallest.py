"""The smallest of what several attacks found, example by example: a composition of their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from antiphase.attacks.minimal import MinimalL2
from antiphase.attacks.result import AttackResult, Looked


def smallest(
    attack: MinimalL2, run: Callable[..., AttackResult], *, journal: Path | None, looked: Looked | None
) -> AttackResult:
    """Run all parts, the cheapest first; a later one has to beat what is there. Costs and flags add up.

    `run` takes a part, a journal and what is known of the clean images: they are looked at once. Every part keeps a journal
    of its own, beside the given name.
    """
    results: list[AttackResult] = []
    for name, part in attack.parts.items():
        own = None if journal is None else journal.with_name(f"{journal.name}-{name}")
        results.append(run(part, journal=own, looked=results[0].looked if results else looked))
    return reduce(nearer_of, results)


def nearer_of(one: AttackResult, other: AttackResult) -> AttackResult:
    """Of each example what is nearer, the first if they tie; of the same images."""
    better = other.success & (~one.success | (other.distance < one.distance))
    chosen: dict[str, Any] = {}
    for name in ("adversarial", "adversarial_prediction", "success", "distance"):
        chosen[name] = getattr(one, name).clone()
        chosen[name][better] = getattr(other, name)[better]
    costs: dict[str, Any] = {name: getattr(one, name) + getattr(other, name) for name in ("forwards", "backwards")}
    flags = tuple(dict.fromkeys((*one.flags, *other.flags)))
    changed, compiled = chosen["success"][None], one.compiled or other.compiled
    return replace(one, **chosen, **costs, changed_in_run=changed, flags=flags, compiled=compiled)
