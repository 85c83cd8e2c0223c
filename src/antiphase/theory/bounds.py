"""Lipschitz constants and depth as functions of the evidence: equation 4, Lemma 2, section 4.2 and Corollary 1 of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # scipy.stats is loaded when it is first used: it takes seconds

from antiphase.measures.branch_pairs import amplification
from antiphase.measures.stats import Array, decided, holm, largest_finite, mean_interval, median_finite
from antiphase.theory.evidence import Evidence, NoiseEvidence
from antiphase.theory.verdicts import NEEDS_BASE, AuditRow, holds, not_evaluated, postulated, share

POWER = 0.01  # power iteration may fall short by so much, relative
BOUNDARY = 1e-6  # two constants this near are taken for equal (Corollary 1)
ENOUGH = 6  # images below which a rank correlation that does not show says nothing


def crossover(alpha: Any, l_da: Any, l_base: Any) -> Any:
    """D* = ln(1/alpha) / ln(L_base / (alpha L_DA)): Cor. 1 repaired, cancellation in D - 1 of D layers. NaN: there is none."""
    alpha, l_da, l_base = (np.asarray(v, dtype=np.float64) for v in (alpha, l_da, l_base))
    with np.errstate(divide="ignore", invalid="ignore"):
        depth = np.log(1 / alpha) / np.log(l_base / (alpha * l_da))
    return np.where(alpha * l_da < l_base, depth, np.nan)


def equation_4(e: Evidence) -> AuditRow:
    sample, ascent = e.pool(lambda la: la.sample["da"]), e.pool(lambda la: la.ascent["da"])
    return AuditRow(
        "Equation 4",
        "L(x) = sup over xi != 0 of ||A(x+xi) - A(x)||_2 / ||xi||, estimated with random xi (section 5.3)",
        holds(ascent <= sample * (1 + POWER)),
        f"needs a radius and norms: here all heads, Frobenius over l2, within Linf {e.eps * 255:.3g}/255; every estimate is a "
        "lower bound, and random xi measure ||J||_F / sqrt(pixels)",
        {
            "sampling falls short of ascent by (median)": median_finite(ascent / sample),
            "L-sample <= L-ascent": share(sample <= ascent * (1 + 1e-4)),
            "median L-sample": median_finite(sample),
            "median sigma_max at x": median_finite(e.pool(lambda la: la.op["da"])),
            "median L-ascent": median_finite(ascent),
        },
    )


def _frobenius(e: Evidence, side: str) -> Array:
    """||J||_F of the maps, heads stacked. Probes scatter widely where the rank is low, but it is never below ||J||_op."""
    which = "da" if side == "da" else "ref"
    return e.pool(lambda la: np.maximum(np.sqrt(getattr(la.points["clean"], which).sum(axis=1)), la.op[side]))


def lemma_2_excess(e: Evidence) -> tuple[Array, Any]:
    """log of (L_DA / L_base) over (gamma s) at r -> 0, above 0 where Lemma 2 is violated, and where that is beyond the probes'
    error: (n, layers) each"""
    assert e.base is not None
    op, base = e.pool(lambda la: la.op["da"]), e.pool(lambda la: la.op["base"])
    excess = np.log(op / base) - np.log(_frobenius(e, "da") / _frobenius(e, "base"))
    return excess, decided(excess, e.pool(lambda la: la.points["clean"].ratio_se), slack=POWER)


def lemma_2(e: Evidence) -> AuditRow:
    name, statement = "Lemma 2, r -> 0", "L_DA(x) / L_base(x) <= gamma sqrt(1 + lambda^2 rho^2 - 2 lambda rho cos)"
    corrected = (
        "L_DA / L_base = gamma s sqrt(srank(J_base) / srank(J_DA)) exactly: it holds where srank(J_DA) >= srank(J_base)"
    )
    if e.base is None:
        return AuditRow(name, statement, NEEDS_BASE, corrected, {})
    excess, clear = lemma_2_excess(e)
    op, base = e.pool(lambda la: la.op["da"]), e.pool(lambda la: la.op["base"])
    gamma_s = e.pool(lambda la: la.points["clean"].gamma * la.aligned().stacked.amplification[:, 0])
    srank_da = e.pool(lambda la: la.points["clean"].da.sum(axis=1) / la.op["da"] ** 2)
    srank_base = e.pool(lambda la: la.points["clean"].ref.sum(axis=1) / la.op["base"] ** 2)
    exact = np.abs(gamma_s * np.sqrt(srank_base / srank_da) * base / op - 1)
    return AuditRow(
        name,
        statement,
        holds(excess <= 0, clear, empty="no difference beyond the error of the probes"),
        corrected,
        {
            "undecided (within the probes' error)": share(~clear),
            "L_DA / L_base over gamma s, median": median_finite(np.exp(excess)),
            "residual of the srank form": largest_finite(exact),
            "median srank of J_DA": median_finite(srank_da),
            "median srank of J_base": median_finite(srank_base),
            "always true, L_DA / L_base <= gamma s sqrt(srank(J_base)), but for the probes' error": share(
                op / base
                <= gamma_s * np.sqrt(srank_base) * np.exp(POWER + 3 * e.pool(lambda la: la.points["clean"].da_se))
            ),
        },
    )


def lemma_2_ball(e: Evidence) -> AuditRow:
    name, statement = f"Lemma 2, r = {e.eps * 255:.3g}/255", "the same with L as the supremum over the ball"
    corrected = "gamma, rho and cos at x do not know the ball; both suprema are searched, so both are lower bounds"
    if e.base is None:
        return AuditRow(name, statement, NEEDS_BASE, corrected, {})
    ratio, se = e.pool(lambda la: la.points["clean"].ratio), e.pool(lambda la: la.points["clean"].ratio_se)
    excess = np.log(e.pool(lambda la: la.ascent["da"] / la.ascent["base"]) / ratio)
    clear = decided(excess, se)
    return AuditRow(
        name,
        statement,
        holds(excess <= 0, clear, empty="no difference beyond the error of the probes"),
        corrected,
        {
            "undecided (within the probes' error)": share(~clear),
            "median of L_DA / L_base": median_finite(e.pool(lambda la: la.ascent["da"] / la.ascent["base"])),
            "median of gamma s": median_finite(ratio),
        },
    )


def lemma_2_proof(e: Evidence) -> AuditRow:
    frobenius = _frobenius(e, "da")
    se = e.pool(lambda la: la.points["clean"].da_se)
    ascent, op = e.pool(lambda la: la.ascent["da"]), e.pool(lambda la: la.op["da"])
    over = ascent / frobenius
    first, second = (e.pool(lambda la, k=k: la.op[k]) for k in ("first", "second"))  # type: ignore[misc]
    second = second * np.array([abs(layer.lam) for layer in e.layers])
    third = e.pool(lambda la: la.op.get("third", np.zeros_like(la.op["first"])))
    slack, every = 1 + 2 * POWER, first + second + third
    bounded = (op <= every * slack) & (np.abs(first - second) - third <= (op + 2 * POWER * every))
    return AuditRow(
        "Lemma 2, its proof",
        "L_f(x) <= ||grad f(x)|| where f is differentiable (A.5)",
        holds(ascent <= frobenius * np.exp(2 * np.nan_to_num(se))),
        "reversed: L_f(x) >= ||J(x)||_op; an upper bound needs the largest ||J|| on the whole segment",
        {
            "L-ascent over ||J(x)||_F, median and largest": f"{median_finite(over):.3g}, {largest_finite(over):.3g}",
            "L-ascent over ||J(x)||_op, median": median_finite(ascent / op),
            "always true, |L1 - |lambda| L2| <= L_DA <= L1 + |lambda| L2": share(bounded),
        },
    )


# ------------------------------------------------------------------------------------------------- depth
def _alpha(noise: NoiseEvidence) -> Array:
    """(n,): alpha_tri of all heads together, mean over the draws"""
    alpha: Array = noise.stacked.alpha_tri[..., 0].mean(axis=1)
    return alpha


def _geometric(e: Evidence) -> Array:
    """(n,): over the layers"""
    alpha: Array = np.exp(np.log(e.pool(lambda la: _alpha(la.noise))).mean(axis=1))
    return alpha


def equation_5(e: Evidence) -> AuditRow:
    kappa = e.pool(lambda la: la.noise.stacked.kappa[..., 0].mean(axis=1))
    third = e.pool(lambda la: la.noise.stacked.third_over_first[..., 0].mean(axis=1))
    without_angle = np.sqrt(1 + kappa**2 + third**2) / (1 + kappa + third)
    low = e.pool(lambda la: _alpha(la.noise)) < without_angle
    return AuditRow(
        "Equation 5",
        "||change of layer d|| <= alpha L_DA ||change of layer d-1|| with alpha in (0,1] from noise cancellation",
        postulated("alpha_tri", _geometric(e)),
        "alpha is slack by definition, for softmax attention too. Orthogonal branches already have "
        "sqrt(1+kappa^2)/(1+kappa): only less is cancellation",
        {
            "orthogonal branches would have (median)": median_finite(without_angle),
            "below that": share(low),
            "realised gain of all layers, median": median_finite(e.da.gain),
            "the same relative to ||h|| and ||x||": median_finite(e.da.relative_gain),
        },
    )


def theorem_4(e: Evidence) -> AuditRow:
    name, statement = (
        "Theorem 4",
        "Perturbations grow as L_base^D in standard attention (alpha = 1) and as (alpha L_DA)^D, alpha < 1, in DA",
    )
    corrected = (
        "alpha < 1 is assumed, not proved, and alpha_tri <= 1 by the triangle inequality whatever happens; the control is the "
        "baseline, its heads 2i and 2i+1 in place of branches (weighed 0.8)"
    )
    pseudo = [layer.pseudo for layer in e.layers if layer.pseudo is not None]
    if e.base is None or not pseudo:
        reason = NEEDS_BASE if e.base is None else not_evaluated("the baseline has one head, so no pairs")
        return AuditRow(name, statement, reason, corrected, {})
    theirs = np.exp(np.mean([np.log(_alpha(p)) for p in pseudo], axis=0))
    mean = mean_interval(theirs)
    mid, (low, high) = mean["value"], mean["interval"] or [mean["value"]] * 2
    ours = _geometric(e)
    return AuditRow(
        name,
        statement,
        postulated("alpha_tri", ours),
        corrected,
        {
            "alpha_tri of the baseline's pairs": f"{mid:.3f} [{low:.3f}, {high:.3f}]",
            "alpha_tri lower in the run than in the baseline": share(ours < theirs),
            "realised gain, run and baseline (medians)": f"{median_finite(e.da.gain):.3g}, {median_finite(e.base.gain):.3g}",
            "relative to ||h|| and ||x||": f"{median_finite(e.da.relative_gain):.3g}, {median_finite(e.base.relative_gain):.3g}",
            "the run's gain is smaller": share(e.da.gain < e.base.gain),
        },
    )


def independence(e: Evidence) -> AuditRow:
    """One test for every layer and head, over images and draws; Holm's correction over all of them."""
    tests, residuals, fewest = [], [], len(e.da.margin)
    for layer in e.layers:
        alpha, cos, kappa = layer.noise.alpha_tri, layer.noise.cos, layer.noise.kappa
        s = amplification(kappa if layer.lam >= 0 else -kappa, cos)
        if layer.noise.n3 is None:  # with a third term alpha_tri is no function of the angle alone
            residuals.append(np.abs(alpha - s / (1 + kappa)).reshape(len(alpha), -1))
        for h in range(alpha.shape[-1]):
            a, c = alpha[..., h].mean(axis=1), cos[..., h].mean(axis=1)
            a, c = a[np.isfinite(a * c)], c[np.isfinite(a * c)]
            fewest = min(fewest, len(a))
            flat = len(a) < ENOUGH or np.ptp(a) <= 1e-6 or np.ptp(c) <= 1e-6  # a constant depends on nothing
            tests.append((0.0, 1.0) if flat else tuple(map(float, scipy.stats.spearmanr(a, c))))
    adjusted = np.array(holm([p for _, p in tests]))
    few = not_evaluated(f"needs at least {ENOUGH} images, there are {fewest}")
    return AuditRow(
        "cancellation and alignment",
        "Noise cancellation is independent of gradient alignment",
        holds(adjusted >= 0.05) if fewest >= ENOUGH else few,
        "alpha_tri = s / (1 + |kappa|), a function of the cosine: cancellation (cos > 0) and amplification (cos < 0) are the two "
        "signs of one statistic",
        {
            "Spearman of alpha_tri and cos, by head": ", ".join(f"{r:.2f}" for r, _ in tests),
            "largest p (Holm)": float(adjusted.max()),
            "residual of the identity": largest_finite(np.concatenate(residuals, axis=1)) if residuals else None,
            "heads": len(tests),
        },
    )


