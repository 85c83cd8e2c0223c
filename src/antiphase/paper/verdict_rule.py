"""The rule by which a claim is decided, fixed before any run.

supported        the 95 % interval of each pre-listed contrast lies in the claim's direction
not supported    any lies wholly opposite, or wholly within one point of zero (an effect that small is none)
inconclusive     anything else; so is a model below the scale's accuracy floor (undertrained)
not tested here  a contrast has no data, or only surrogates of the models that the claim is about
no verdict       fewer than 3 seeds, fewer than 200 correctly classified images, or a scale that is for tests

Every contrast is signed so that the claim says "above 0". A point is 0.01 of its unit: of a rate, a cosine, a logarithm. A
contrast that is the distance to a threshold (saturated: above 95 %) is no effect, and may be as small as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

POINT = 0.01


SEEDS = 3


RIGHT = 200


Place = Literal["towards", "opposite", "negligible", "open"]


Outcome = Literal["supported", "not supported", "inconclusive", "not tested here", "no verdict"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One contrast as it came out, and what it rests on."""

    name: str
    value: float | None = None
    interval: tuple[float, float] | None = None
    seeds: int = 0
    n: int = 0  # images of each seed
    right: int = 0  # fewest correctly classified images of any model and seed in it
    accuracy: float | None = None  # lowest test accuracy of the depth-1 models by which its own are judged
    missing: str | None = None  # what it lacks; then it has no value
    surrogate: bool = False
    threshold: bool = False  # how far something lies above a threshold, and no effect

    @property
    def place(self) -> Place | None:
        """Where its interval lies, seen from the claim; None where there is none."""
        if self.interval is None:
            return None
        low, high = self.interval
        if high < 0:
            return "opposite"
        if not self.threshold and low >= -POINT and high <= POINT:
            return "negligible"
        return "towards" if low > 0 else "open"


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    why: str


def unfit(finding: Finding, floor: float) -> Verdict | None:
    """Why a contrast cannot decide anything, if so."""
    if finding.missing is not None:
        return Verdict("not tested here", finding.missing)
    if finding.surrogate:
        return Verdict("not tested here", "only small surrogates were looked at: give --clip and --diffclip")
    if finding.seeds < SEEDS:
        return Verdict("no verdict", f"{finding.seeds} seeds, {SEEDS} are needed")
    if finding.right < RIGHT:
        return Verdict("no verdict", f"{finding.right} correctly classified images, {RIGHT} are needed")
    if finding.interval is None:
        return Verdict("inconclusive", f"{finding.name} does not exist")
    if finding.accuracy is not None and finding.accuracy < floor:
        return Verdict(
            "inconclusive", f"undertrained: {100 * finding.accuracy:.1f} % test accuracy, {100 * floor:.0f} % needed"
        )
    return None


def decide(findings: Sequence[Finding], floor: float | None) -> Verdict:
    """The verdict on a claim from its contrasts at a scale with this accuracy floor; None: a scale for tests."""
    if floor is None:
        return Verdict("no verdict", "this scale is for tests")
    if not findings:
        return Verdict("not tested here", "no contrast is listed at this scale")
    reasons = [unfit(f, floor) for f in findings]
    fit = [f for f, reason in zip(findings, reasons) if reason is None]
    for found in fit:
        if found.place in ("opposite", "negligible"):
            how = "the other way round" if found.place == "opposite" else "no effect"
            return Verdict("not supported", f"{found.name}: {how}")
    held_back = [reason for reason in reasons if reason is not None]
    for outcome in ("not tested here", "no verdict", "inconclusive"):
        whys = dict.fromkeys(reason.why for reason in held_back if reason.outcome == outcome)
        if whys:
            return Verdict(outcome, "; ".join(whys))
    undecided = [f.name for f in fit if f.place == "open"]
    if undecided:
        return Verdict("inconclusive", f"{len(undecided)} of {len(fit)} contrasts undecided: {undecided[0]}")
    return Verdict("supported", f"all {len(fit)} contrasts in its direction")
