"""The attack engine. `run`: images in, adversarial images and the verdict on each out. `sweep`: the same over several budgets.

The classifier maps pixels in [0,1] to logits. Its parameters, grads, modes and hooks, and the global random state, are
left exactly as they were.

n examples, C channels, H x W pixels, K classes, R restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console, runtime
from antiphase.attacks.autoattack import StagedAttack, stage_names
from antiphase.attacks.changed_pixels import ChangedPixels
from antiphase.attacks.compiled import Compile, forwards_at_most, should_compile
from antiphase.attacks.config import PGD, Attack, Label, MinimalL2, MinimumNorm, Square, Target
from antiphase.attacks.journal import Journal, digest_of_weights
from antiphase.attacks.minimum_norm import smallest_of_all
from antiphase.attacks.question import Protocol, SweepProtocol, neighbours, sweep_order
from antiphase.attacks.red_flags import (
    FEW,
    RANDOMISED,
    check_alike,
    check_inputs,
    check_logits,
    check_model,
    check_on_grid,
    check_untouched,
    model_flags,
    order_flags,
    unconfirmed_flags,
)
from antiphase.attacks.registry import ALGORITHMS
from antiphase.attacks.scheduler import Scheduler
from antiphase.attacks.threat_model import SLACK, Linf, Patch, ThreatModel
from antiphase.config import InputError, fingerprint

AttackFunction = Callable[[nn.Module, Tensor, Tensor], Tensor]  # any attack of somebody else's: (model, x, y) -> x_adv


class CleanPredictions(NamedTuple):
    """What the model answers on the clean images, and the red flags that this raises."""

    logits: Tensor  # (n, K)
    prediction: Tensor  # (n,)
    flags: tuple[str, ...]

    def of(self, rows: Tensor) -> CleanPredictions:
        return CleanPredictions(self.logits[rows], self.prediction[rows], self.flags)

    def likeliest_others(self, left: Tensor, count: int) -> Tensor:
        """(n, T): the classes that a targeted attack tries, the likeliest on the clean image first; T = min(count, K - 1).

        Never the class `left`, (n,), which the attack drives away from. The predicted class, if that is another, comes last:
        reaching it is no success.
        """
        order = self.logits.clone()
        order.scatter_(1, self.prediction[:, None], order.amin(dim=1, keepdim=True) - 1)
        order.scatter_(1, left[:, None], order.amin(dim=1, keepdim=True) - 1)
        return order.argsort(dim=1, descending=True, stable=True)[:, : min(count, order.shape[1] - 1)]


@dataclass(frozen=True)
class AttackResult:
    """What an attack returns: one entry per example."""

    pixels: ChangedPixels  # of the first restart that succeeded, else the clean ones; kept without copies
    labels: Tensor  # (n,) the true labels
    clean_prediction: Tensor  # (n,)
    adversarial_prediction: Tensor  # (n,) on `pixels`
    success: Tensor  # (n,) bool, judged on `pixels`
    changed_in_restart: Tensor  # (R, n) bool: that restart succeeded; under the fast protocol one row, their union
    distance: Tensor  # (n,) float64: size of the perturbation in the norm of the attack; 0 where it failed
    forwards: Tensor  # (n,) model evaluations spent
    backwards: Tensor  # (n,)
    flags: tuple[str, ...] = ()  # reasons to distrust this result
    compiled: bool = False  # full batches ran through torch.compile; success is judged without it in any case
    broken_by: Tensor | None = None  # (n,) of an attack in stages, or the best of several: which one, -1 where none did
    stages: tuple[str, ...] = ()  # their names
    alone: tuple[AttackResult, ...] = ()  # of the best of several: the result of each of them
    clean: CleanPredictions | None = None  # spares a later attack on the same images the clean forwards
    target: Tensor | None = None  # (n,) the class to reach, of an attack with a target

    @property
    def adversarial(self) -> Tensor:
        """The pixels of the first restart that succeeded, else the clean ones: (n, C, H, W), put together at every call"""
        return self.pixels.tensor

    @property
    def correct(self) -> Tensor:
        """Classified correctly before the attack. (n,) bool"""
        return self.clean_prediction == self.labels

    @property
    def attackable(self) -> Tensor:
        """Not predicted as the target before the attack: without a target, all. (n,) bool"""
        everywhere = torch.ones_like(self.success)
        return everywhere if self.target is None else self.clean_prediction != self.target


# ------------------------------------------------------------------------------------------------- the engine


def run(
    classifier: nn.Module,
    x: Tensor,
    y: Tensor,
    attack: Attack | AttackFunction,
    *,
    ids: NDArray[np.int64] | None = None,
    seed: int = 0,
    batch_size: int = 64,
    protocol: Protocol = "fast",
    eight_bit: bool = False,
    within: ThreatModel | None = None,
    label: str | None = None,
    journal: Path | None = None,
    compile: Compile = "auto",
    clean_predictions: CleanPredictions | None = None,
) -> AttackResult:
    """Attack images x: (n, C, H, W) in [0,1] with labels y: (n,).

    Everything random about an example depends on (seed, its id, the restart): not on batch size, order or neighbours. `ids`
    default to 0..n-1; those of an ImageSet give an image the same starts in every subset. The protocol `fast` stops at an
    example's first success; `paper` takes every restart to its own end, as a mean over restarts needs. `eight_bit` returns
    pixels on the grid of 255ths. `attack` may be any callable (model, x, y) -> x_adv; it is judged by the same rules, inside
    `within` if that is given. With a `journal`, examples are written there as they end, and those that it knows already are
    not attacked again: a process that was killed goes on. It is for one model, one attack and ids that differ; the journal of
    another model, attack or of other images is refused. `compile`
    is how, not what: `auto` uses torch.compile where the forwards that may be needed repay it (attacks/compiled.py).
    `clean_predictions` are those of an earlier result on the same images (`result.clean`): they are not computed again.
    `label` is what the lines about its progress begin with, such as the name of the model.
    """
    if batch_size < 1:
        raise InputError(f"batch_size={batch_size} must be at least 1")
    if journal is not None and not isinstance(attack, Attack):
        raise InputError(
            "a journal is kept of our own attacks only: nothing is known of an example inside somebody else's attack"
        )
    if within is not None and isinstance(attack, Attack):
        raise InputError(
            f"within={within} is for an attack of your own: {attack.name} says by itself what it is within"
        )
    if eight_bit and isinstance(attack, MinimumNorm):
        raise InputError(
            "eight_bit is for attacks with a budget: the smallest perturbation ends at the boundary and rounding undoes it"
        )
    if isinstance(attack, MinimalL2):
        settings: dict[str, Any] = {"ids": ids, "seed": seed, "batch_size": batch_size, "compile": compile}
        run_part = partial(run, classifier, x, y, **settings)
        return smallest_of_all(attack, run_part, label=label, journal=journal, clean_predictions=clean_predictions)
    threat_model = attack.within if isinstance(attack, Attack) else within
    check_inputs(classifier, x, y, threat_model)
    if eight_bit and isinstance(threat_model, Patch):
        check_on_grid(x)
    device = next((p.device for p in classifier.parameters()), torch.device("cpu"))
    with runtime.frozen(classifier), console.progress(label or "attack", total=len(x)) as advance:
        few = None
        if clean_predictions is None:  # else it was done before
            few = check_model(classifier, x[:FEW].detach().to(device), gradients=_uses_gradients(attack))
        examples = Examples(
            classifier,
            x.detach().cpu(),
            y.cpu().long(),
            ids=np.arange(len(x)) if ids is None else ids,
            seed=seed,
            batch_size=batch_size,
            device=device,
            advance=advance,
            eight_bit=eight_bit,
            clean_predictions=clean_predictions,
            eot_samples=attack.eot_samples if isinstance(attack, Attack) else 1,
        )
        if isinstance(attack, Attack) and attack.target is not None:
            examples.loss_label(attack.label, attack.target)  # which sets the target, at a budget of 0 too
        if few is not None and examples.eot_samples == 1 and not examples.clean.flags:
            check_alike(few, examples.clean.logits)
        if not isinstance(attack, Attack):
            _run_function(examples, attack, threat_model)
        elif attack.within.eps > 0:
            kept = None
            if journal is not None:
                question = [attack, seed, protocol, eight_bit, digest_of_weights(classifier)]
                kept = Journal(journal, fingerprint(question))
            if stage_names(attack):
                return StagedAttack(examples, attack, compile, kept, label=label).run()
            compiling = should_compile(compile, classifier, x[:1].to(device), forwards_at_most(attack, len(x)))
            algorithm = ALGORITHMS[type(attack)](attack, examples)
            every = protocol == "paper"
            Scheduler(examples, attack, algorithm, every_restart=every, compiling=compiling, journal=kept).run()
        result = examples.result(threat_model)
        if isinstance(attack, Attack) and (names := stage_names(attack)):  # at a budget of 0 no stage was tried
            return replace(result, broken_by=torch.full((len(x),), -1), stages=names)
        return result


def _uses_gradients(attack: Attack | AttackFunction) -> bool:
    """Whether an attack of ours would fail on a model without gradients; nothing is known of somebody else's."""
    return isinstance(attack, Attack) and not isinstance(attack, Square) and attack.within.eps > 0


