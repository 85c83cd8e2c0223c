"""What the rows say, in sentences made by rules: the findings of a comparison, and the verdicts on claims.

Every number and every direction is read from the rows. What a verdict is was decided where its numbers are
(results/comparison_rule.py, paper/verdict_rule.py); here it is only put into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from antiphase.config import Budget
from antiphase.measures.stats import Contrast, Verdict
from antiphase.paper.verdict_rule import Outcome
from antiphase.report.numbers import interval_text, value_text
from antiphase.results.comparison_rule import LEVEL, decide, withheld
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
def findings(comparison: Row) -> list[str]:
    """The headline first: which of the two is easier to fool, where, and how sure that is."""
    models = comparison["models"]
    return [
        _headline(comparison),
        "Clean accuracy on the attacked images is "
        + " and ".join(f"{with_interval(_clean(model))} for {model['name']}" for model in models)
        + f" (n = {comparison['data']['n']}).",
        *(sentence for model in models if model["alignment"] for sentence in _alignment(model)),
        _lipschitz(models),
        *([f"They also differ in {'; '.join(comparison['differences'])}."] if comparison["differences"] else []),
        "Each model was trained once: intervals and tests cover the choice of images, not the choice of a training seed.",
    ]


def _clean(model: Row) -> Row:
    rate: Row = model["attacks"][0]["rates"]["clean_accuracy"]
    return rate


def _headline(comparison: Row) -> str:
    words, obstacle = _robustness(comparison), withheld(comparison)
    return words if obstacle is None else f"No verdict: {obstacle}; what the numbers say: {words}"


def _robustness(comparison: Row) -> str:
    verdict = decide(comparison)
    first, second = (model["name"] for model in comparison["models"])
    budgets = len(comparison["paired"])
    if verdict.outcome == "not comparable":
        return "no image is classified correctly by both models, so their robustness cannot be compared."
    if verdict.outcome == "no difference shown":
        return (
            f"no difference in robustness between {first} and {second} could be shown at any of {budgets} budgets "
            f"({verdict.why})."
        )
    by_sign = [[c.name for c in verdict.contrasts if ((c.value or 0) > 0) == sign] for sign in (True, False)]
    if verdict.outcome == "neither is more robust":
        return (
            f"neither is the more robust: {first} is easier to fool at {', '.join(by_sign[0])}, "
            f"{second} at {', '.join(by_sign[1])} ({verdict.why}, p < {LEVEL:g})."
        )
    weaker, other = (first, second) if verdict.outcome == "first is easier to fool" else (second, first)
    largest = max(verdict.contrasts, key=lambda c: abs(c.value or 0))
    test = next(row["both_right"] for row in comparison["paired"] if str(Budget(row["eps"])) == largest.name)
    fooled = sorted((test[key] / test["n"] for key in ("first", "second")), reverse=True)
    return (
        f"{weaker} is easier to fool than {other} at {len(verdict.contrasts)} of {budgets} budgets "
        f"({', '.join(c.name for c in verdict.contrasts)}): at {largest.name} PGD breaks {100 * fooled[0]:.1f} % of its images "
        f"against {100 * fooled[1]:.1f} % ({verdict.why}, p = {test['p_holm']:.2g})."
    )


def _alignment(model: Row) -> list[str]:
    """One sentence per layer."""
    cell = model["alignment"]
    return [
        _layer_alignment(model["name"], i, row, model["lipschitz"]["eps"]) + _controls(cell["controls"], i - 1)
        for i, row in enumerate(cell["layers"], start=1)
    ]


def _controls(controls: Row, layer: int) -> str:
    """The same share where nothing was learned or nothing belongs together; layers are matched by their place."""
    words = {
        "untrained": "before training",
        "shuffled": "for heads that do not belong together",
        "pseudo": "for pairs of heads of the softmax model",
    }
    shares = [
        f"{percent(layers[layer]['negative'])} {words[name]}"
        for name, layers in controls.items()
        if layer < len(layers)
    ]
    return f" By comparison, the share is {', '.join(shares)}." if shares else ""


def _layer_alignment(name: str, number: int, row: Row, eps: float) -> str:
    where = (
        f"Layer {number} of {name}, {row['images']} images x {row['heads']} heads (noise within {Budget(eps)} added)"
    )
    if row["cos"] is None:
        return f"{where}: a branch is dead everywhere, so there is no alignment to speak of."
    return (
        f"{where}: the input gradients of the two branches point against each other for {with_interval(row['negative'])} "
        f"of the pairs whose sign {row['probes']:.0f} probes decide ({percent(row['undecided'], 0)} stay undecided; mean cosine "
        f"{row['cos']:+.2f}). The subtraction makes the map more sensitive than A1 alone for "
        f"{with_interval(row['amplifying'])}, on average by {row['amplification']:.2f}: {row['energy']:.2f} from adding a second "
        f"branch at a right angle, times {row['angle']:.2f} from the angle between them{_third(row)} (lambda = "
        f"{row['lambda']:.2f})."
    )


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
        whole, head, relative = (
            sum(row[key] for row in layers) / len(layers) for key in ("max", "per_head_max", "relative_max")
        )
        parts.append(f"{model['name']} {whole:.3f} (per head {head:.3f}, relative to the map {relative:.3f})")
    n, draws = (models[0]["lipschitz"]["layers"][0][key] for key in ("n", "draws"))
    return (
        f"Sampled local Lipschitz constants of the maps, mean over layers and {n} images, {draws} draws, lower bounds: "
        f"{', '.join(parts)}."
    )


# ------------------------------------------------------------------------------------------------- claims
def headline(verdicts: Sequence[Verdict]) -> str:
    """How many claims ended how; stand-ins are counted apart, since they decide nothing about the paper's own models."""
    if not verdicts:
        return "No claim has been put to the test yet."
    own, stand_ins = ([v for v in verdicts if is_surrogate(v) == of] for of in (False, True))
    text = f"Of {len(own)} claims {_tally(own)}." if len(own) > 1 else f"One claim: {_tally(own)}." if own else ""
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