def corollary_1(e: Evidence) -> AuditRow:
    name, statement = (
        "Corollary 1",
        "If L_DA > L_base and alpha < 1 there is a depth D* with (alpha L_DA)^D* = L_base^D*",
    )
    corrected = (
        "that equation has no solution unless alpha L_DA = L_base, and then every depth solves it. With cancellation in D - 1 of "
        "D layers: D* = ln(1/alpha) / ln(L_base / (alpha L_DA)), if alpha L_DA < L_base"
    )
    if e.base is None:
        return AuditRow(name, statement, NEEDS_BASE, corrected, {})
    alpha = _geometric(e)
    l_da, l_base = e.da.block, e.base.block
    premise = (l_da > l_base) & (alpha < 1)
    depth = crossover(alpha, l_da, l_base)
    return AuditRow(
        name,
        statement,
        holds(
            np.abs(np.log(alpha * l_da / l_base)) < BOUNDARY, premise, empty="no image has L_DA > L_base and alpha < 1"
        ),
        corrected,
        {
            "L_DA > L_base and alpha < 1": share(premise),
            "repaired D* exists": share(np.isfinite(depth), premise),
            "median repaired D*": median_finite(depth[premise]),
            "medians of alpha, L_DA, L_base (sigma_max of a block, geometric mean over the depth)": (
                f"{median_finite(alpha):.3g}, {median_finite(l_da):.3g}, {median_finite(l_base):.3g}"
            ),
        },
    )