def _run_function(examples: Examples, attack: AttackFunction, threat_model: ThreatModel | None) -> None:
    """Somebody else's attack, batch by batch; what it returns counts only inside the threat model and in [0,1]."""
    outside = 0
    for rows in examples.batches(torch.arange(len(examples.x))):
        x = examples.x[rows]
        own = x.to(examples.device, copy=True), examples.y[rows].to(examples.device)  # which it may change in place
        with torch.enable_grad():
            adv = _returned(attack(examples.classifier, *own), x)
        allowed = ((adv >= 0) & (adv <= 1)).flatten(1).all(dim=1)  # NaN fails both
        if threat_model is not None:
            allowed &= threat_model.size(adv.double() - x.double()) <= float(threat_model.eps) + 10 * SLACK
            adv = threat_model.project(adv, x)  # what float32 overshot
        outside += int((~allowed).sum())
        fooled = examples.fooled(examples.query(adv, rows)[1], rows) & allowed
        examples.adversarial.change(rows[fooled].tolist(), adv[fooled])
        examples.changed_in_restart[0, rows] = fooled
        examples.advance(len(rows), "")
    if outside:
        n = len(examples.x)
        examples.flags.append(f"{outside} of {n} returned images lie outside the allowed set and count as failed")


def _returned(adversarial: Any, x: Tensor) -> Tensor:
    """What somebody else's attack returned for images x, as they are kept."""
    if not isinstance(adversarial, Tensor):
        raise InputError(
            f"the attack returned a {type(adversarial).__name__}: let it return its adversarial images alone, as a tensor"
        )
    if adversarial.shape != x.shape or not adversarial.is_floating_point():
        raise InputError(
            f"the attack returned shape {tuple(adversarial.shape)} and type {adversarial.dtype} for images of shape "
            f"{tuple(x.shape)}: let it return floats in [0,1] of the same shape"
        )
    return adversarial.detach().cpu().to(x.dtype)


