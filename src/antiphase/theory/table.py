"""The audit: each lemma, theorem and corollary of the paper, judged on a trained run and its baseline.

docs/theory.md explains the rows by their names. A row is a pure function of the evidence.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from antiphase.theory.bounds import (
    corollary_1,
    equation_4,
    equation_5,
    independence,
    lemma_2,
    lemma_2_ball,
    lemma_2_proof,
    theorem_4,
)
from antiphase.theory.evidence import Evidence
from antiphase.theory.gradients import (
    cross_term,
    lemma_1,
    loss_gradients,
    negative_alignment,
    norm_scale,
    open_gate,
    row_sums,
    theorem_1,
    theorem_2,
    theorem_3,
    theorem_3_existence,
)
from antiphase.theory.radius import appendix_b, fixed_constants, theorem_5
from antiphase.theory.verdicts import AuditRow

ROWS: tuple[Callable[[Evidence], AuditRow], ...] = (
    lemma_1,
    cross_term,
    negative_alignment,
    loss_gradients,
    theorem_1,
    theorem_2,
    theorem_3,
    theorem_3_existence,
    equation_4,
    lemma_2,
    lemma_2_ball,
    lemma_2_proof,
    equation_5,
    theorem_4,
    independence,
    corollary_1,
    appendix_b,
    theorem_5,
    fixed_constants,
    row_sums,
    norm_scale,
    open_gate,
)


def audit(evidence: Evidence) -> list[AuditRow]:
    """Every row, in the paper's order; those that it leaves out come last."""
    with np.errstate(all="ignore"):  # a dead map gives 0/0: NaN, which every row leaves out
        return [row(evidence) for row in ROWS]
