"""What `ap.attack` and `ap.sweep` return: the result of an attack that shows its rates, each with its interval and denominator.

The engine's own `AttackResult` lies to the left of the measures and has no rates; here it is given them, and what the engine was
asked: the attack's name and the ids of the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphase.attacks.config import Attack
from antiphase.attacks.engine import AttackResult
from antiphase.attacks.question import AttackQuestion
from antiphase.measures.attack_rates import DENOMINATORS, TARGETED
from antiphase.measures.distances import distances
from antiphase.measures.stats import mean_finite, median_finite
from antiphase.measures.success import success_rates
from antiphase.tables import Shown, ShownList, Table, interval_of, number, percent, with_interval


@dataclass(frozen=True, repr=False)
class RatedResult(AttackResult, Shown):
    """The result of an attack, one entry per example, with its rates."""

    attack: str = "attack"  # its name and budget
    ids: NDArray[np.int64] | None = None  # (n,) of the images, where they are known

    def __repr__(self) -> str:
        success = "fooled" if self.target is None else "reached the target, where others were predicted before"
        return (
            f"<RatedResult {self.attack!r}: {int(self.success.sum())} of {int(self.attackable.sum())} images {success}>"
        )

    @property
    def _meaning(self) -> dict[str, str]:
        """What each rate is of."""
        return DENOMINATORS if self.target is None else TARGETED

    def summary(self) -> dict[str, Any]:
        """Every rate with its 95 % interval, hits, n and what it is of; distances, costs and red flags."""
        rates = success_rates(self)
        spread = distances(self)
        return {
            "attack": self.attack,
            "n": len(self.labels),
            **{name: {**rates[name], "of": self._meaning[name]} for name in rates},
            "distances": {name: spread[name] for name in ("correct", "wrong")},
            "forwards_per_image": mean_finite(self.forwards),
            "backwards_per_image": mean_finite(self.backwards),
            "flags": list(self.flags),
        }

    def table(self) -> Table:
        """A row for each rate."""
        rates, restarts = success_rates(self), len(self.changed_in_restart)
        rows = [
            (name, percent(rate), interval_of(rate), f"{rate['hits']:,}", f"{rate['n']:,} {_of(name, restarts)}")
            for name, rate in rates.items()
        ]
        fooled = self.distance[self.success].numpy()
        far = (
            f"median {number(median_finite(fooled))}, largest {number(float(fooled.max()))}" if len(fooled) else "none"
        )
        cost = f"{number(mean_finite(self.forwards))} forwards and {number(mean_finite(self.backwards))} backwards"
        what = "that fool" if self.target is None else "that reach the target"
        return Table(
            f"{self.attack} on {len(self.labels):,} images, 95 % intervals",
            ("rate", "value", "interval", "hits", "of"),
            rows,
            [
                *_target_notes(self),
                f"size of the perturbations {what}, in the attack's norm: {far}",
                f"{cost} per image",
                *_flags([self]),
            ],
        )

    def records(self) -> list[dict[str, Any]]:
        """One per image; images go by their ids, or by their places where these are not known."""
        by = [] if self.broken_by is None else [None if i < 0 else self.stages[i] for i in self.broken_by.tolist()]
        columns: dict[str, Any] = {
            "image": np.arange(len(self.labels)) if self.ids is None else self.ids,
            "label": self.labels,
            "clean_prediction": self.clean_prediction,
            "adversarial_prediction": self.adversarial_prediction,
            "correct": self.correct,
            "success": self.success,
            "restarts_changed": self.changed_in_restart.sum(dim=0),
            "distance": self.distance,
            "forwards": self.forwards,
            "backwards": self.backwards,
            **({} if self.target is None else {"target": self.target}),
        }
        rows = zip(*(column.tolist() for column in columns.values()))
        records = [{"attack": self.attack, **dict(zip(columns, row))} for row in rows]
        return [record | {"broken_by": name} for record, name in zip(records, by)] if by else records


class RatedSweep(ShownList[RatedResult]):
    """The results of several budgets, smallest first."""

    def table(self) -> Table:
        """A row for each budget."""
        targeted = self[0].target is not None
        names = tuple(TARGETED)[1:] if targeted else ("robust_accuracy", "asr_change", "asr_correct")
        rows = []
        for result in self:
            rates = success_rates(result)
            rows.append((result.attack, *(with_interval(rates[name]) for name in names)))
        clean = with_interval(success_rates(self[0])["clean_accuracy"])
        title = f"{len(self[0].labels):,} images, clean accuracy {clean}, 95 % intervals"
        return Table(title, ("attack", *names), rows, [*_target_notes(self[0]), *_flags(self)])


def rated(result: AttackResult, attack: Any, ids: NDArray[np.int64] | None) -> RatedResult:
    """The same result, with what was asked: `attack` is one of ours, or any function."""
    name = AttackQuestion(attack=attack).title if isinstance(attack, Attack) else getattr(attack, "__name__", "attack")
    alone = tuple(_named(part, stage, ids) for part, stage in zip(result.alone, result.stages))
    return replace(_named(result, name, ids), alone=alone)


def _named(result: AttackResult, name: str, ids: NDArray[np.int64] | None) -> RatedResult:
    known = {each.name: getattr(result, each.name) for each in fields(AttackResult)}
    return RatedResult(**known, attack=name, ids=ids)


def _of(name: str, restarts: int) -> str:
    """The denominator in short; `DENOMINATORS` and `TARGETED` have it in full."""
    if name in TARGETED and name not in DENOMINATORS:
        return "correct images, not at target" if name.endswith("correct") else "images, not at target"
    images = "correct images" if name == "asr_correct" else "images"
    return f"{images} x restarts" if restarts > 1 and name in ("asr_change", "asr_correct") else images


def _target_notes(result: RatedResult) -> list[str]:
    """What the rates of an attack with a target mean; nothing of another."""
    if result.target is None:
        return []
    return [f"{name}: {meaning}" for name, meaning in TARGETED.items() if name not in DENOMINATORS]


def _flags(results: Sequence[AttackResult]) -> list[str]:
    return [f"red flag: {flag}" for flag in dict.fromkeys(flag for result in results for flag in result.flags)]