def sweep(
    classifier: nn.Module,
    x: Tensor,
    y: Tensor,
    attacks: Sequence[Attack],
    *,
    protocol: SweepProtocol = "fast",
    ids: NDArray[np.int64] | None = None,
    **kwargs: Any,
) -> list[AttackResult]:
    """One result per budget, smallest first. Under `fast` an example that a smaller budget fooled is not attacked again:
    the sets contain each other. Under `bisect` one that stood at a larger budget is not attacked at smaller ones either."""
    check_nested(attacks)
    ids = np.arange(len(x)) if ids is None else ids
    attacks = by_budget(attacks)
    shared = {"protocol": "paper" if protocol == "paper" else "fast", **kwargs}
    journal: Path | None = shared.pop("journal", None)
    results: dict[int, AttackResult] = {}
    for budget, after in sweep_order(len(attacks), protocol):
        smaller, larger = (None if number is None else results[number] for number in neighbours(budget, after))
        settings = shared
        if journal is not None:  # one for each budget
            settings = shared | {"journal": journal.with_name(f"{journal.name}-{float(attacks[budget].within.eps):g}")}
        known = smaller
        if known is None and larger is not None:
            known = _before_any(larger)
        if known is None:
            results[budget] = run(classifier, x, y, attacks[budget], ids=ids, **settings)
            continue
        rows = ~known.success if larger is None else ~known.success & larger.success
        fresh = None
        if bool(rows.any()):
            clean = known.clean and known.clean.of(rows)
            own = {"ids": ids[rows.numpy()], "clean_predictions": clean}
            fresh = run(classifier, x[rows], y[rows], attacks[budget], **own, **settings)
        results[budget] = _extended(known, rows, fresh)
    in_order = [results[budget] for budget in range(len(attacks))]
    flags = order_flags([float(result.success.double().mean()) for result in in_order])
    return [replace(result, flags=(*result.flags, *flag)) for result, flag in zip(in_order, flags)]


def _before_any(result: AttackResult) -> AttackResult:
    """The same examples when nothing has been tried on them."""
    fooled, spent = torch.zeros_like(result.success), torch.zeros_like(result.forwards)
    return replace(
        result,
        pixels=ChangedPixels(result.pixels.originals),
        adversarial_prediction=result.clean_prediction,
        success=fooled,
        changed_in_restart=fooled[None],
        distance=torch.zeros_like(result.distance),
        forwards=spent,
        backwards=spent,
        broken_by=None if result.broken_by is None else torch.full_like(result.broken_by, -1),
    )


