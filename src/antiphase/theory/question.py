"""The audit of the theory asked of a run and its softmax baseline, as one frozen config. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from antiphase.config import check_fields
from antiphase.measures.questions import ASCENT, POWER_ITERATION
from antiphase.store import BACKWARD, Question, Work


@dataclass(frozen=True, kw_only=True)
class AuditQuestion(Question):
    """Which statements of the paper hold for this model?"""

    kind: ClassVar[str] = "theory"
    folder: ClassVar[str] = "measures"
    takes_base: ClassVar[bool] = True
    compares: ClassVar[bool] = True
    draws: int = 32  # random perturbations per image for the sampled Lipschitz constants
    probes: int = 32  # random directions per image for the norms of Jacobians
    seed: int = 0  # of the subset and of everything drawn

    def __post_init__(self) -> None:
        check_fields(self, seed=0, draws=1, probes=2)

    @property
    def title(self) -> str:
        return "theory audit"

    @property
    def work(self) -> Work:
        return Work(
            per_image=2 * (8 * self.probes + BACKWARD * 200),
            per_layer=2 * (self.draws + 2 * POWER_ITERATION + ASCENT),
        )
