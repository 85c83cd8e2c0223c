"""Section 4.1 of the paper as functions of the evidence: Lemma 1, Theorems 1 to 3 and what is said around them.

Notation as in the paper: kappa = lambda rho, s = sqrt(1 + kappa^2 - 2 kappa cos). A pair is (image, layer, head). The paper's
lambda is constant: where a layer has a third term (lambda depends on the input, or DINT's mean), its statements are judged as
printed, and what is true with that term stands beside them (docs/method.md 7).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from antiphase.measures.branch_pairs import (
    Alignment,
    amplification,
    combined_energy,
    orthogonal_amplification,
    separate_energy,
    third_energy,
)
from antiphase.measures.stats import Array, decided, largest_finite, mean_finite, median_finite
from antiphase.theory.evidence import Evidence, LayerEvidence, PointEvidence
from antiphase.theory.verdicts import NEEDS_BASE, AuditRow, Figures, happens, holds, identity, share

EDGE = 1e-6  # a ratio this near to 1 is neither above nor below it


def sensitivity_border(kappa: Any, gamma: Any) -> Any:
    """What 2 kappa cos must be below for ||J_DA|| > ||J_base||: gamma s > 1, solved for the cross term   (Theorem 3)"""
    return 1 + kappa**2 - gamma**-2.0


def threshold(kappa: Any, gamma: Any) -> Any:
    """The cosine below which Theorem 3 puts the amplification, as printed."""
    return sensitivity_border(kappa, gamma) / (2 * kappa)


def endpoints(kappa: Any) -> tuple[Any, Any]:
    """What eq. 2 prints for cos = +1 and cos = -1, over ||J1||: a norm that is negative where |kappa| > 1."""
    return 1 - kappa, 1 + kappa


def lemma_1(e: Evidence) -> AuditRow:
    residual = e.pool(lambda la: lemma_1_residual(la.points["clean"], la.lam))
    corrected = "true for the Frobenius norm and in any single direction; false for the operator norm"
    figures: Figures = {"pairs": int(residual.size), "largest residual": largest_finite(residual)}
    if name := third_name(e):
        corrected += (
            f". With the {name}'s term J3 it is ||J_DA||^2 = the same + ||J3||^2 - 2 <J1,J3> + 2 lambda <J2,J3>"
        )
        whole = e.pool(lambda la: lemma_1_residual(la.points["clean"], la.lam, three=True))
        figures |= {f"largest residual with the {name}'s term": largest_finite(whole), **_third_figures(e, name)}
    return AuditRow(
        "Lemma 1",
        "||J_DA||^2 = ||J1||^2 + lambda^2 ||J2||^2 - 2 lambda ||J1|| ||J2|| cos",
        identity(residual, e.tolerance),
        corrected,
        figures,
    )


def third_name(e: Evidence) -> str | None:
    """What the third term of this model is called; None where no layer has one."""
    names = sorted({layer.third for layer in e.layers if layer.third is not None})
    return " and ".join(names) or None


def _third_figures(e: Evidence, name: str) -> Figures:
    """How large the third term is, over all pairs."""
    share_of, factor = (
        e.pool(lambda la, w=w: getattr(la.aligned(), w))  # type: ignore[misc]
        for w in ("third_share", "third_factor")
    )
    return {
        f"share of the {name} in the energies, mean": mean_finite(share_of),
        f"||J_DA|| over ||J1 - lambda J2||, what the {name} does, median": median_finite(factor),
    }


def lemma_1_residual(p: PointEvidence, lam: float, *, three: bool = False) -> Array:
    """(n, h): relative to the energies, so that a nearly complete cancellation is not mistaken for an error. `three`: with the
    third term, where there is one"""
    energies, together = separate_energy(p.n1, p.n2, lam), combined_energy(p.n1, p.n2, p.ip, lam)
    if three and p.n3 is not None:
        energies, together = energies + p.n3, together + third_energy(p.n3, p.ip13, p.ip23, lam)
    residual: Array = np.abs(p.da - together) / np.where(energies > 0, energies, np.nan)
    return residual


def cross_term(e: Evidence) -> AuditRow:
    ip, lam = e.pool(lambda la: la.points["clean"].ip), e.pool(lambda la: _lam(la.points["clean"], la.lam))
    negative = (ip < 0) & _decided(e)
    return AuditRow(
        "cross term",
        "The cross term of eq. 1 is positive whenever cos < 0",
        holds(-2 * lam * ip > 0, negative, empty="no cosine is negative beyond two standard errors"),
        "-2 lambda <J1,J2> > 0 exactly where lambda <J1,J2> < 0; lambda is learned and may be negative",
        {
            "cos < 0 (decided)": share(ip < 0, _decided(e)),
            "lambda": ", ".join(f"{layer.shown_lambda:.3f}" for layer in e.layers),
            "layers with lambda <= 0": sum(layer.lam <= 0 for layer in e.layers),
        },
    )


def _lam(p: PointEvidence, lam: float) -> Array:
    return np.full_like(p.ip, lam)


def _decided(e: Evidence) -> Any:
    return decided(e.pool(lambda la: la.aligned().cos), e.pool(lambda la: la.points["clean"].cos_se))


def negative_alignment(e: Evidence) -> AuditRow:
    cos, kappa = (e.pool(lambda la, w=w: getattr(la.aligned(), w)) for w in ("cos", "kappa"))  # type: ignore[misc]
    alive = np.isfinite(cos)
    s = amplification(kappa, cos)
    energy = np.log(orthogonal_amplification(kappa))
    angle = np.log(s) - energy
    name, of_third = third_name(e), {}
    if name:
        factor = e.pool(lambda la: la.aligned().third_factor)
        s, of_third = s * factor, {f"  of it from the {name}": mean_finite(np.log(factor)[alive])}
    total = mean_finite(np.log(s)[alive])
    return AuditRow(
        "negative alignment",
        "cos < 0 is what causes the amplification: where ||J_DA|| > ||J1||, the cosine is negative",
        holds(cos < 0, alive & (s > 1), empty="nothing amplifies"),
        "sufficient (lambda > 0), not necessary: ||J_DA|| > ||J1|| exactly where cos < kappa / 2 (kappa > 0)",
        {
            "P(cos < 0)": share(cos < 0, alive),
            "P(cos < kappa/2)": share(cos < kappa / 2, alive),
            "P(||J_DA|| > ||J1||)": share(s > 1, alive),
            "mean cos": mean_finite(cos),
            "mean kappa": mean_finite(kappa),
            "mean log s": total,
            "  of it from the energies, 0.5 log(1 + kappa^2)": mean_finite(energy[alive]),
            "  of it from the angle": mean_finite(angle[alive]),
            **of_third,
        },
    )


def theorem_1(e: Evidence) -> AuditRow:
    kappa, cos = (e.pool(lambda la, w=w: getattr(la.aligned(), w)) for w in ("kappa", "cos"))  # type: ignore[misc]
    alive = np.isfinite(cos)
    aligned, opposed = endpoints(kappa)
    s = e.pool(lambda la: np.sqrt(la.points["clean"].da / np.maximum(la.points["clean"].n1, 1e-300)))
    slack = 1 + 10 * e.tolerance
    third = e.pool(lambda la: _third_over_first(la.points["clean"]))  # ||J3|| / ||J1||, 0 where there is none
    between = (np.abs(1 - np.abs(kappa)) - third <= s * slack) & (s <= (1 + np.abs(kappa) + third) * slack)
    return AuditRow(
        "Theorem 1",
        "||J_DA|| is (1 - lambda rho)||J1|| at cos = +1 and (1 + lambda rho)||J1|| at cos = -1",
        holds((aligned >= 0) & (opposed >= 0), alive, empty="no pair has two live branches"),
        "|1 - lambda rho| and |1 + lambda rho|, exact at the endpoints and not asymptotic; s lies between them",
        {
            "1 - lambda rho < 0": share(aligned < 0, alive),
            "1 + lambda rho < 0": share(opposed < 0, alive),
            "||J_DA|| between the corrected endpoints": share(between, alive),
            "largest kappa": largest_finite(kappa),
            "residual of the identity": largest_finite(
                e.pool(lambda la: lemma_1_residual(la.points["clean"], la.lam, three=True))
            ),
        },
    )


def _third_over_first(p: PointEvidence) -> Array:
    """(n, h)"""
    return np.zeros_like(p.n1) if p.n3 is None else np.sqrt(p.n3 / np.maximum(p.n1, 1e-300))


def theorem_2(e: Evidence) -> AuditRow:
    name, statement = "Theorem 2", "||J_DA|| / ||J_base|| = gamma sqrt(1 + lambda^2 rho^2 - 2 lambda rho cos)"
    corrected = (
        "an identity at one point; gamma compares two trained networks, and its size depends on how heads are joined"
    )
    if e.base is None:
        return AuditRow(name, statement, NEEDS_BASE, corrected, {})
    ratio, gamma, s = (e.pool(f) for f in (_ratio, _gamma, lambda la: _two_terms(la.aligned().stacked)))
    name_of_third, of_third = third_name(e), {}
    if name_of_third:
        whole = e.pool(lambda la: la.aligned().stacked.amplification[:, 0])
        residual = largest_finite(np.abs(ratio - gamma * whole) / ratio)
        of_third = {f"residual with the {name_of_third}'s term in s": residual}
    per_head = ratio * np.array([_per_head(layer.points["clean"]) for layer in e.layers])
    return AuditRow(
        name,
        statement,
        identity(np.abs(ratio - gamma * s) / ratio, e.tolerance),
        corrected,
        {
            "median ratio, layers stacked": median_finite(ratio),
            "median ratio, per head (RMS)": median_finite(per_head),
            "the two disagree on > 1": share((ratio > 1) != (per_head > 1)),
            "ratio > 1, stacked": share(ratio > 1),
            "ratio > 1, per head": share(per_head > 1),
            "median gamma": median_finite(gamma),
            "median s": median_finite(s),
            **of_third,
        },
    )


def _two_terms(stacked: Alignment) -> Array:
    """(n,): s of the two branches alone, as printed"""
    s: Array = amplification(stacked.kappa, stacked.cos)[:, 0]
    return s


def _ratio(layer: LayerEvidence) -> Array:
    return layer.points["clean"].ratio


def _gamma(layer: LayerEvidence) -> Array:
    return layer.points["clean"].gamma


def _per_head(p: PointEvidence) -> float:
    """From stacked to the root mean square over heads: the run has h of them, the baseline hr."""
    return float((p.ref.shape[1] / p.da.shape[1]) ** 0.5)


def theorem_3(e: Evidence) -> AuditRow:
    name, statement = (
        "Theorem 3, pointwise",
        "||J_DA|| / ||J_base|| > 1 if and only if cos < (1 + lambda^2 rho^2 - gamma^-2) / (2 lambda rho)",
    )
    corrected = (
        "for lambda rho > 0, at each point; for lambda < 0 it flips: 2 lambda rho cos < 1 + lambda^2 rho^2 - gamma^-2"
    )
    if e.base is None:
        return AuditRow(name, statement, NEEDS_BASE, corrected, {})
    above, printed, repaired, clear, border = [], [], [], [], []
    for point in e.layers[0].points:
        ratio = e.pool(lambda la, p=point: la.points[p].ratio)  # type: ignore[misc]
        gamma = e.pool(lambda la, p=point: la.points[p].gamma)  # type: ignore[misc]
        stacked = [layer.aligned(point).stacked for layer in e.layers]
        kappa, cos = (np.concatenate([getattr(a, w) for a in stacked], axis=1) for w in ("kappa", "cos"))
        above.append(ratio > 1)
        border.append(threshold(np.where(kappa == 0, np.nan, kappa), gamma))
        printed.append(cos < border[-1])
        third = np.concatenate([_third_energy(a) for a in stacked], axis=1)
        repaired.append(2 * kappa * cos < sensitivity_border(kappa, gamma) + third)
        clear.append((np.abs(np.log(ratio)) > max(EDGE, e.tolerance)) & np.isfinite(cos))
    a, b, c, d = (np.concatenate(parts, axis=1) for parts in (above, printed, repaired, clear))
    table = {
        f"ratio {'>' if x else '<='} 1, condition {'met' if y else 'not met'}": int(((a == x) & (b == y) & d).sum())
        for x in (True, False)
        for y in (True, False)
    }
    figures = {
        **table,
        "corrected condition agrees": share(a == c, d),
        "threshold <= -1: at no angle": share(np.concatenate(border, axis=1) <= -1, d),
        "threshold >= 1: at every angle": share(np.concatenate(border, axis=1) >= 1, d),
    }
    return AuditRow(name, statement, holds(a == b, d, empty="every ratio is 1"), corrected, figures)


def _third_energy(stacked: Alignment) -> Array:
    """(n, 1): what the third term adds to s^2; 0 where there is none"""
    n1, _, _ = stacked.means
    return np.zeros_like(n1) if stacked.third is None else third_energy(*stacked.third.means, stacked.lam) / n1


def theorem_3_existence(e: Evidence) -> AuditRow:
    against = "the baseline's map" if e.base is not None else "J1 of the same layer (no --base)"
    ratio = {p: e.pool(lambda la, p=p: la.points[p].ratio) for p in e.layers[0].points}  # type: ignore[misc]
    se = {p: e.pool(lambda la, p=p: la.points[p].ratio_se) for p in e.layers[0].points}  # type: ignore[misc]
    sure = {p: decided(np.log(ratio[p]), se[p]) & (ratio[p] > 1) for p in ratio}
    heads = np.array([_per_head(layer.points["clean"]) for layer in e.layers])
    moved = {}
    for what in ("cos", "rho"):
        clean, driven = (
            median_finite(np.concatenate([getattr(la.aligned(p).stacked, what) for la in e.layers], axis=1))
            for p in ("clean", "found")
        )
        moved[f"{what}, median at x and where it was driven"] = f"{_number(clean)} to {_number(driven)}"
    return AuditRow(
        "Theorem 3, existence",
        "There exists a perturbation for which the differential map is the more sensitive one",
        happens(sure["clean"] | sure["found"]),
        f"a matter of search: gradient ascent inside Linf {e.eps * 255:.3g}/255, judged with fresh probes, against {against}, "
        "and counted where it is more than two standard errors above 1; where none is found, none is excluded",
        {
            **{f"ratio > 1 at {_at(p)}": share(ratio[p] > 1) for p in ratio},
            **{f"median ratio at {_at(p)}": median_finite(ratio[p]) for p in ratio},
            "found though not at x, both beyond two standard errors": share(sure["found"] & ~sure["clean"]),
            "ratio > 1 at the xi found, per head (RMS)": share(ratio["found"] * heads > 1),
            **moved,
        },
    )


def _at(point: str) -> str:
    return {"clean": "x", "random": "a random xi", "pgd": "a PGD xi", "found": "the xi found"}[point]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def loss_gradients(e: Evidence) -> AuditRow:
    apart = e.pool(lambda la: np.abs(la.loss_cos + np.sign(la.lam)) if la.lam else np.full_like(la.loss_cos, np.nan))
    return AuditRow(
        "Section 4.1, opposite gradients",
        "Training assigns gradients pointing in opposite directions to A1 and A2",
        identity(apart, max(e.tolerance, 1e-6)),
        "dl/dA2 = -lambda dl/dA1 for every model, trained or not, so the cosine is -sign(lambda): a tautology, not evidence",
        {"pairs": int(np.isfinite(apart).sum()), "largest distance from -sign(lambda)": largest_finite(apart)},
    )


def row_sums(e: Evidence) -> AuditRow:
    off, moves = e.pool(lambda la: la.row_sum), e.pool(lambda la: la.row_sum_moves)
    return AuditRow(
        "row sums",
        "(not in the paper) Rows of A1 and A2 sum to 1, those of A_DA to 1 - lambda, at every input",
        identity(np.maximum(off, moves), e.tolerance),
        "so the gradient of any sum over a map is zero: a cosine of such gradients is rounding noise"
        + (
            "; with a gate that of A_DA's row sum is -dlambda, which is taken out here"
            if "gate" in (third_name(e) or "")
            else ""
        )
        + ("; with DINT's mean A_DA's rows sum to 1" if "integral" in (third_name(e) or "") else ""),
        {
            "largest error of a row sum": largest_finite(off),
            "largest ||J of row sums|| / ||J_DA||": largest_finite(moves),
        },
    )


def norm_scale(e: Evidence) -> AuditRow:
    change = e.pool(lambda la: la.rescaled)
    return AuditRow(
        "scale of A_DA",
        "(not in the paper) What the layer returns does not depend on the scale of A_DA: the norm after it takes it out",
        identity(change, 1e-2),
        "with a norm per head only the relative change of A_DA V propagates; exact but for the norm's eps",
        {"largest relative change when A_DA is doubled": largest_finite(change)},
    )


def open_gate(e: Evidence) -> AuditRow:
    size = e.pool(lambda la: la.projected)
    return AuditRow(
        "lambda_init = 1",
        "(not in the paper) The layer's output depends on its attention",
        holds(size > 0),
        "not at lambda_init = 1 with the official gain 1 - lambda_init = 0: the output is the projection's bias alone",
        {"smallest norm of what is projected": float(size.min()), "layers": size.shape[1]},
    )
