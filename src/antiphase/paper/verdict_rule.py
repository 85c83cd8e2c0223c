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
from typing import Literal

from antiphase.measures.stats import Contrast, Verdict

POINT = 0.01
SEEDS = 3
CORRECT = 200
Place = Literal["towards", "opposite", "negligible", "open"]
Outcome = Literal["supported", "not supported", "inconclusive", "not tested here", "no verdict"]


def place_of(contrast: Contrast) -> Place | None:
    """Where the interval of a contrast lies, seen from the claim; None where there is none."""
    if contrast.interval is None:
        return None
    low, high = contrast.interval
    if high < 0:
        return "opposite"
    if not contrast.threshold and low >= -POINT and high <= POINT:
        return "negligible"
    return "towards" if low > 0 else "open"


def _verdict(outcome: Outcome, why: str) -> Verdict:
    return Verdict(outcome=outcome, why=why)


def unfit(contrast: Contrast, floor: float) -> Verdict | None:
    """Why a contrast cannot decide anything, if so."""
    if contrast.missing is not None:
        return _verdict("not tested here", contrast.missing)
    if contrast.surrogate:
        return _verdict("not tested here", "only small surrogates were looked at: give --clip and --diffclip")
    if contrast.seeds < SEEDS:
        return _verdict("no verdict", f"{contrast.seeds} seeds, {SEEDS} are needed")
    if contrast.correct < CORRECT:
        return _verdict("no verdict", f"{contrast.correct} correctly classified images, {CORRECT} are needed")
    if contrast.interval is None:
        return _verdict("inconclusive", f"{contrast.name} does not exist")
    if contrast.accuracy is not None and contrast.accuracy < floor:
        return _verdict(
            "inconclusive", f"undertrained: {100 * contrast.accuracy:.1f} % test accuracy, {100 * floor:.0f} % needed"
        )
    return None


def decide(contrasts: Sequence[Contrast], floor: float | None) -> Verdict:
    """The verdict on a claim from its contrasts at a scale with this accuracy floor; None: a scale for tests."""
    if floor is None:
        return _verdict("no verdict", "this scale is for tests")
    if not contrasts:
        return _verdict("not tested here", "no contrast is listed at this scale")
    reasons = [unfit(f, floor) for f in contrasts]
    fit = [f for f, reason in zip(contrasts, reasons) if reason is None]
    for found in fit:
        if place_of(found) in ("opposite", "negligible"):
            how = "the other way round" if place_of(found) == "opposite" else "no effect"
            return _verdict("not supported", f"{found.name}: {how}")
    held_back = [reason for reason in reasons if reason is not None]
    for outcome in ("not tested here", "no verdict", "inconclusive"):
        whys = dict.fromkeys(reason.why for reason in held_back if reason.outcome == outcome)
        if whys:
            return _verdict(outcome, "; ".join(whys))
    undecided = [f.name for f in fit if place_of(f) == "open"]
    if undecided:
        return _verdict("inconclusive", f"{len(undecided)} of {len(fit)} contrasts undecided: {undecided[0]}")
    return _verdict("supported", f"all {len(fit)} contrasts in its direction")
