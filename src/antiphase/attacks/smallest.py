"""The smallest of what several attacks found, example by example: a composition of their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from antiphase import console
from antiphase.attacks.minimal import MinimalL2
from antiphase.attacks.result import AttackResult, Looked


def smallest(
    attack: MinimalL2, run: Callable[..., AttackResult], *, label: str, journal: Path | None, looked: Looked | None
) -> AttackResult:
    """Run all parts, the cheapest first; a later one has to beat what is there. Costs and flags add up.

    `run` takes a part, a label, a journal and what is known of the clean images: they are looked at once. Every part keeps
    a journal of its own, beside the given name.
    """
    results: list[AttackResult] = []
    for name, part in attack.parts.items():
        own = None if journal is None else journal.with_name(f"{journal.name}-{name}")
        seen = results[0].looked if results else looked
        results.append(run(part, label=f"{label}, {part.name}", journal=own, looked=seen))
        _say(part.name, reduce(nearer_of, results))
    told_apart = [replace(r, broken_by=r.success.long() * (i + 1) - 1) for i, r in enumerate(results)]
    names = tuple(part.name for part in attack.parts.values())
    return replace(reduce(nearer_of, told_apart), stages=names, alone=tuple(results))


def nearer_of(one: AttackResult, other: AttackResult) -> AttackResult:
    """Of each example what is nearer, the first if they tie; of the same images."""
    better = other.success & (~one.success | (other.distance < one.distance))
    chosen: dict[str, Any] = {}
    names = ("adversarial", "adversarial_prediction", "success", "distance")
    for name in names if one.broken_by is None else (*names, "broken_by"):
        chosen[name] = getattr(one, name).clone()
        chosen[name][better] = getattr(other, name)[better]
    costs: dict[str, Any] = {name: getattr(one, name) + getattr(other, name) for name in ("forwards", "backwards")}
    flags = tuple(dict.fromkeys((*one.flags, *other.flags)))
    changed, compiled = chosen["success"][None], one.compiled or other.compiled
    return replace(one, **chosen, **costs, changed_in_run=changed, flags=flags, compiled=compiled)


def _say(name: str, best: AttackResult) -> None:
    found = best.distance[best.success]
    median = f"{float(found.median()):.4g}" if len(found) else "undefined"
    console.say(f"median of the smallest L2 after {name}: {median} ({len(found)} of {len(best.success)} found)")
