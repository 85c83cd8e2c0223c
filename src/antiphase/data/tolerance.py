"""Defects that may be left out of a set of captioned images: none, unless the user allows a kind; then they are counted.

No torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from antiphase.config import InputError

ALLOWABLE = {
    "missing": "images that are not there",
    "empty": "captions without a word",
    "broken": "images that cannot be decoded, and what a truncated shard has lost",
    "long": "captions longer than the model reads: they are cut",
}


def allowed(words: str) -> tuple[str, ...]:
    """What a flag --allow names, separated by commas; refused if it is not known."""
    kinds = tuple(word.strip() for word in words.split(",") if word.strip())
    Tolerance(kinds)
    return kinds


@dataclass
class Tolerance:
    """The kinds of defects that are allowed, and how many of each were met."""

    allow: Collection[str] = ()
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for word in self.allow:
            if word not in ALLOWABLE:
                raise InputError(f"--allow {word!r} is not known: it takes {', '.join(ALLOWABLE)}")

    def meet(self, kind: str, sentence: str) -> None:
        """Count a defect if its kind is allowed, refuse it with this sentence if not."""
        if kind not in self.allow:
            remedy = "cuts" if kind == "long" else "leaves out"
            raise InputError(f"{sentence} (--allow {kind} {remedy} such and counts them)")
        self.counts[kind] += 1

    def count(self, kind: str, n: int) -> None:
        if n:
            self.counts[kind] += n

    @property
    def skipped(self) -> tuple[tuple[str, int], ...]:
        return tuple(sorted(self.counts.items()))
