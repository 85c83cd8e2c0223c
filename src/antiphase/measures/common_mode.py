"""Is noise common-mode while attacks are not? One statistic, the same images, perturbations of equal size (X1).

DiffCLIP's case for the subtraction is that noise moves both maps alike (cos of the changes above 0: it cancels); the paper on
its sensitivity says that an adversary finds where they oppose (below 0: it amplifies). Both can be true only if the sign
depends on the kind of perturbation (docs/method.md 1.3, fact 6).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antiphase.config import InputError
from antiphase.measures.cancellation import Cancellation
from antiphase.measures.perturbations import PERTURBATIONS
from antiphase.measures.stats import Array, Verdict, holm, log_of, mean_interval, paired, sign_of

MATCHED = 0.05  # two perturbations whose mean l2 differ by less than this share are of equal size in l2, too
WORDS = {  # statistic -> the sign of its mean in words
    "cos": {1: "common-mode", -1: "opposed", None: "undecided"},
    "log_cmrr": {1: "cancelled", -1: "amplified", None: "undecided"},
}


def common_mode(measured: list[Cancellation]) -> list[dict[str, Any]]:
    """One row for each layer, quantity, statistic and pair of a noise and an attack among what was measured.

    Statistics, one number per image: `cos`, the mean over heads of cos(d1, d2), and `log_cmrr` with all heads as one map, whose
    sign takes that of lambda into account (above 0: cancelled). Each row has the mean and 95 % interval under noise and attack,
    their paired difference and tests. p is Wilcoxon's, adjusted (Holm) for all rows of the same statistic.
    """
    kinds = {c.perturbation: PERTURBATIONS[c.perturbation].kind for c in measured}
    if "noise" not in kinds.values() or "attack" not in kinds.values():
        names = ", ".join(kinds) or "nothing"
        raise InputError(f"noise is compared with attacks, and one of them was not measured: there is {names}")
    rows = [
        _row(noise, attack, statistic)
        for statistic in WORDS
        for noise in measured
        for attack in measured
        if _subject(noise) == _subject(attack)
        if (kinds[noise.perturbation], kinds[attack.perturbation]) == ("noise", "attack")
    ]
    for statistic in WORDS:
        same = [row for row in rows if row["statistic"] == statistic]
        for row, p in zip(same, holm([row["p_wilcoxon"] for row in same])):
            row["p"] = p
            row["verdict"] = verdict_of(row).why
    return rows


def _subject(c: Cancellation) -> tuple[Any, ...]:
    return c.layer, c.quantity, c.coupling, c.eps


def _row(noise: Cancellation, attack: Cancellation, statistic: str) -> dict[str, Any]:
    first, second = (_per_image(c, statistic) for c in (noise, attack))
    under_noise, under_attack = mean_interval(first), mean_interval(second)
    ratio = float(noise.l2.mean() / attack.l2.mean()) if attack.l2.any() else None
    return {
        "layer": noise.layer,
        "level": noise.quantity,
        "coupling": noise.coupling,
        "eps": noise.eps,
        "statistic": statistic,
        "noise": noise.perturbation,
        "attack": attack.perturbation,
        "lambda": float(np.mean(noise.lam if noise.mean_lambda is None else noise.mean_lambda)),
        "l2_noise": float(noise.l2.mean()),
        "l2_attack": float(attack.l2.mean()),
        "matched": ratio is not None and abs(ratio - 1) < MATCHED,
        "under_noise": under_noise,
        "under_attack": under_attack,
        "noise_is": WORDS[statistic][sign_of(under_noise)],
        "attack_is": WORDS[statistic][sign_of(under_attack)],
        **paired(first, second),
    }


def _per_image(c: Cancellation, statistic: str) -> Array:
    """(n,); NaN where it does not exist, or everything cancels"""
    return c.image_cos if statistic == "cos" else log_of(c.pooled_cmrr)


def verdict_of(row: dict[str, Any]) -> Verdict:
    """What the data say, and no more: the two claims need noise common-mode and attacks opposed. The outcome is "undecided",
    "alike" or "different"; a row keeps the sentence."""
    noise, attack = row["noise_is"], row["attack_is"]
    if noise != attack or noise == "undecided":
        outcome = "undecided" if "undecided" in (noise, attack) else "different"
        return Verdict(outcome=outcome, why=f"noise {noise}, attack {attack}")
    sign = sign_of(row["difference"]) if row["p"] < 0.05 else None
    order = {1: "noise more so", -1: "the attack more so", None: "no difference shown"}[sign]
    more = order if noise in ("common-mode", "cancelled") else order.replace("more so", "less so")
    return Verdict(outcome="alike", why=f"both {noise}, {more}")
