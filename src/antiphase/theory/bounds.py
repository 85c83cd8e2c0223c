"""Lipschitz constants, depth and radii as functions of the evidence: eq. 4, Lemma 2, section 4.2, Corollary 1, appendix B."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import spearmanr

from antiphase.measures.stats import holm, mean_interval
from antiphase.theory.evidence import Evidence, Noise
from antiphase.theory.verdicts import NEEDS_BASE, Row, holds, median, postulated, share, worst

Array = np.ndarray[Any, np.dtype[np.float64]]
POWER = 0.01  # power iteration may fall short by so much, relative
BOUNDARY = 1e-6  # two constants this near are taken for equal (Cor. 1)


def crossover(alpha: Any, l_da: Any, l_base: Any) -> Any:
    """D* = ln(1/alpha) / ln(L_base / (alpha L_DA)): Cor. 1 repaired, cancellation in D - 1 of D layers. NaN: there is none."""
    alpha, l_da, l_base = (np.asarray(v, dtype=np.float64) for v in (alpha, l_da, l_base))
    with np.errstate(divide="ignore", invalid="ignore"):
        depth = np.log(1 / alpha) / np.log(l_base / (alpha * l_da))
    return np.where(alpha * l_da < l_base, depth, np.nan)


def denominator(gamma: Any, kappa: Any, cos: Any, *, printed: bool) -> Any:
    """Of eq. 6: as printed the root ends too early, and it may be negative; corrected it is gamma s."""
    if printed:
        return gamma * np.sqrt(1 + kappa**2) - 2 * kappa * cos
    return gamma * np.sqrt(np.maximum(1 + kappa**2 - 2 * kappa * cos, 0))


def equation_4(e: Evidence) -> Row:
    sample, ascent = e.pool(lambda la: la.sample["da"]), e.pool(lambda la: la.ascent["da"])
    return Row(
        "Equation 4",
        "L(x) = sup over xi != 0 of ||A(x+xi) - A(x)||_2 / ||xi||, estimated with random xi (section 5.3)",
        holds(ascent <= sample * (1 + POWER)),
        f"needs a radius and norms: here all heads, Frobenius over l2, within Linf {e.eps * 255:.3g}/255; every estimate is a "
        "lower bound, and random xi measure ||J||_F / sqrt(pixels)",
        {
            "sampling falls short of ascent by (median)": median(ascent / sample),
            "L-sample <= L-ascent": share(sample <= ascent * (1 + 1e-4)),
            "median L-sample": median(sample),
            "median sigma_max at x": median(e.pool(lambda la: la.op["da"])),
            "median L-ascent": median(ascent),
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
    return excess, np.abs(excess) > 2 * e.pool(lambda la: la.points["clean"].ratio_se) + POWER


def lemma_2(e: Evidence) -> Row:
    name, statement = "Lemma 2, r -> 0", "L_DA(x) / L_base(x) <= gamma sqrt(1 + lambda^2 rho^2 - 2 lambda rho cos)"
    corrected = (
        "L_DA / L_base = gamma s sqrt(srank(J_base) / srank(J_DA)) exactly: it holds where srank(J_DA) >= srank(J_base)"
    )
    if e.base is None:
        return Row(name, statement, NEEDS_BASE, corrected, {})
    excess, decided = lemma_2_excess(e)
    op, base = e.pool(lambda la: la.op["da"]), e.pool(lambda la: la.op["base"])
    gamma_s = e.pool(lambda la: la.points["clean"].gamma * la.aligned().stacked.amplification[:, 0])
    srank_da = e.pool(lambda la: la.points["clean"].da.sum(axis=1) / la.op["da"] ** 2)
    srank_base = e.pool(lambda la: la.points["clean"].ref.sum(axis=1) / la.op["base"] ** 2)
    exact = np.abs(gamma_s * np.sqrt(srank_base / srank_da) * base / op - 1)
    return Row(
        name,
        statement,
        holds(excess <= 0, decided, empty="no difference beyond the error of the probes"),
        corrected,
        {
            "undecided (within the probes' error)": share(~decided),
            "L_DA / L_base over gamma s, median": median(np.exp(excess)),
            "residual of the srank form": worst(exact),
            "median srank of J_DA": median(srank_da),
            "median srank of J_base": median(srank_base),
            "always true, L_DA / L_base <= gamma s sqrt(srank(J_base)), but for the probes' error": share(
                op / base
                <= gamma_s * np.sqrt(srank_base) * np.exp(POWER + 3 * e.pool(lambda la: la.points["clean"].da_se))
            ),
        },
    )


def lemma_2_ball(e: Evidence) -> Row:
    name, statement = f"Lemma 2, r = {e.eps * 255:.3g}/255", "the same with L as the supremum over the ball"
    corrected = "gamma, rho and cos at x do not know the ball; both suprema are searched, so both are lower bounds"
    if e.base is None:
        return Row(name, statement, NEEDS_BASE, corrected, {})
    ratio, se = e.pool(lambda la: la.points["clean"].ratio), e.pool(lambda la: la.points["clean"].ratio_se)
    excess = np.log(e.pool(lambda la: la.ascent["da"] / la.ascent["base"]) / ratio)
    decided = np.abs(excess) > 2 * se
    return Row(
        name,
        statement,
        holds(excess <= 0, decided, empty="no difference beyond the error of the probes"),
        corrected,
        {
            "undecided (within the probes' error)": share(~decided),
            "median of L_DA / L_base": median(e.pool(lambda la: la.ascent["da"] / la.ascent["base"])),
            "median of gamma s": median(ratio),
        },
    )


def lemma_2_proof(e: Evidence) -> Row:
    frobenius = _frobenius(e, "da")
    se = e.pool(lambda la: la.points["clean"].da_se)
    ascent, op = e.pool(lambda la: la.ascent["da"]), e.pool(lambda la: la.op["da"])
    first, second = (e.pool(lambda la, k=k: la.op[k]) for k in ("first", "second"))  # type: ignore[misc]
    second = second * np.array([abs(layer.lam) for layer in e.layers])
    slack = 1 + 2 * POWER
    bounded = (op <= (first + second) * slack) & (np.abs(first - second) <= (op + 2 * POWER * (first + second)))
    return Row(
        "Lemma 2, its proof",
        "L_f(x) <= ||grad f(x)|| where f is differentiable (A.5)",
        holds(ascent <= frobenius * np.exp(2 * np.nan_to_num(se))),
        "reversed: L_f(x) >= ||J(x)||_op; an upper bound needs the largest ||J|| on the whole segment",
        {
            "L-ascent over ||J(x)||_F, median and largest": f"{median(ascent / frobenius):.3g}, {worst(ascent / frobenius):.3g}",
            "L-ascent over ||J(x)||_op, median": median(ascent / op),
            "always true, |L1 - |lambda| L2| <= L_DA <= L1 + |lambda| L2": share(bounded),
        },
    )


# ------------------------------------------------------------------------------------------------- depth
def _alpha(noise: Noise) -> Array:
    """(n,): alpha_tri of all heads together, mean over the draws"""
    found: Array = noise.stacked.alpha_tri[..., 0].mean(axis=1)
    return found


def _geometric(e: Evidence) -> Array:
    """(n,): over the layers"""
    found: Array = np.exp(np.log(e.pool(lambda la: _alpha(la.noise))).mean(axis=1))
    return found


def equation_5(e: Evidence) -> Row:
    kappa = e.pool(lambda la: la.noise.stacked.kappa[..., 0].mean(axis=1))
    low = e.pool(lambda la: _alpha(la.noise)) < np.sqrt(1 + kappa**2) / (1 + kappa)
    return Row(
        "Equation 5",
        "||change of layer d|| <= alpha L_DA ||change of layer d-1|| with alpha in (0,1] from noise cancellation",
        postulated("alpha_tri", _geometric(e)),
        "alpha is slack by definition, for softmax attention too. Orthogonal branches already have "
        "sqrt(1+kappa^2)/(1+kappa): only less is cancellation",
        {
            "orthogonal branches would have (median)": median(np.sqrt(1 + kappa**2) / (1 + kappa)),
            "below that": share(low),
            "realised gain of all layers, median": median(e.da.gain),
            "the same relative to ||h|| and ||x||": median(e.da.relative_gain),
        },
    )


def theorem_4(e: Evidence) -> Row:
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
        reason = NEEDS_BASE if e.base is None else "not evaluated: the baseline has one head, so no pairs"
        return Row(name, statement, reason, corrected, {})
    theirs = np.exp(np.mean([np.log(_alpha(p)) for p in pseudo], axis=0))
    found = mean_interval(theirs)
    mid, (low, high) = found["value"], found["interval"] or [found["value"]] * 2
    ours = _geometric(e)
    return Row(
        name,
        statement,
        postulated("alpha_tri", ours),
        corrected,
        {
            "alpha_tri of the baseline's pairs": f"{mid:.3f} [{low:.3f}, {high:.3f}]",
            "alpha_tri lower in the run than in the baseline": share(ours < theirs),
            "realised gain, run and baseline (medians)": f"{median(e.da.gain):.3g}, {median(e.base.gain):.3g}",
            "relative to ||h|| and ||x||": f"{median(e.da.relative_gain):.3g}, {median(e.base.relative_gain):.3g}",
            "the run's gain is smaller": share(e.da.gain < e.base.gain),
        },
    )


ENOUGH = 6  # images below which a rank correlation that is not seen says nothing


def independence(e: Evidence) -> Row:
    """One test for every layer and head, over images and draws; Holm's correction over all of them."""
    tests, residuals, fewest = [], [], len(e.da.margin)
    for layer in e.layers:
        alpha, cos, kappa = layer.noise.alpha_tri, layer.noise.cos, layer.noise.kappa
        sign = 1.0 if layer.lam >= 0 else -1.0
        s = np.sqrt(np.maximum(1 + kappa**2 - 2 * sign * kappa * cos, 0))
        residuals.append(np.abs(alpha - s / (1 + kappa)).reshape(len(alpha), -1))
        for h in range(alpha.shape[-1]):
            a, c = alpha[..., h].mean(axis=1), cos[..., h].mean(axis=1)
            a, c = a[np.isfinite(a * c)], c[np.isfinite(a * c)]
            fewest = min(fewest, len(a))
            flat = len(a) < ENOUGH or np.ptp(a) <= 1e-6 or np.ptp(c) <= 1e-6  # a constant depends on nothing
            tests.append((0.0, 1.0) if flat else tuple(map(float, spearmanr(a, c))))
    adjusted = np.array(holm([p for _, p in tests]))
    few = f"not evaluated: needs at least {ENOUGH} images, there are {fewest}"
    return Row(
        "cancellation and alignment",
        "Noise cancellation is independent of gradient alignment",
        holds(adjusted >= 0.05) if fewest >= ENOUGH else few,
        "alpha_tri = s / (1 + |kappa|), a function of the cosine: cancellation (cos > 0) and amplification (cos < 0) are the two "
        "signs of one statistic",
        {
            "Spearman of alpha_tri and cos, by head": ", ".join(f"{r:.2f}" for r, _ in tests),
            "largest p (Holm)": float(adjusted.max()),
            "residual of the identity": worst(np.concatenate(residuals, axis=1)),
            "heads": len(tests),
        },
    )


