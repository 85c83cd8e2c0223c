"""What an attack returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console, runtime
from antiphase.attacks.autoattack import Cascade
from antiphase.attacks.compiled import Compile, forwards_at_most, wanted
from antiphase.attacks.config import PGD, Attack, Label, Minimal, MinimalL2, Square
from antiphase.attacks.journal import Journal
from antiphase.attacks.minimum_norm import smallest
from antiphase.attacks.red_flags import check_inputs, check_logits, model_flags, order_flags
from antiphase.attacks.registry import METHODS
from antiphase.attacks.scheduler import Pool, vote
from antiphase.attacks.threat_model import SLACK, Linf, Within
from antiphase.config import InputError, fingerprint


class Looked(NamedTuple):
    """What the model says of clean images, and what that says of the model."""

    logits: Tensor  # (n, K)
    prediction: Tensor  # (n,)
    flags: tuple[str, ...]

    def of(self, rows: Tensor) -> Looked:
        return Looked(self.logits[rows], self.prediction[rows], self.flags)


@dataclass(frozen=True)
class AttackResult:
    """One entry an example, n in all."""

    adversarial: Tensor  # (n, C, H, W): of the first run that succeeded, else the clean pixels
    labels: Tensor  # (n,) the true labels
    clean_prediction: Tensor  # (n,)
    adversarial_prediction: Tensor  # (n,) on `adversarial`
    success: Tensor  # (n,) bool, judged on `adversarial`
    changed_in_restart: Tensor  # (R, n) bool: that run succeeded; under the fast protocol one row, their union
    distance: Tensor  # (n,) float64: size of the perturbation in the norm of the attack; 0 where it failed
    forwards: Tensor  # (n,) model evaluations spent
    backwards: Tensor  # (n,)
    flags: tuple[str, ...] = ()  # reasons to distrust this result
    compiled: bool = False  # full batches ran through torch.compile; success is judged without it in any case
    broken_by: Tensor | None = None  # (n,) of an attack in stages, or the best of several: which one, -1 where none did
    stages: tuple[str, ...] = ()  # their names
    alone: tuple[AttackResult, ...] = ()  # of the best of several: what each of them found
    looked: Looked | None = None  # spares a later attack on the same images its own look

    @property
    def correct(self) -> Tensor:
        """Classified correctly before the attack. (n,) bool"""
        return self.clean_prediction == self.labels


# ------------------------------------------------------------------------------------------------- attacks.job
# The examples of one attack and what is known about each: clean predictions, aims, costs, and the last judgement.


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
            changed_in_restart=self.changed & success,
            distance=distance,
            forwards=self.forwards,
            backwards=self.backwards,
            flags=tuple(self.flags),
            compiled=self.compiled,
            looked=self.seen,
        )


# ------------------------------------------------------------------------------------------------- attacks.engine
# `run`: examples in, adversarial examples and the verdict on each out. `sweep`: the same over a grid of budgets.
#
# The classifier maps pixels in [0,1] to logits. Its parameters, grads, modes and hooks, and the global random state, are
# left exactly as they were.


Protocol = Literal["fast", "paper"]
Callback = Callable[[nn.Module, Tensor, Tensor], Tensor]  # any attack of somebody else's: (model, x, y) -> x_adv


def run(
    classifier: nn.Module,
    x: Tensor,
    y: Tensor,
    attack: Attack | Callback,
    *,
    ids: NDArray[np.int64] | None = None,
    seed: int = 0,
    batch_size: int = 64,
    protocol: Protocol = "fast",
    eight_bit: bool = False,
    within: Within | None = None,
    label: str = "attack",
    journal: Path | None = None,
    compile: Compile = "auto",
    looked: Looked | None = None,
) -> AttackResult:
    """Attack images x: (n, C, H, W) in [0,1] with labels y: (n,).

    Everything random about an example depends on (seed, its id, the run): not on batch size, order or neighbours. `ids`
    default to 0..n-1; those of an ImageSet give an image the same starts in every subset. The protocol `fast` stops at an
    example's first success; `paper` takes every run to its own end, as a mean over runs needs. `eight_bit` returns pixels
    on the grid of 255ths. `attack` may be any callable (model, x, y) -> x_adv; it is judged by the same rules, inside
    `within` if that is given. With a `journal`, examples are written there as they end, and those that it knows already are
    not attacked again: a run that was killed goes on. It is for one model, one attack and ids that differ. `compile`
    is how, not what: `auto` uses torch.compile where the forwards that may be needed repay it (attacks/compiled.py).
    `looked` is what an earlier result knows of the same clean images: they are not shown again.
    """
    if batch_size < 1:
        raise InputError(f"batch_size={batch_size} must be at least 1")
    if journal is not None and not isinstance(attack, Attack):
        raise InputError(
            "a journal is kept of our own attacks only: nothing is known of an example inside somebody else's attack"
        )
    if eight_bit and isinstance(attack, Minimal):
        raise InputError(
            "eight_bit is for attacks with a budget: the smallest perturbation ends at the boundary and rounding undoes it"
        )
    if isinstance(attack, MinimalL2):
        settings: dict[str, Any] = {
            "ids": ids,
            "seed": seed,
            "batch_size": batch_size,
            "compile": compile,
        }
        once = partial(run, classifier, x, y, **settings)
        return smallest(attack, once, label=label, journal=journal, looked=looked)
    geometry = attack.within if isinstance(attack, Attack) else within
    check_inputs(classifier, x, y, geometry)
    device = next((p.device for p in classifier.parameters()), torch.device("cpu"))
    with runtime.frozen(classifier), console.progress(label, total=len(x)) as advance:
        ids = np.arange(len(x)) if ids is None else ids
        asks = attack.asks if isinstance(attack, Attack) else 1
        job = Job(classifier, x.cpu(), y.cpu(), ids, seed, batch_size, device, advance, eight_bit, looked, asks)
        if not isinstance(attack, Attack):
            _run_callback(job, attack, geometry)
        elif attack.within.eps > 0:
            kept = None if journal is None else Journal(journal, fingerprint([attack, seed, protocol, eight_bit]))
            if attack.stages != (attack,):
                return Cascade(job, attack, compile, kept).result()
            fast = wanted(compile, classifier, x[:1].to(device), forwards_at_most(attack, len(x)))
            method = METHODS[type(attack)](attack, job)
            Pool(job, attack, method, every_run=protocol == "paper", compiling=fast, journal=kept).empty()
        return job.result(geometry)


def _run_callback(job: Job, attack: Callback, geometry: Within | None) -> None:
    """Somebody else's attack, batch by batch; what it returns counts only inside the set and in [0,1]."""
    outside = 0
    for rows in job.batches(torch.arange(len(job.x))):
        x = job.x[rows]
        with torch.enable_grad():
            given = attack(job.classifier, x.to(job.device), job.y[rows].to(job.device)).detach().cpu()
        allowed = ((given >= 0) & (given <= 1)).flatten(1).all(dim=1)  # NaN fails both
        if geometry is not None:
            allowed &= geometry.size(given.double() - x.double()) <= float(geometry.eps) + 10 * SLACK
            given = geometry.project(given, x)  # what float32 overshot
        outside += int((~allowed).sum())
        won = job.won(job.ask(given, rows)[1], rows) & allowed
        job.adversarial[rows[won]] = given[won].to(job.x.dtype)
        job.changed[0, rows] = won
        job.advance(len(rows), "")
    if outside:
        job.flags.append(f"{outside} of {len(job.x)} returned images lie outside the allowed set and count as failed")


