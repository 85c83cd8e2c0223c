"""What the rows say, in sentences made by rules: the findings of a comparison, and the verdicts on claims.

Every number and every direction is read from the rows. What a verdict is was decided where its numbers are
(results/comparison_rule.py, paper/verdict_rule.py); here it is only put into words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

from antiphase.config import Budget
from antiphase.measures.certificates import draws_needed, largest_radius
from antiphase.measures.questions import MOST_DRAWS
from antiphase.measures.stats import Contrast, Verdict
from antiphase.paper.verdict_rule import Outcome
from antiphase.report.numbers import interval_text, value_text
from antiphase.results.comparison_rule import LEVEL, decide, largest_gap, withheld
from antiphase.tables import percent, with_interval

Row = dict[str, Any]
MARKS: dict[Outcome, str] = {
    "supported": "✓",
    "not supported": "✗",
    "partly supported": "◐",
    "inconclusive": "≈",
    "not tested here": "○",
    "no verdict": "–",
}
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
WORDS = {"no verdict": "without a verdict"}


# ------------------------------------------------------------------------------------------------- a comparison
class Headline(NamedTuple):
    """Which of two models is easier to fool, if that can be said, and what it rests on."""

    claim: str
    evidence: str
    where: str = ""  # the budgets, where the claim is about some of them
    withheld: str = ""  # why the claim is no verdict, if so

    def __str__(self) -> str:
        words = f"{self.claim}{f' ({self.where})' if self.where else ''}: {self.evidence}."
        return f"No verdict: {self.withheld}; what the numbers say: {words}" if self.withheld else words

    @property
    def first_sentence(self) -> str:
        return f"No verdict: {self.withheld}." if self.withheld else f"{self.claim}."

    @property
    def second_sentence(self) -> str:
        if self.withheld:
            return f"What the numbers say: {self._replace(withheld='')}"
        return f"{capital(self.evidence)}."


def findings(comparison: Row) -> list[str]:
    """For a reader of plain text. The headline first, then clean accuracy, what the branches do, sensitivity, and caveats."""
    models = comparison["models"]
    return [
        str(comparison_headline(comparison)),
        "Clean accuracy on the attacked images is "
        + " and ".join(f"{with_interval(_clean(model))} for {model['name']}" for model in models)
        + f" (n = {comparison['data']['n']}).",
        *(sentence for model in models if model["alignment"] for sentence in _alignment(model)),
        _lipschitz(models),
        *caveats(comparison),
    ]


def caveats(comparison: Row) -> list[str]:
    """What else differs between the two models, and what the intervals do not cover."""
    differences = comparison["differences"]
    return [
        *([f"They also differ in {'; '.join(differences)}."] if differences else []),
        "Each model was trained once: intervals and tests cover the choice of images, not the choice of a training seed.",
    ]


def _clean(model: Row) -> Row:
    rate: Row = model["attacks"][0]["rates"]["clean_accuracy"]
    return rate


def comparison_headline(comparison: Row) -> Headline:
    """A verdict that is withheld says so first."""
    return _robustness(comparison)._replace(withheld=withheld(comparison) or "")


def _robustness(comparison: Row) -> Headline:
    verdict = decide(comparison)
    first, second = (model["name"] for model in comparison["models"])
    budgets = len(comparison["paired"])
    if verdict.outcome == "not comparable":
        return Headline(
            f"The robustness of {first} and {second} cannot be compared",
            "no image is classified correctly by both",
        )
    if verdict.outcome == "no difference shown":
        return Headline(
            f"No difference in robustness between {first} and {second} could be shown",
            f"the two were tested at {budgets} budget{'s' * (budgets > 1)} ({verdict.why})",
        )
    by_sign = [[c.name for c in verdict.contrasts if ((c.value or 0) > 0) == sign] for sign in (True, False)]
    if verdict.outcome == "neither is more robust":
        return Headline(
            f"Neither {first} nor {second} is the more robust",
            f"at {', '.join(by_sign[0])} {first} is easier to fool, at {', '.join(by_sign[1])} {second} ({verdict.why}, "
            f"p < {LEVEL:g})",
        )
    weaker, other = (first, second) if verdict.outcome == "first is easier to fool" else (second, first)
    gap = largest_gap(comparison)
    test = gap["both_right"]
    fooled = sorted((test[key] / test["n"] for key in ("first", "second")), reverse=True)
    return Headline(
        f"{weaker} is easier to fool than {other} at {len(verdict.contrasts)} of {budgets} budgets",
        f"at {Budget(gap['eps'])} PGD breaks {100 * fooled[0]:.1f} % of its images against {100 * fooled[1]:.1f} % "
        f"({verdict.why}, p = {test['p_holm']:.2g})",
        where=", ".join(c.name for c in verdict.contrasts),
    )


def _alignment(model: Row) -> list[str]:
    """For each layer: how many pairs are opposed, what that does to the map, and the same share in the controls."""
    return [
        sentence
        for i, row in enumerate(model["alignment"]["layers"])
        for sentence in (*_layer_alignment(model, i, row), *_controls(model, i))
    ]


def _controls(model: Row, layer: int) -> list[str]:
    """The same share where nothing was learned or nothing belongs together; layers are matched by their place."""
    words = {
        "untrained": "before training",
        "shuffled": "for heads that do not belong together",
        "pseudo": "for pairs of heads of the softmax model",
    }
    shares = [
        f"{percent(layers[layer]['negative'])} {words[name]}"
        for name, layers in model["alignment"]["controls"].items()
        if layer < len(layers)
    ]
    where = f"layer {layer + 1} of {model['name']}"
    return [f"The controls of {where}: opposed are {', '.join(shares)}."] if shares else []


def _layer_alignment(model: Row, layer: int, row: Row) -> list[str]:
    where = f"layer {layer + 1} of {model['name']}"
    if row["cos"] is None:
        return [f"In {where} a branch is dead everywhere, so there is no alignment to speak of."]
    return [
        f"In {where} the input gradients of the two branches point against each other for {with_interval(row['negative'])} of "
        f"(image, head) pairs whose sign is decided; {percent(row['undecided'], 0)} of {row['images']} images x "
        f"{row['heads']} heads are not.",
        f"In {where} the subtraction makes the map {row['amplification']:.2f} times as sensitive as A1 alone: "
        f"{row['energy']:.2f} from adding a second branch at a right angle, times {row['angle']:.2f} from the angle "
        f"between them{_third(row)}.",
    ]


def _third(row: Row) -> str:
    """What a third term adds to the amplification; nothing where the layer has none."""
    if row.get("gate") is not None:
        return (
            f", times {row['gate']:.2f} from the changes of lambda itself, whose share of the energies is "
            f"{100 * row['gate_share']:.1f} %"
        )
    return f", times {row['integral']:.2f} from DINT's mean row" if row.get("integral") is not None else ""


def _lipschitz(models: list[Row]) -> str:
    parts = []
    for model in models:
        layers = model["lipschitz"]["layers"]
        relative, whole = (sum(row[key] for row in layers) / len(layers) for key in ("relative_max", "max"))
        parts.append(f"{relative:.3f} for {model['name']} ({whole:.3f} in absolute terms)")
    n, draws = (models[0]["lipschitz"]["layers"][0][key] for key in ("n", "draws"))
    return (
        f"Relative to their own size, maps move by {' and '.join(parts)} per unit of pixel noise: local Lipschitz constants, "
        f"lower bounds from {draws} draws, mean over layers and {n} images."
    )


# ------------------------------------------------------------------------------------------------- certificates
def out_of_reach(radii: Sequence[float], samples: int, sigma: float, alpha: float) -> str:
    """Why nothing is said of radii that so many draws cannot certify, and what would reach the first of them."""
    first, largest = min(radii), largest_radius(samples, sigma, alpha)
    needed = draws_needed(first, sigma, alpha)
    remedy = (
        f"more --samples help ({first:g} takes {needed:,}), or a larger --sigma"
        if needed <= MOST_DRAWS
        else f"{first:g} takes a larger --sigma"
    )
    return (
        f"With {samples:,} draws at sigma {sigma:g} the largest possible radius is {largest:.3g}, where all draws agree, so "
        f"{', '.join(f'{radius:g}' for radius in radii)} cannot be reached: {remedy}."
    )


# ------------------------------------------------------------------------------------------------- claims
def headline(verdicts: Sequence[Verdict]) -> str:
    """How many claims of the papers ended how. Our own questions are counted apart, and so are stand-ins, since they decide
    nothing about the papers' own models."""
    if not verdicts:
        return "No claim has been put to the test yet."
    claims, extensions = ([v for v in verdicts if v.claim.startswith("E") == of] for of in (False, True))
    own, stand_ins = ([v for v in claims if is_surrogate(v) == of] for of in (False, True))
    text = f"Of {len(own)} claims {_tally(own)}." if len(own) > 1 else f"One claim: {_tally(own)}." if own else ""
    if extensions:
        many = len(extensions)
        whose = f"Of {many} questions of our own" if many > 1 else "One question of our own:"
        text += f" {whose} {_tally(extensions)}."
    if stand_ins:
        words = (
            "further claim was" if len(stand_ins) == 1 and own else "claims were" if len(stand_ins) > 1 else "claim was"
        )
        text += f" {len(stand_ins)} {words} tested on a stand-in only ({_tally(stand_ins)})."
    return text.strip()