def statement(verdict: Verdict) -> str:
    """The claim itself as a sentence."""
    return verdict.statement[:1].upper() + verdict.statement[1:].rstrip(".") + "." if verdict.statement else ""


def reason(verdict: Verdict) -> str:
    """Why it was decided so; of a long list of what is missing the first entry and how many there are besides."""
    first, *more = verdict.why.split("; ")
    return f"{first}, and {len(more)} more" if len(more) > 1 else verdict.why


def sentence(verdict: Verdict) -> str:
    """One verdict: its outcome, the contrast that bears it, and on how much that rests."""
    text = f"{verdict.claim} is {WORDS.get(verdict.outcome, verdict.outcome)}"
    if is_surrogate(verdict):
        text += ", on a stand-in (this decides nothing of the paper's own models)"
    bearing, why = _bearing(verdict), reason(verdict)
    if bearing is not None:
        others = len(verdict.contrasts) - 1
        text += f": {contrast_words(bearing)}"
        text += f", and {others} other {'contrast' if others == 1 else 'contrasts'}" if others else ""
        why = why.replace(f"{bearing.name}: ", "")
    if why:
        text += f"{':' if bearing is None else ';'} {why}"
    power = f" {verdict.power[:1].upper()}{verdict.power[1:]}." if verdict.power else ""
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


def _bearing(verdict: Verdict) -> Contrast | None:
    """The contrast that bears a verdict: of a supported claim its weakest, of any other the one farthest from the others' sign.

    Weakest is nearest to zero; of a claim that is not supported or undecided that is the one that broke it.
    """
    defined = [c for c in verdict.contrasts if c.value is not None]
    along = 1.0 if sum(c.value or 0.0 for c in defined) >= 0 else -1.0
    return min(defined, key=lambda c: along * (c.value or 0.0), default=None)
