"""The examples of one attack and what is known about each: clean predictions, aims, costs, and the last judgement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import runtime
from antiphase.attacks.checks import check_logits, model_flags
from antiphase.attacks.config import Label
from antiphase.attacks.result import AttackResult, Looked
from antiphase.attacks.within import Within

SLACK = 1e-7  # float32 leaves a ball by up to 6e-8


def vote(answers: Sequence[Tensor]) -> Tensor:
    """The class that most of these logits, (B, K) each, name; the first of those that tie. (B,)"""
    named = [answer.argmax(dim=1) for answer in answers]
    return named[0] if len(named) == 1 else torch.stack(named).mode(dim=0).values


@dataclass
class Job:
    """Pixels and book-keeping stay on the CPU; the model is asked through `ask`, which counts."""

    classifier: nn.Module
    x: Tensor
    y: Tensor
    ids: NDArray[np.int64]
    seed: int
    batch_size: int
    device: torch.device
    advance: Callable[[int, str], None]
    eight_bit: bool = False  # only pixels on the grid of 255ths count
    looked: Looked | None = None  # an earlier look at these very images: they are not shown again
    asks: int = 1  # times that the model is asked; a randomised one is taken at the word it gives most often
    flags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = len(self.x)
        self.adversarial = self.x.clone()
        self.changed = torch.zeros(1, n, dtype=torch.bool)  # (R, n)
        self.forwards, self.backwards = torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.int64)
        self.compiled = False  # full batches ran compiled
        self.target: Tensor | None = None  # (n,) the class to reach, if there is one
        self.seen = self.looked or self._look()
        self.flags += self.seen.flags
        self.clean = self.seen.prediction

    def part(self, rows: Tensor, advance: Callable[[int, str], None]) -> Job:
        """Some of the examples, known as well as here but with costs of their own."""
        given = (self.x[rows], self.y[rows], self.ids[rows.numpy()], self.seed, self.batch_size, self.device, advance)
        return Job(self.classifier, *given, self.eight_bit, self.seen.of(rows), self.asks)

    def batches(self, rows: Tensor) -> list[Tensor]:
        return list(torch.split(rows, self.batch_size)) if len(rows) else []

    def ask(self, pixels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The model's logits, the mean over all times it is asked, and its prediction, the class it names most often."""
        answers = []
        for _ in range(self.asks):
            with torch.no_grad():
                answers.append(self.classifier(pixels.to(self.device)).cpu())
            check_logits(answers[-1], len(rows), self.y[rows])
            self.spend(self.forwards, rows)
        return torch.stack(answers).mean(dim=0), vote(answers)

    @staticmethod
    def spend(cost: Tensor, rows: Tensor) -> None:
        """One more for each row; for a row that is named twice, two."""
        cost.index_add_(0, rows, torch.ones_like(rows))

    def _look(self) -> Looked:
        first, *rest = self.batches(torch.arange(len(self.x)))
        answers = [self.ask(self.x[first], first)]
        again = answers[0] if self.asks > 1 else self.ask(self.x[first], first)  # asked often it is known to waver
        flags = tuple(model_flags(answers[0][0], again[0]))
        logits, predictions = zip(*answers, *(self.ask(self.x[rows], rows) for rows in rest))
        return Looked(torch.cat(logits), torch.cat(predictions), flags)

    def aim(self, label: Label, target: str | int | None = None) -> Tensor:
        """(n,): the class whose loss is driven, up for an untargeted attack, down for a targeted one."""
        if target is None:
            return self.y if label == "true" else self.clean
        if isinstance(target, int):
            self.target = torch.full_like(self.y, target)
            check_logits(self.seen.logits, len(self.y), self.target)
        elif target == "least-likely":
            self.target = self.seen.logits.argmin(dim=1)
        else:  # any class but the predicted one, each as likely
            draw = runtime.uniform((self.seed, "target"), self.ids, (1,))[:, 0]
            other = torch.from_numpy((draw * (self.seen.logits.shape[1] - 1)).astype(np.int64))
            self.target = other + (other >= self.clean)
        return self.target

    def won(self, predictions: Tensor, rows: Tensor) -> Tensor:
        """Prediction changed, or target reached (an image that starts at its target has nothing to reach)."""
        changed = predictions != self.clean[rows]
        return changed if self.target is None else changed & (predictions == self.target[rows])

    def result(self, geometry: Within | None, judged: Tensor | None = None) -> AttackResult:
        """Judge what is returned, once more and on the very pixels; what does not stand the test comes back clean.

        Predictions that are `judged` already, (n,), are not asked for again.
        """
        claimed = torch.nonzero(self.changed.any(dim=0))[:, 0]
        final = self.clean.clone() if judged is None else judged.clone()
        for rows in self.batches(claimed) if judged is None else []:
            final[rows] = self.ask(self.adversarial[rows], rows)[1]
        delta = self.adversarial.double() - self.x.double()
        distance = delta.flatten(1).norm(dim=1) if geometry is None else geometry.size(delta)
        success = torch.zeros(len(self.x), dtype=torch.bool)
        success[claimed] = self.won(final[claimed], claimed)
        if geometry is not None:
            success &= distance <= float(geometry.eps) + SLACK
        failed = ~success
        self.adversarial[failed], final[failed], distance[failed] = self.x[failed], self.clean[failed], 0.0
        return AttackResult(
            adversarial=self.adversarial,
            labels=self.y.clone(),
            clean_prediction=self.clean,
            adversarial_prediction=final,
            success=success,
            changed_in_run=self.changed & success,
            distance=distance,
            forwards=self.forwards,
            backwards=self.backwards,
            flags=tuple(self.flags),
            compiled=self.compiled,
            looked=self.seen,
        )
