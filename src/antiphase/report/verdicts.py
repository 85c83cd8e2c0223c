"""What verdicts say, in sentences, by rules. The status was decided where the numbers were; nothing is decided here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from antiphase.report.parts import Contrast, Status, Verdict

MARKS: dict[Status, str] = {
    "supported": "✓",
    "not supported": "✗",
    "inconclusive": "≈",
    "not tested here": "○",
    "no verdict": "–",
}
WORDS = {"no verdict": "without a verdict"}
STATUSES: tuple[Status, ...] = get_args(Status)


def headline(verdicts: Sequence[Verdict]) -> str:
    """How many claims ended how; stand-ins are counted apart, since they decide nothing of the paper's own."""
    if not verdicts:
        return "No claim has been put to the test yet."
    own, stand_ins = [v for v in verdicts if not v.surrogate], [v for v in verdicts if v.surrogate]
    said = f"Of {len(own)} claims {_tally(own)}." if len(own) > 1 else f"One claim: {_tally(own)}." if own else ""
    if stand_ins:
        words = (
            "further claim was" if len(stand_ins) == 1 and own else "claims were" if len(stand_ins) > 1 else "claim was"
        )
        said += f" {len(stand_ins)} {words} tested on a stand-in only ({_tally(stand_ins)})."
    return said.strip()


def _tally(verdicts: Sequence[Verdict]) -> str:
    counts = {status: sum(v.status == status for v in verdicts) for status in STATUSES}
    told = [f"{n} {'is' if n == 1 else 'are'} {WORDS.get(status, status)}" for status, n in counts.items() if n]
    return " and ".join(filter(None, [", ".join(told[:-1]), told[-1]])) if told else "none"


def sentence(verdict: Verdict) -> str:
    """One verdict: its status, the contrast that speaks loudest for it, and on how much that rests."""
    said = f"{verdict.claim} is {WORDS.get(verdict.status, verdict.status)}"
    if verdict.surrogate:
        said += ", on a stand-in (this decides nothing of the paper's own models)"
    telling = _telling(verdict)
    if telling is not None:
        others = len(verdict.contrasts) - 1
        said += f": {contrast_words(telling)}"
        said += f", and {others} other {'contrast' if others == 1 else 'contrasts'}" if others else ""
    if verdict.because:
        because = verdict.because if telling is None else verdict.because.replace(f"{telling.name}: ", "")
        said += f"{':' if telling is None else ';'} {because}"
    return said.rstrip(".") + "."


def contrast_words(contrast: Contrast) -> str:
    if contrast.value is None:
        return f"{contrast.name} is undefined" + (f" (n = {contrast.n})" if contrast.n is not None else "")
    said = f"{contrast.value:+.3g} {contrast.unit}".strip()
    if contrast.interval is not None:
        said += f" [{contrast.interval[0]:+.3g}, {contrast.interval[1]:+.3g}]"
    return f"{said} for {contrast.name}" + (f" (n = {contrast.n:,})" if contrast.n is not None else "")


def _telling(verdict: Verdict) -> Contrast | None:
    """Of a supported claim its weakest contrast, for it bears the verdict; of any other the one farthest from the others' sign.

    Weakest is nearest to zero; for a claim that is not supported or undecided that is the one that broke it.
    """
    told = [c for c in verdict.contrasts if c.value is not None]
    if not told:
        return None
    total = sum(c.value for c in told if c.value is not None)
    along = 1.0 if total >= 0 else -1.0
    return min(told, key=lambda c: along * (c.value or 0.0))