def is_surrogate(verdict: Verdict) -> bool:
    """Decided on stand-ins: it says nothing about the paper's own models."""
    return any(contrast.surrogate for contrast in verdict.contrasts)


def _tally(verdicts: Sequence[Verdict]) -> str:
    counts = {outcome: sum(v.outcome == outcome for v in verdicts) for outcome in OUTCOMES}
    parts = [f"{n} {'is' if n == 1 else 'are'} {WORDS.get(outcome, outcome)}" for outcome, n in counts.items() if n]
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]])) if parts else "none"


def capital(sentence: str) -> str:
    """A sentence that begins with a large letter."""
    return sentence[:1].upper() + sentence[1:]


def statement(verdict: Verdict) -> str:
    """The claim itself as a sentence."""
    return capital(verdict.statement).rstrip(".") + "." if verdict.statement else ""


def reason(verdict: Verdict) -> str:
    """Why it was decided so; of a long list the first entry and how many there are besides."""
    first, *more = verdict.why.split("; ")
    last = next((k for k, part in enumerate(more) if part.startswith("nothing was decided on ")), len(more))
    listed, after = more[:last], more[last:]
    if len(listed) < 2:
        return verdict.why
    in_brackets = first.count("(") > first.count(")")
    entry, bracket, rest = listed[-1].rpartition(")") if in_brackets else (listed[-1], "", "")
    uncounted = re.fullmatch(r"and (\d+) more", entry)  # of those that are not listed
    many = len(listed) - 1 + int(uncounted[1]) if uncounted else len(listed)
    return "; ".join([f"{first}, and {many} more{bracket}{rest}", *after])