def corollary_1(e: Evidence) -> Row:
    name, statement = (
        "Corollary 1",
        "If L_DA > L_base and alpha < 1 there is a depth D* with (alpha L_DA)^D* = L_base^D*",
    )
    corrected = (
        "that equation has no solution unless alpha L_DA = L_base, and then every depth solves it. With cancellation in D - 1 of "
        "D layers: D* = ln(1/alpha) / ln(L_base / (alpha L_DA)), if alpha L_DA < L_base"
    )
    if e.base is None:
        return Row(name, statement, NEEDS_BASE, corrected, {})
    alpha = _geometric(e)
    l_da, l_base = e.da.block, e.base.block
    premise = (l_da > l_base) & (alpha < 1)
    depth = crossover(alpha, l_da, l_base)
    return Row(
        name,
        statement,
        holds(
            np.abs(np.log(alpha * l_da / l_base)) < BOUNDARY, premise, empty="no image has L_DA > L_base and alpha < 1"
        ),
        corrected,
        {
            "L_DA > L_base and alpha < 1": share(premise),
            "repaired D* exists": share(np.isfinite(depth), premise),
            "median repaired D*": median(depth[premise]),
            "medians of alpha, L_DA, L_base (sigma_max of a block, geometric mean over the depth)": (
                f"{median(alpha):.3g}, {median(l_da):.3g}, {median(l_base):.3g}"
            ),
        },
    )
