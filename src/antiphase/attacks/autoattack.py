"""AutoAttack (Croce & Hein 2020): a list of attacks, each on the examples that the ones before did not fool. n examples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from antiphase import console
from antiphase.attacks.compiled import Compile, forwards_at_most, should_compile
from antiphase.attacks.config import Attack
from antiphase.attacks.journal import Journal
from antiphase.attacks.red_flags import precision_flags, stage_flags
from antiphase.attacks.registry import ALGORITHMS
from antiphase.attacks.scheduler import Scheduler

if TYPE_CHECKING:
    from antiphase.attacks.engine import AttackResult, Examples


def stage_names(attack: Attack) -> tuple[str, ...]:
    """Of its stages; none of an attack that is its only one."""
    return () if attack.stages == (attack,) else tuple(stage.name for stage in attack.stages)


@dataclass
class StagedAttack:
    """All stages of an attack on its examples. Every stage is judged before the next begins, by the model in full.

    With a journal, each stage keeps one of its own beside it, so that an interrupted attack goes on in the middle of a stage.
    """

    examples: Examples
    attack: Attack
    compile: Compile = "auto"  # decided anew for each stage, by what it may still cost
    journal: Journal | None = None
    label: str | None = None  # of what is attacked, for the lines that report
    broken_by: Tensor = field(init=False)  # (n,) which stage fooled it, -1: none
    final: Tensor = field(init=False)  # (n,) prediction on the adversarial pixels

    def __post_init__(self) -> None:
        self.broken_by, self.final = torch.full((len(self.examples.x),), -1), self.examples.clean.prediction.clone()

    def run(self) -> AttackResult:
        examples, stages = self.examples, self.attack.stages
        for stage in stages:
            ALGORITHMS[type(stage)](stage, examples)  # refuses a model of too few classes now, not after an hour
        standing = (
            examples.clean.prediction == examples.y
            if self.attack.label == "true"
            else torch.ones(len(examples.x), dtype=torch.bool)
        )
        attacked = standing.clone()
        for number, stage in enumerate(stages):
            if bool(standing.any()):
                standing = self._run_stage(number, stage, torch.nonzero(standing)[:, 0])
            self._report(stage, standing)
        examples.advance(int(standing.sum() + (~attacked).sum()), "")
        names, fooled = stage_names(self.attack), self.broken_by >= 0
        counts = {name: int((self.broken_by == number).sum()) for number, name in enumerate(names)}
        examples.flags += stage_flags(counts, len(examples.x))
        if examples.eot_samples == 1:  # a randomised model differs from itself in any precision
            examples.flags += precision_flags(
                examples.classifier, examples.adversarial[fooled].to(examples.device), examples.clean.prediction[fooled]
            )
        return replace(examples.result(self.attack.within, self.final), broken_by=self.broken_by, stages=names)

    def _run_stage(self, number: int, stage: Attack, rows: Tensor) -> Tensor:
        """Run one stage on these rows; (n,) bool: the examples that are not fooled after it."""
        examples = self.examples
        part = examples.subset(rows, lambda _, note: examples.advance(0, f"{stage.name}: {note}"))
        journal = self.journal and self.journal.for_stage(number)
        algorithm = ALGORITHMS[type(stage)](stage, part)
        compiling = should_compile(
            self.compile, examples.classifier, part.x[:1].to(examples.device), forwards_at_most(stage, len(rows))
        )
        Scheduler(part, stage, algorithm, every_restart=False, compiling=compiling, journal=journal).run()
        result = part.result(stage.within)
        fooled_rows = rows[result.success]
        self.broken_by[fooled_rows], self.final[fooled_rows] = number, result.adversarial_prediction[result.success]
        examples.adversarial.change(fooled_rows.tolist(), result.pixels[result.success])
        examples.changed_in_restart[0, fooled_rows] = True
        examples.forwards[rows] += result.forwards
        examples.backwards[rows] += result.backwards
        examples.compiled |= part.compiled
        examples.flags += [f"{stage.name}: {flag}" for flag in result.flags if flag not in examples.clean.flags]
        examples.advance(len(fooled_rows), "")
        standing = torch.zeros(len(examples.x), dtype=torch.bool)
        standing[rows] = ~result.success
        return standing

    def _report(self, stage: Attack, standing: Tensor) -> None:
        left, n = int(standing.sum()), len(standing)
        what = "robust accuracy" if self.attack.label == "true" else "predictions unchanged"
        of = f"{self.label}: " if self.label else ""
        console.say(f"{of}{what} after {stage.name}: {100 * left / n:.2f} % ({left} of {n})")
