"""The rule by which a claim is decided; docs/statistics.md has its rates of error, docs/log.md when and why it was changed.

A contrast is one number that the claim says is above 0. It is *informative* if its rates are not all above 97 % or all below 3 %
(unless the claim is about saturation) and its planned seeds and images would show a gap of five points with probability 0.8.
Others are shown and never decide. Where a claim says several things (the order of models and what depth does), each contrast
belongs to one of them. A *premise* is what a claim takes for granted: that one curve begins above another which it will cross.

supported         every informative contrast lies in the claim's direction, and each thing that the claim says has one
not supported     any informative contrast lies opposite, corrected for the number of contrasts (Holm), those included that have
                  no data yet; or all of them are within one point of zero (two one-sided tests)
partly supported  at least one lies in its direction, corrected in the same way, and none opposite
                  A premise can refute a claim; it counts neither as its support nor as an effect.
inconclusive      anything else; so is a model below the scale's accuracy floor (undertrained)
not tested here   a contrast has no data, or only surrogates of the models that the claim is about
no verdict        a scale that is for tests

Tests are one-sided at 2.5 %, as 95 % intervals are. A point is 0.01 of the contrast's unit: of a rate, a cosine, a logarithm. A
contrast that is the distance to a threshold (saturated: above 95 %) is never called no effect, however small it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from antiphase.measures.stats import Contrast, Verdict, holm

POINT = 0.01
GAP = 0.05  # what a contrast should be able to show
POWER = 0.8  # with this probability
LEVEL = 0.025  # one-sided
EQUIVALENT = 0.05  # of two one-sided tests
SATURATED = (0.03, 0.97)
Place = Literal["towards", "opposite", "none", "open"]
Outcome = Literal["supported", "not supported", "partly supported", "inconclusive", "not tested here", "no verdict"]


def place_of(contrast: Contrast) -> Place | None:
    """Where a contrast lies, seen from the claim, by itself; None where it does not exist."""
    if contrast.value is None or contrast.p_above is None or contrast.p_below is None:
        return None
    if contrast.p_above < LEVEL:
        return "towards"
    if contrast.p_below < LEVEL:
        return "opposite"
    return "none" if _is_nothing(contrast) else "open"


def _is_nothing(contrast: Contrast) -> bool:
    return not contrast.threshold and contrast.p_equivalent is not None and contrast.p_equivalent < EQUIVALENT


def why_uninformative(contrast: Contrast) -> str | None:
    """Why a contrast is shown and does not decide; None if it may decide."""
    if contrast.needs:
        return contrast.needs
    if contrast.saturated and not contrast.threshold:
        return "saturated: no gap could show"
    if contrast.planned_power is not None and contrast.planned_power < POWER:
        return (
            f"too few seeds or images: the plan would show a gap of {100 * GAP:.0f} points with probability "
            f"{contrast.planned_power:.2f}, {POWER:g} is asked"
        )
    return None


def _verdict(outcome: Outcome, why: str, contrasts: Sequence[Contrast] = ()) -> Verdict:
    return Verdict(outcome=outcome, why=why, power=_power(contrasts))


def _power(contrasts: Sequence[Contrast]) -> str:
    """What these contrasts would have shown."""
    gaps = [contrast for contrast in contrasts if contrast.power is not None and not contrast.threshold]
    known = sorted(c.power for c in gaps or contrasts if c.power is not None)
    if not known:
        return "how often a test of ranks sees a relation is simulated (docs/statistics.md)" if contrasts else ""
    chance = f"{known[0]:.2f}" if known[-1] - known[0] < 0.005 else f"{known[0]:.2f} to {known[-1]:.2f}"
    what = "a gap of" if gaps else "a distance to the threshold of"
    return f"{what} {100 * GAP:.0f} points would have been seen with probability {chance}"


def unfit(contrast: Contrast, floor: float) -> Verdict | None:
    """Why a contrast cannot decide anything, if so."""
    if contrast.missing is not None:
        return _verdict("not tested here", contrast.missing)
    if contrast.surrogate:
        why = "only small models were looked at, which stand in for the published ones: give those with --clip and --diffclip"
        return _verdict("not tested here", why)
    if contrast.value is None:
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
    reasons = [unfit(contrast, floor) for contrast in contrasts]
    fit = [contrast for contrast, reason in zip(contrasts, reasons) if reason is None]
    informative = [contrast for contrast in fit if why_uninformative(contrast) is None]
    opposite = _corrected(informative, lambda contrast: contrast.p_below, to_come=len(contrasts) - len(fit))
    if opposite:
        return _verdict("not supported", f"the other way round{_pair(opposite)}: {_names(opposite)}", informative)
    for outcome in ("not tested here", "inconclusive"):
        whys = dict.fromkeys(r.why for r in reasons if r is not None and r.outcome == outcome)
        if whys:
            return _verdict(outcome, "; ".join(whys), informative)
    if not informative:
        whys = dict.fromkeys(f"{why_uninformative(contrast)}" for contrast in fit)
        return _verdict("inconclusive", f"none of {_count(fit)} can decide ({'; '.join(whys)})", fit)
    own = [contrast for contrast in informative if not contrast.premise]
    if not own:
        return _verdict("inconclusive", f"only its premise could be decided: {_names(informative)}", informative)
    towards = [contrast for contrast in informative if place_of(contrast) == "towards"]
    mute = dict.fromkeys(c.says for c in fit if not c.premise and c.says not in {other.says for other in own})
    silent = "".join(f"; nothing was decided on {what}" for what in mute)
    of = f"{len(informative)} informative contrasts" if len(informative) < len(fit) else _count(fit)
    if len(towards) == len(informative) and not mute:
        return _verdict("supported", f"all {of} in its direction{_pair(informative)}", informative)
    if all(_is_nothing(contrast) for contrast in own):
        return _verdict("not supported", f"no effect: all {_count(own)} within one point of zero", informative)
    partly = [contrast for contrast in _corrected(informative, lambda c: c.p_above) if not contrast.premise]
    if partly:
        why = f"{len(partly)} of {of} in its direction ({_which(partly, informative)}), none opposite{_pair(partly)}"
        return _verdict("partly supported", why + silent, informative)
    undecided = [contrast for contrast in informative if contrast not in towards]
    why = f"{len(undecided)} of {of} undecided: {_names(undecided)}" if undecided else f"none of {of} after correction"
    return _verdict("inconclusive", why + silent, informative)


def _count(contrasts: Sequence[Contrast]) -> str:
    return f"{len(contrasts)} contrast{'s' * (len(contrasts) != 1)}"


def _corrected(
    contrasts: Sequence[Contrast], p: Callable[[Contrast], float | None], to_come: int = 0
) -> list[Contrast]:
    """Those whose p stays below the level after Holm's correction over all of them, and over so many more that have no p yet:
    a claim that is looked at while rows come in is corrected as it will be in the end."""
    ps = [1.0 if (own := p(contrast)) is None else own for contrast in contrasts] + [1.0] * to_come
    return [contrast for contrast, adjusted in zip(contrasts, holm(ps)) if adjusted < LEVEL]


def _names(contrasts: Sequence[Contrast], most: int = 4) -> str:
    names = [contrast.name for contrast in contrasts]
    return "; ".join(names[:most]) + (f"; and {len(names) - most} more" if len(names) > most else "")


def _which(some: Sequence[Contrast], among: Sequence[Contrast]) -> str:
    """Every name that it takes to tell them from the others."""
    others = [contrast for contrast in among if contrast not in some]
    by_name = len(some) <= len(others) or not others
    return _names(some, len(some)) if by_name else f"all but {_names(others, len(others))}"


def _pair(contrasts: Sequence[Contrast]) -> str:
    """Said where an interval is over images only."""
    return ", of this pair: one training of each" if any(contrast.of_pair for contrast in contrasts) else ""
