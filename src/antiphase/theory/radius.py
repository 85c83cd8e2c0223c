"""Appendix B of the paper as functions of the evidence: the radius, Theorem 5, and "gamma and lambda are fixed constants"."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # scipy.stats is loaded when it is first used: it takes seconds

from antiphase.measures.branch_pairs import amplification, orthogonal_amplification
from antiphase.measures.radius import LABEL, radius
from antiphase.measures.stats import Array, holm, largest_finite, median_finite
from antiphase.theory.bounds import ENOUGH, POWER
from antiphase.theory.evidence import Evidence, ModelEvidence
from antiphase.theory.verdicts import NEEDS_BASE, AuditRow, holds, not_evaluated, share


def denominator(gamma: Any, kappa: Any, cos: Any, *, printed: bool) -> Any:
    """Of eq. 6: as printed the root ends too early, and it may be negative; corrected it is gamma s."""
    if printed:
        return gamma * orthogonal_amplification(kappa) - 2 * kappa * cos
    return gamma * amplification(kappa, cos)


def estimates(model: ModelEvidence) -> dict[str, tuple[Array, Array]]:
    """Each claimed radius, (n,), and the distances at which attacks in the same norm succeeded."""
    l2, linf = model.broken_l2, model.broken_linf
    return {
        "m / L, L sampled (as printed)": (radius(model.margin, model.sampled), l2),
        "m / L, L = sigma_max of the logits": (radius(model.margin, model.power), l2),
        "m / (sqrt2 L), the same L": (radius(model.margin, model.power, "sqrt2"), l2),
        "min (F_y - F_i) / (L_y + L_i)": (model.per_logit, l2),
        "first order, l2": (model.first_l2, l2),
        "first order, linf": (model.first_linf, linf),
    }


def appendix_b(e: Evidence) -> AuditRow:
    rows = {name: (np.nan_to_num(at, nan=np.inf) < r) for name, (r, at) in estimates(e.da).items()}
    printed = next(iter(rows.values()))
    return AuditRow(
        "Appendix B, radius",
        "R(x) = m / L_f(x) is a certified radius (with L_f as the paper measures it)",
        holds(~printed, e.da.correct, empty="no image is classified correctly"),
        "min over i of (F_y - F_i) / sup over the ball of ||grad (F_y - F_i)||_q; m / (sqrt2 L) for L of the logit vector. "
        f"Every number here is an {LABEL}",
        {
            "median margin m": median_finite(e.da.margin[e.da.correct]),
            **{f"attack inside {name}": share(flags, e.da.correct) for name, flags in rows.items()},
            **{f"median {name}": median_finite(r[e.da.correct]) for name, (r, _) in estimates(e.da).items()},
            "median distance of successful attacks, l2 and linf": (
                f"{_text(median_finite(e.da.broken_l2))}, {_text(median_finite(e.da.broken_linf))}"
            ),
        },
    )


def theorem_5(e: Evidence) -> AuditRow:
    name = "Theorem 5"
    statement = "R_DA / R_base >= (m_DA / m_base) / (gamma sqrt(1 + lambda^2 rho^2) - 2 lambda rho cos)   (eq. 6)"
    corrected = (
        "the root must cover the cross term; R_DA / R_base = (m_DA / m_base) L_base / L_DA with both L measured; a bound on it "
        "would need Lemma 2 and equal layers elsewhere"
    )
    if e.base is None:
        return AuditRow(name, statement, NEEDS_BASE, corrected, {})
    below = {which: _denominator(e, which == "printed") for which in ("printed", "corrected")}
    both = e.da.correct & e.base.correct & np.isfinite(below["printed"] + below["corrected"])
    with np.errstate(invalid="ignore", divide="ignore"):
        m = e.da.margin / e.base.margin
        ratio = radius(e.da.margin, e.da.power) / radius(e.base.margin, e.base.power)
    se = np.max([layer.points["clean"].ratio_se for layer in e.layers], axis=0)
    # R_DA / R_base >= m / below; nothing is claimed where the printed denominator is not positive
    claimed = {w: ratio >= m / np.where(d > 0, d, np.nan) * (1 - POWER - 2 * se) for w, d in below.items()}
    return AuditRow(
        name,
        statement,
        holds(claimed["printed"], both & (below["printed"] > 0), empty="no image is classified correctly by both"),
        corrected,
        {
            "violated as printed": share(~claimed["printed"], both & (below["printed"] > 0)),
            "violated with the corrected root": share(~claimed["corrected"], both),
            "printed denominator <= 0": share(below["printed"] <= 0, both),
            "median denominator, printed and corrected": ", ".join(_text(median_finite(d)) for d in below.values()),
            "median m_DA, m_base": f"{_text(median_finite(e.da.margin[both]))}, {_text(median_finite(e.base.margin[both]))}",
            "median m_DA / m_base": median_finite(m[both]),
            f"median R_DA / R_base ({LABEL})": median_finite(ratio[both]),
            "m_DA > m_base and yet R_DA < R_base": share((m > 1) & (ratio < 1), both),
            "attacks came closer to the run than to the baseline, l2": share(
                e.da.broken_l2 < e.base.broken_l2, both & np.isfinite(e.da.broken_l2 + e.base.broken_l2)
            ),
        },
    )


def _denominator(e: Evidence, printed: bool) -> Array:
    """(n,): geometric mean over the layers; at depth 1 eq. 6 itself. The printed one may be negative: then the worst layer"""
    parts = []
    for layer in e.layers:
        stacked = layer.aligned().stacked
        parts.append(denominator(layer.points["clean"].gamma, stacked.kappa[:, 0], stacked.cos[:, 0], printed=printed))
    worst: Array = np.min(parts, axis=0)
    positive: Array = np.exp(np.mean(np.log(np.maximum(parts, 1e-300)), axis=0))
    return np.where(worst > 0, positive, worst)


def fixed_constants(e: Evidence) -> AuditRow:
    name, statement = "gamma is constant", "gamma and lambda are fixed constants, rho and theta are not (appendix B)"
    corrected = "lambda is fixed by the weights; gamma depends on the image like rho and theta do"
    if e.base is None:
        return AuditRow(name, statement, NEEDS_BASE, corrected, {})
    gamma, se = e.pool(lambda la: la.points["clean"].gamma), e.pool(lambda la: la.points["clean"].gamma_se)
    # one test per layer, not one per image: with many images some are always two standard errors away
    known = np.isfinite(gamma)
    weight = np.where(known, 1 / np.maximum(se, 1e-6) ** 2, 0.0)
    log = np.where(known, np.log(np.maximum(gamma, 1e-300)), 0.0)
    middle = (weight * log).sum(axis=0) / np.maximum(weight.sum(axis=0), 1e-300)
    n = known.sum(axis=0)
    p = np.array(holm(scipy.stats.chi2.sf((weight * (log - middle) ** 2).sum(axis=0), np.maximum(n - 1, 1)).tolist()))
    quantiles = ", ".join(f"{q:.3g}" for q in np.nanquantile(gamma, [0.05, 0.5, 0.95]))
    return AuditRow(
        name,
        statement,
        holds(p >= 0.05) if n.min() >= ENOUGH else not_evaluated(f"needs at least {ENOUGH} images"),
        corrected,
        {
            "layers": len(p),
            "largest p that gamma is one number (chi-square, Holm)": float(p.max()),
            "gamma at 5, 50, 95 %": quantiles,
            "spread (sd / mean)": largest_finite(np.nanstd(gamma, axis=0) / np.nanmean(gamma, axis=0)),
            "median standard error of log gamma": median_finite(se),
        },
    )


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
