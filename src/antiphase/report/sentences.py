"""What the rows say, in sentences. Every number and every direction is read from the rows; nothing is assumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from antiphase.config import Budget
from antiphase.report.numbers import percent, with_interval
from antiphase.report.page_parts import Contrast, Status, Verdict

Row = dict[str, Any]
LEVEL = 0.05


def findings(comparison: Row) -> list[str]:
    """The headline first: which of the two is easier to fool, where, and how sure that is."""
    sides = comparison["models"]
    return [
        _headline(comparison),
        "Clean accuracy on the attacked images is "
        + " and ".join(f"{with_interval(_clean(side))} for {side['name']}" for side in sides)
        + f" (n = {comparison['data']['n']}).",
        *(sentence for side in sides if side["alignment"] for sentence in _alignment(side)),
        _lipschitz(sides),
        *([f"They also differ in {'; '.join(comparison['differences'])}."] if comparison["differences"] else []),
        "Each model was trained once: intervals and tests cover the choice of images, not the choice of a training seed.",
    ]


def _clean(side: Row) -> Row:
    rate: Row = side["attacks"][0]["rates"]["clean_accuracy"]
    return rate


# ------------------------------------------------------------------------------------------------- the headline
def _headline(comparison: Row) -> str:
    verdict = _verdict(comparison)
    floor, sides = comparison["config"]["accuracy_floor"], comparison["models"]
    if floor is None:
        return f"No verdict is given at this scale; what was seen: {verdict}"
    weak = [side["name"] for side in sides if side["test_accuracy"] < floor]
    if weak:
        return (
            f"No verdict: {' and '.join(weak)} stayed below {100 * floor:.0f} % test accuracy; what was seen: {verdict}"
        )
    return verdict


def _verdict(comparison: Row) -> str:
    """About the images that both models classify correctly, by McNemar's test corrected for the number of budgets."""
    names, rows = [side["name"] for side in comparison["models"]], comparison["paired"]
    n, budgets = rows[0]["both_right"]["n"], len(rows)
    if not n:
        return "no image is classified correctly by both models, so their robustness cannot be compared."
    sure = [row for row in rows if row["both_right"]["p_holm"] < LEVEL]
    test = f"McNemar on the {n} images that both classify correctly, Holm-corrected"
    if not sure:
        return (
            f"no difference in robustness between {names[0]} and {names[1]} could be shown "
            f"at any of {budgets} budgets ({test})."
        )
    by_loser = [[row for row in sure if _loser(row) == i] for i in (0, 1)]
    if all(by_loser):
        return (
            f"neither is the more robust: {names[0]} is easier to fool at {_budgets(by_loser[0])}, "
            f"{names[1]} at {_budgets(by_loser[1])} ({test}, p < {LEVEL:g})."
        )
    loser = 0 if by_loser[0] else 1
    most = max(sure, key=lambda row: abs(row["both_right"]["only_first"] - row["both_right"]["only_second"]))
    hits = [most["both_right"][key] / n for key in ("first", "second")]
    return (
        f"{names[loser]} is easier to fool than {names[1 - loser]} at {len(sure)} of {budgets} budgets ({_budgets(sure)}): "
        f"at {Budget(most['eps'])} PGD breaks {100 * hits[loser]:.1f} % of its images against {100 * hits[1 - loser]:.1f} % "
        f"({test}, p = {most['both_right']['p_holm']:.2g})."
    )


def _loser(row: Row) -> int:
    return 0 if row["both_right"]["only_first"] > row["both_right"]["only_second"] else 1


def _budgets(rows: list[Row]) -> str:
    return ", ".join(str(Budget(row["eps"])) for row in rows)


# ------------------------------------------------------------------------------------------------- inside the attention
def _alignment(side: Row) -> list[str]:
    """One sentence a layer."""
    cell = side["alignment"]
    return [
        _layer_alignment(side["name"], i, row, side["lipschitz"]["eps"]) + _controls(cell["controls"], i - 1)
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
        f"branch at a right angle, times {row['angle']:.2f} from the angle between them (lambda = {row['lambda']:.2f})."
    )


def _lipschitz(sides: list[Row]) -> str:
    parts = []
    for side in sides:
        layers = side["lipschitz"]["layers"]
        whole, head, relative = (
            sum(row[key] for row in layers) / len(layers) for key in ("max", "per_head_max", "relative_max")
        )
        parts.append(f"{side['name']} {whole:.3f} (per head {head:.3f}, relative to the map {relative:.3f})")
    n, draws = (sides[0]["lipschitz"]["layers"][0][key] for key in ("n", "draws"))
    return (
        f"Sampled local Lipschitz constants of the maps, mean over layers and {n} images, {draws} draws, lower bounds: "
        f"{', '.join(parts)}."
    )


# ------------------------------------------------------------------------------------------------- report.verdicts
# What verdicts say, in sentences, by rules. The status was decided where the numbers were; nothing is decided here.


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
