"""Every verdict of the audit comes from the data and can come out either way."""

import json
from dataclasses import replace

import numpy as np
import pytest

from antiphase.theory import table
from antiphase.theory.evidence import Evidence, plain, read
from tests.theory.evidence_of_models import FORMS, MODELS, NAMES, at_clean, evidence, of_layer, operator_norms, verdicts


def meeting(found):
    """alpha L_DA = L_base on every image."""
    alpha = found.layers[0].noise.stacked.alpha_tri[..., 0].mean(axis=1)
    return replace(found, da=replace(found.da, block=found.base.block / alpha))


def apart(found):
    alpha = found.layers[0].noise.stacked.alpha_tri[..., 0].mean(axis=1)
    return replace(found, da=replace(found.da, block=1.1 * found.base.block / alpha))


def with_radii(found, sampled, power):
    """Both classify everything correctly with margin 1; attacks succeed at distance 1."""
    ones = np.ones(len(found.da.margin))
    side = replace(found.da, margin=ones, power=ones, sampled=sampled * ones, broken_l2=ones)
    return replace(found, da=replace(side, power=power * ones), base=side)


def constant_gamma(found):
    p = found.layers[0].points["clean"]
    return at_clean(found, ref=4 * p.n1, gamma_se=0 * p.gamma_se)


def sampled_as_searched(found):
    return of_layer(found, sample=found.layers[0].ascent)


def steeper_baseline(found):
    """A baseline whose constants are nine times those of the run, its Frobenius norm as it is: of lower stable rank."""
    layer = found.layers[0]
    op, ascent = ({**known, "base": 9 * known["da"]} for known in (layer.op, layer.ascent))
    return of_layer(found, op=op, ascent=ascent)


def opposite_loss_gradients(found):
    return of_layer(found, loss_cos=-found.layers[0].loss_cos)


def leaking_rows(found):
    return of_layer(found, row_sum=found.layers[0].row_sum + 0.01)


def small_radius(found):
    return with_radii(found, sampled=2.0, power=1.0)


def large_radius(found):
    return with_radii(found, sampled=0.5, power=1.0)


def flat_run(found):
    return with_radii(found, sampled=1.0, power=0.01)


def steep_run(found):
    return with_radii(found, sampled=1.0, power=100.0)


ALPHA = "postulated; measured alpha_tri "


# row, evidence that satisfies it, what the verdict begins with, evidence that violates it, what it begins with
CASES = [
    ("Lemma 1", "plain", "identity holds", operator_norms, "violated on"),
    ("cross term", "opposed", "holds on 100 %", "opposed, lambda < 0", "violated on 100 %"),
    ("negative alignment", "opposed", "holds on 100 %", "plain", "violated on"),
    ("Section 4.1, opposite gradients", "plain", "identity holds", opposite_loss_gradients, "violated on 100 %"),
    ("Theorem 1", "opposed", "holds on 100 %", "aligned, lambda = 2", "violated on 100 %"),
    ("Theorem 2", "plain", "identity holds", operator_norms, "violated on"),
    ("Theorem 3, pointwise", "plain", "holds on 100 %", "opposed, lambda < 0", "violated on"),
    ("Theorem 3, existence", "saturated", "holds on 100 %", "plain", "holds on 0 %"),
    ("Equation 4", sampled_as_searched, "holds on 100 %", "plain", "violated on 100 %"),
    ("Lemma 2, r -> 0", steeper_baseline, "holds on 100 %", "saturated", "violated on"),
    ("Lemma 2, r = 8/255", steeper_baseline, "holds on 100 %", "saturated", "violated on"),
    ("Lemma 2, its proof", "plain", "holds on 100 %", "saturated", "violated on"),
    ("Equation 5", "opposed", ALPHA + "0.9", "aligned, lambda = 2", ALPHA + "0.333"),
    ("Theorem 4", "opposed", ALPHA + "0.9", "aligned, lambda = 2", ALPHA + "0.333"),
    ("cancellation and alignment", "lambda = 0, closed", "holds on 100 %", "plain", "violated on"),
    ("Corollary 1", meeting, "holds on 100 %", apart, "violated on 100 %"),
    ("Appendix B, radius", small_radius, "holds on 100 % (n = 6)", large_radius, "violated on 100 % (n = 6)"),
    ("Theorem 5", flat_run, "holds on 100 %", steep_run, "violated on 100 %"),
    ("gamma is constant", constant_gamma, "holds on 100 %", "saturated", "violated on"),
    ("row sums", "saturated", "identity holds", leaking_rows, "violated on 100 %"),
    ("scale of A_DA", "opposed, lambda < 0", "identity holds", "opposed", "violated on 100 %"),
    ("lambda_init = 1", "plain", "holds on 100 %", "lambda = 0, closed", "violated on 100 %"),
]


@pytest.mark.parametrize(("name", "good", "kept", "bad", "broken"), CASES, ids=[c[0] for c in CASES])
def test_a_verdict_comes_from_the_data_and_can_come_out_either_way(name, good, kept, bad, broken):
    for which, begins in ((good, kept), (bad, broken)):
        found = evidence(which) if isinstance(which, str) else which(evidence("plain"))
        assert verdicts(found)[name].startswith(begins)


def test_there_is_one_case_for_every_row_and_every_verdict_has_one_of_the_forms():
    assert [row.name for row in table.audit(evidence("plain"))] == NAMES == [case[0] for case in CASES]
    for name in MODELS:
        for row in table.audit(evidence(name)):
            assert FORMS.fullmatch(row.verdict.why), row.verdict.why
            assert row.statement
            assert row.corrected
            json.dumps(row.figures, allow_nan=False)


def test_without_a_baseline_what_needs_one_says_so():
    found = replace(evidence("plain"), base=None)
    needing = {name for name, verdict in verdicts(found).items() if verdict == "not evaluated: needs --base"}
    assert needing == {
        "Theorem 2",
        "Theorem 3, pointwise",
        "Lemma 2, r -> 0",
        "Lemma 2, r = 8/255",
        "Theorem 4",
        "Corollary 1",
        "Theorem 5",
        "gamma is constant",
    }


@pytest.mark.parametrize("name", ["plain", "opposed", "opposed, lambda < 0", "aligned, lambda = 2", "saturated"])
def test_identities_hold_in_float64(name):
    found = {row.name: row for row in table.audit(evidence(name))}
    for row, figure in (
        ("Lemma 1", "largest residual"),
        ("Theorem 1", "residual of the identity"),
        ("Lemma 2, r -> 0", "residual of the srank form"),
        ("cancellation and alignment", "residual of the identity"),
        ("row sums", "largest error of a row sum"),
        ("Section 4.1, opposite gradients", "largest distance from -sign(lambda)"),
    ):
        assert found[row].figures[figure] < 1e-10, row
    assert found["Theorem 2"].verdict.why.startswith("identity holds to")
    for row, figure in (
        ("Theorem 1", "||J_DA|| between the corrected endpoints"),
        ("Theorem 3, pointwise", "corrected condition agrees"),
        ("Lemma 2, its proof", "always true, |L1 - |lambda| L2| <= L_DA <= L1 + |lambda| L2"),
        ("Equation 4", "L-sample <= L-ascent"),
    ):
        assert found[row].figures[figure]["value"] == 1, row


def test_a_stored_audit_is_judged_again_from_its_numbers_alone():
    for name in ("plain", "lambda = 0, closed"):  # the second has NaN in it
        stored = json.loads(json.dumps(plain(evidence(name)), allow_nan=False))
        assert table.audit(read(Evidence, stored)) == table.audit(evidence(name))