def check_nested(attacks: Sequence[Attack]) -> None:
    """Refuse attacks that are not one attack at several budgets: what fools within one set has to count within the next."""
    for attack in attacks:
        if isinstance(attack, MinimumNorm):
            raise InputError(
                f"{attack.name} has no budget to sweep over: call attack(classifier, images, attack) for it"
            )
        if _without_budget(attack) != _without_budget(attacks[0]):
            raise InputError(
                f"a sweep is one attack at several budgets, and {attack.name} {attack.within} differs from {attacks[0].name} "
                f"{attacks[0].within} in more than eps: call attack for each"
            )


def _without_budget(attack: Attack) -> Attack:
    """The attack at a budget of 0, with the step that goes with it (FGSM's is its budget)."""
    bare: Any = replace(attack, within=replace(attack.within, eps=0))  # type: ignore[type-var]
    return replace(bare, step_size=None) if isinstance(bare, PGD) else bare


def by_budget(attacks: Sequence[Attack]) -> list[Attack]:
    """Smallest first."""
    return sorted(attacks, key=lambda attack: attack.within.eps)


def _extended(smaller: AttackResult, standing: Tensor, fresh: AttackResult | None) -> AttackResult:
    """The result of a larger budget: examples that the smaller one fooled, and those fooled now. Costs are the new ones."""
    fields: dict[str, Any] = {}
    names = ("adversarial_prediction", "success", "distance", "forwards", "backwards")
    for name in (*names, "broken_by") if smaller.broken_by is not None else names:
        value: Tensor = getattr(smaller, name).clone()
        if name in ("forwards", "backwards"):
            value.zero_()
        if fresh is not None:
            value[standing] = getattr(fresh, name)
        fields[name] = value
    if fresh is not None:
        rows = dict(enumerate(torch.nonzero(standing)[:, 0].tolist()))
        fields["pixels"] = smaller.pixels.taking(fresh.pixels, rows)
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


# ------------------------------------------------------------------------------------------------- examples under attack


