"""`run`: examples in, adversarial examples and the verdict on each out. `sweep`: the same over a grid of budgets.

The classifier maps pixels in [0,1] to logits. Its parameters, grads, modes and hooks, and the global random state, are
left exactly as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase import console, runtime
from antiphase.attacks.cascade import Cascade
from antiphase.attacks.checks import check_inputs, order_flags
from antiphase.attacks.compiled import Compile, forwards_at_most, wanted
from antiphase.attacks.config import PGD, Attack, Square
from antiphase.attacks.job import SLACK, Job
from antiphase.attacks.journal import Journal
from antiphase.attacks.methods import METHODS
from antiphase.attacks.minimal import Minimal, MinimalL2
from antiphase.attacks.pool import Pool
from antiphase.attacks.result import AttackResult, Looked
from antiphase.attacks.smallest import smallest
from antiphase.attacks.within import Linf, Within
from antiphase.config import InputError, fingerprint

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
    return replace(smaller, **fields, changed_in_run=fields["success"][None], flags=flags, compiled=compiled)


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