def sweep(
    classifier: nn.Module,
    x: Tensor,
    y: Tensor,
    attacks: Sequence[Attack],
    *,
    protocol: Protocol = "fast",
    ids: NDArray[np.int64] | None = None,
    **kwargs: Any,
) -> list[AttackResult]:
    """One result a budget, smallest first. Under `fast`, what a smaller budget broke is broken: the sets contain each other."""
    ids = np.arange(len(x)) if ids is None else ids
    results: list[AttackResult] = []
    for attack in sorted(attacks, key=lambda a: a.within.eps):
        if protocol == "paper" or not results:
            results.append(run(classifier, x, y, attack, ids=ids, protocol=protocol, **kwargs))
            continue
        standing = ~results[-1].success
        fresh = None
        if bool(standing.any()):
            seen = results[0].looked
            known = {"ids": ids[standing.numpy()], "looked": seen and seen.of(standing)}
            fresh = run(classifier, x[standing], y[standing], attack, protocol=protocol, **known, **kwargs)
        results.append(_extended(results[-1], standing, fresh))
    flags = order_flags([float(result.success.double().mean()) for result in results])
    return [replace(result, flags=(*result.flags, *flag)) for result, flag in zip(results, flags)]


def _extended(smaller: AttackResult, standing: Tensor, fresh: AttackResult | None) -> AttackResult:
    """The result of a larger budget: what the smaller one broke, and what is new. Costs are the new ones."""
    fields: dict[str, Any] = {}
    names = ("adversarial", "adversarial_prediction", "success", "distance", "forwards", "backwards")
    for name in (*names, "broken_by") if smaller.broken_by is not None else names:
        value: Tensor = getattr(smaller, name).clone()
        if name in ("forwards", "backwards"):
            value.zero_()
        if fresh is not None:
            value[standing] = getattr(fresh, name)
        fields[name] = value
    flags, compiled = (fresh.flags, fresh.compiled) if fresh is not None else ((), False)
    return replace(smaller, **fields, changed_in_restart=fields["success"][None], flags=flags, compiled=compiled)


def strength_flags(classifier: nn.Module, x: Tensor, y: Tensor, attack: Attack, *, seed: int = 0) -> list[str]:
    """An untargeted gradient attack that may change pixels by a half and still fails is being misled.

    It drives away from the predicted label: away from the true one, an image that is wrong already would rightly stand.
    """
    targeted = isinstance(attack, PGD) and attack.target is not None
    if type(attack.within) is not Linf or targeted or isinstance(attack, Square):
        return []
    few = min(32, len(x))
    huge = PGD(within=Linf(0.5), steps=20, loss=attack.loss if isinstance(attack, PGD) else "ce", label="predicted")
    failed = int((~run(classifier, x[:few], y[:few], huge, seed=seed).success).sum())
    return [f"at the huge budget 0.5 the attack still failed on {failed} of {few} images"] if failed else []