def sentence(verdict: Verdict) -> str:
    """One verdict: its outcome, the contrast that bears it, and on how much that rests."""
    text = f"{verdict.claim} is {WORDS.get(verdict.outcome, verdict.outcome)}"
    if is_surrogate(verdict):
        text += ", on a stand-in (this decides nothing of the paper's own models)"
    bearing, why = _bearing(verdict), reason(verdict)
    if bearing is not None:
        others, strongest = len(verdict.contrasts) - 1, _strongest(verdict)
        text += f": {contrast_words(bearing)}"
        if verdict.outcome == "partly supported" and strongest not in (None, bearing):
            text, others = f"{text} to {contrast_words(strongest)}", others - 1
        text += f", and {others} other {'contrast' if others == 1 else 'contrasts'}" if others else ""
        why = why.removesuffix(f": {bearing.name}")
    if why:
        text += f"{':' if bearing is None else ';'} {why}"
    power = f" {capital(verdict.power)}." if verdict.power else ""
    return text.rstrip(".") + "." + power


def contrast_words(contrast: Contrast) -> str:
    """Its value and interval in its unit, its name and its n."""
    n = f" (n = {contrast.n:,})" if contrast.n else ""
    if contrast.value is None:
        return f"{contrast.name} is undefined{n}"
    text = value_text(contrast.value, contrast.unit)
    if contrast.interval is not None:
        text += f" {interval_text(contrast.interval, contrast.unit)}"
    return f"{text} for {contrast.name}{n}"


def number_words(contrast: Contrast) -> str:
    """Its value and interval alone, where the unit stands elsewhere."""
    text = value_text(contrast.value, contrast.unit).removesuffix(f" {contrast.unit}")
    return text if contrast.interval is None else f"{text} {interval_text(contrast.interval, contrast.unit)}"


def _bearing(verdict: Verdict) -> Contrast | None:
    """The contrast that bears a verdict: of a supported claim its weakest, of any other the one farthest from the others' sign.

    Weakest is nearest to zero; of a claim that is not supported or undecided that is the one that broke it. A contrast that is
    only shown bears nothing.
    """
    defined = _deciding(verdict)
    along = 1.0 if sum(c.value or 0.0 for c in defined) >= 0 else -1.0
    return min(defined, key=lambda c: along * (c.value or 0.0), default=None)


def _strongest(verdict: Verdict) -> Contrast | None:
    """The contrast that lies farthest in the claim's direction."""
    return max(_deciding(verdict), key=lambda c: c.value or 0.0, default=None)


def _deciding(verdict: Verdict) -> list[Contrast]:
    """The contrasts that have a value and may decide; those that are only shown where there are no others."""
    defined = [c for c in verdict.contrasts if c.value is not None]
    return [c for c in defined if not c.needs] or defined