@dataclass
class Examples:
    """The examples under attack: the model they are shown to, and what is known about each of them.

    Pixels and book-keeping stay on the CPU. The model is evaluated by `query`, which counts, or by the scheduler.
    """

    classifier: nn.Module
    x: Tensor  # (n, C, H, W) the originals
    y: Tensor  # (n,) the true labels
    ids: NDArray[np.int64]  # (n,) the keys of the examples' random streams
    seed: int
    batch_size: int
    device: torch.device
    advance: Callable[[int, str], None]  # moves the progress bar
    eight_bit: bool = False  # only pixels on the grid of 255ths count
    clean_predictions: InitVar[CleanPredictions | None] = None  # of an earlier attack on these very images
    eot_samples: int = 1  # evaluations of the same pixels; the prediction of a randomised model is a majority vote
    flags: list[str] = field(default_factory=list)

    def __post_init__(self, clean_predictions: CleanPredictions | None) -> None:
        n = len(self.x)
        self.adversarial = ChangedPixels(self.x)
        self.changed_in_restart = torch.zeros(1, n, dtype=torch.bool)  # (R, n)
        self.forwards, self.backwards = torch.zeros(n, dtype=torch.int64), torch.zeros(n, dtype=torch.int64)
        self.compiled = False  # full batches ran compiled
        self.target: Tensor | None = None  # (n,) the class to reach, if there is one
        self.clean = clean_predictions or self._predict_clean()
        self.flags += self.clean.flags

    def subset(self, rows: Tensor, advance: Callable[[int, str], None]) -> Examples:
        """Some of the examples, with their clean predictions but with costs of their own."""
        return Examples(
            self.classifier,
            self.x[rows],
            self.y[rows],
            ids=self.ids[rows.numpy()],
            seed=self.seed,
            batch_size=self.batch_size,
            device=self.device,
            advance=advance,
            eight_bit=self.eight_bit,
            clean_predictions=self.clean.of(rows),
            eot_samples=self.eot_samples,
        )

    def batches(self, rows: Tensor) -> list[Tensor]:
        return list(torch.split(rows, self.batch_size)) if len(rows) else []

    def query(self, pixels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The model's logits (B, K), the mean over all samples of a randomised model, and its prediction (B,)."""
        samples = []
        for _ in range(self.eot_samples):
            with torch.no_grad():
                samples.append(self.classifier(pixels.to(self.device)).cpu())
            check_logits(samples[-1], len(rows), self.y[rows])
            self.count(self.forwards, rows)
        return torch.stack(samples).mean(dim=0), self.majority(samples)

    @staticmethod
    def majority(samples: Sequence[Tensor]) -> Tensor:
        """The class that most of these logits, (B, K) each, predict; the first of those that tie. (B,)"""
        votes = [logits.argmax(dim=1) for logits in samples]
        return votes[0] if len(votes) == 1 else torch.stack(votes).mode(dim=0).values

    @staticmethod
    def count(cost: Tensor, rows: Tensor) -> None:
        """One more for each row; for a row that is named twice, two."""
        cost.index_add_(0, rows, torch.ones_like(rows))

    def _predict_clean(self) -> CleanPredictions:
        first, *rest = self.batches(torch.arange(len(self.x)))
        shown = self.x[first].to(self.device)
        given = shown.clone()
        answers = [self.query(shown, first)]
        check_untouched(given, shown)
        again = answers[0] if self.eot_samples > 1 else self.query(self.x[first], first)  # random if there are samples
        flags = tuple(model_flags(answers[0][0], again[0]))
        logits, predictions = zip(*answers, *(self.query(self.x[rows], rows) for rows in rest))
        return CleanPredictions(torch.cat(logits), torch.cat(predictions), flags)

    def clean_logits_of(self, row: int) -> list[float] | None:
        """The two largest of an example; None of a randomised model, whose logits differ every time."""
        if self.eot_samples > 1 or RANDOMISED in self.clean.flags:
            return None
        logits = self.clean.logits[row]
        largest: list[float] = logits.topk(min(2, len(logits))).values.tolist()
        return largest

    def loss_label(self, label: Label, target: Target | None = None) -> Tensor:
        """(n,): the class whose loss is driven, up for an untargeted attack, down for a targeted one."""
        if target is None:
            return self.y if label == "true" else self.clean.prediction
        logits = self.clean.logits
        if isinstance(target, int):
            if target >= logits.shape[1]:
                raise InputError(
                    f"target {target} is out of range for a model of {logits.shape[1]} classes: "
                    f"classes are counted from 0 to {logits.shape[1] - 1}"
                )
            self.target = torch.full_like(self.y, target)
        elif target == "least-likely":
            self.target = logits.argmin(dim=1)
        else:  # any class but the predicted one, each as likely
            draw = runtime.uniform((self.seed, "target"), self.ids, (1,))[:, 0]
            other = torch.from_numpy((draw * (logits.shape[1] - 1)).astype(np.int64))
            self.target = other + (other >= self.clean.prediction)
        return self.target

    def fooled(self, predictions: Tensor, rows: Tensor) -> Tensor:
        """Prediction changed, or target reached (an image that starts at its target has nothing to reach). (B,) bool"""
        changed = predictions != self.clean.prediction[rows]
        return changed if self.target is None else changed & (predictions == self.target[rows])

    def result(self, threat_model: ThreatModel | None, final: Tensor | None = None) -> AttackResult:
        """Judge what is returned, once more and on the very pixels; an example that does not stand the test comes back clean.

        Where the predictions on the adversarial pixels are known, (n,), they are given as `final` and not computed again.
        """
        claimed = torch.nonzero(self.changed_in_restart.any(dim=0))[:, 0]
        prediction = self.clean.prediction.clone() if final is None else final.clone()
        distance = torch.zeros(len(self.x), dtype=torch.float64)
        for rows in self.batches(claimed):
            pixels = self.adversarial[rows]
            if final is None:
                prediction[rows] = self.query(pixels, rows)[1]
            delta = pixels.double() - self.x[rows].double()
            distance[rows] = delta.flatten(1).norm(dim=1) if threat_model is None else threat_model.size(delta)
        success = torch.zeros(len(self.x), dtype=torch.bool)
        success[claimed] = self.fooled(prediction[claimed], claimed)
        self.flags += unconfirmed_flags(int((~success[claimed]).sum()), len(claimed))
        if threat_model is not None:
            success &= distance <= float(threat_model.eps) + SLACK
        failed = ~success
        self.adversarial.restore(torch.nonzero(failed)[:, 0].tolist())
        distance[failed] = 0.0
        prediction[failed] = self.clean.prediction[failed]
        return AttackResult(
            pixels=self.adversarial,
            labels=self.y.clone(),
            clean_prediction=self.clean.prediction,
            adversarial_prediction=prediction,
            success=success,
            changed_in_restart=self.changed_in_restart & success,
            distance=distance,
            forwards=self.forwards,
            backwards=self.backwards,
            flags=tuple(self.flags),
            compiled=self.compiled,
            clean=self.clean,
            target=self.target,
        )
