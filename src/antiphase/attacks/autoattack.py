"""A list of attacks, each on what the ones before left standing: AutoAttack. n examples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from antiphase import console
from antiphase.attacks.compiled import Compile, forwards_at_most, wanted
from antiphase.attacks.config import Attack
from antiphase.attacks.journal import Journal
from antiphase.attacks.red_flags import cascade_flags, precision_flags
from antiphase.attacks.registry import METHODS
from antiphase.attacks.scheduler import Pool

if TYPE_CHECKING:
    from antiphase.attacks.engine import AttackResult, Job


@dataclass
class Cascade:
    """All stages over the examples of one job. Every stage is judged before the next begins, by the model in full.

    With a journal, each stage keeps one of its own beside it, so that an interrupted cascade goes on in the middle of a stage.
    """

    job: Job
    attack: Attack
    compile: Compile = "auto"  # decided anew for each stage, by what it may still cost
    journal: Journal | None = None
    broken_by: Tensor = field(init=False)  # (n,) which stage, -1: none
    final: Tensor = field(init=False)  # (n,) prediction on the adversarial pixels

    def __post_init__(self) -> None:
        self.broken_by, self.final = torch.full((len(self.job.x),), -1), self.job.clean.clone()

    def result(self) -> AttackResult:
        job, stages = self.job, self.attack.stages
        for stage in stages:
            METHODS[type(stage)](stage, job)  # refuses a model of too few classes now, not after an hour
        standing = job.clean == job.y if self.attack.label == "true" else torch.ones(len(job.x), dtype=torch.bool)
        attacked = standing.clone()
        for number, stage in enumerate(stages):
            if bool(standing.any()):
                standing = self._after(number, stage, torch.nonzero(standing)[:, 0])
            self._say(stage, standing)
        job.advance(int(standing.sum() + (~attacked).sum()), "")
        names, fooled = tuple(stage.name for stage in stages), self.broken_by >= 0
        counts = {name: int((self.broken_by == number).sum()) for number, name in enumerate(names)}
        job.flags += cascade_flags(counts, len(job.x))
        if job.asks == 1:  # a randomised model differs from itself in any precision
            job.flags += precision_flags(job.classifier, job.adversarial[fooled].to(job.device), job.clean[fooled])
        return replace(job.result(self.attack.within, self.final), broken_by=self.broken_by, stages=names)

    def _after(self, number: int, stage: Attack, rows: Tensor) -> Tensor:
        """Carry out one stage on these rows; (n,) bool: who stands after it."""
        job = self.job
        part = job.part(rows, lambda _, note: job.advance(0, f"{stage.name}: {note}"))
        journal = self.journal and self.journal.of(number)
        method = METHODS[type(stage)](stage, part)
        fast = wanted(self.compile, job.classifier, part.x[:1].to(job.device), forwards_at_most(stage, len(rows)))
        Pool(part, stage, method, every_run=False, compiling=fast, journal=journal).empty()
        found = part.result(stage.within)
        broken = rows[found.success]
        self.broken_by[broken], self.final[broken] = number, found.adversarial_prediction[found.success]
        job.adversarial[broken] = found.adversarial[found.success]
        job.changed[0, broken] = True
        job.forwards[rows] += found.forwards
        job.backwards[rows] += found.backwards
        job.compiled |= part.compiled
        job.flags += [f"{stage.name}: {flag}" for flag in found.flags if flag not in job.seen.flags]
        job.advance(len(broken), "")
        standing = torch.zeros(len(job.x), dtype=torch.bool)
        standing[rows] = ~found.success
        return standing

    def _say(self, stage: Attack, standing: Tensor) -> None:
        left, n = int(standing.sum()), len(standing)
        what = "robust accuracy" if self.attack.label == "true" else "predictions unchanged"
        console.say(f"{what} after {stage.name}: {100 * left / n:.2f} % ({left} of {n})")
