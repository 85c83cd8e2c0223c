"""What is refused before an attack, and the red flags that belong to its result."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from antiphase.attacks.threat_model import Within
from antiphase.config import InputError


def check_inputs(classifier: nn.Module, x: Tensor, y: Tensor, within: Within | None) -> None:
    """Images in [0,1], labels that can be labels, a model that answers the same twice."""
    if x.ndim != 4 or not len(x):
        raise InputError(f"images have shape {tuple(x.shape)}: expected (n, channels, height, width) with n at least 1")
    if not x.is_floating_point():
        raise InputError(f"images are {x.dtype}: expected floats in [0,1] (divide bytes by 255)")
    low, high = x.min().item(), x.max().item()
    if not (low >= 0 and high <= 1):  # NaN fails both comparisons
        raise InputError(f"pixels range from {low:g} to {high:g}: expected [0,1], with normalisation inside the model")
    if y.shape != x.shape[:1] or y.is_floating_point():
        raise InputError(f"labels have shape {tuple(y.shape)} and type {y.dtype}: expected {len(x)} whole numbers")
    for name, module in classifier.named_modules():
        active = isinstance(module, nn.modules.batchnorm._BatchNorm) or (
            isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
        )
        if active and module.training:
            raise InputError(
                f"{name or 'the model'} ({type(module).__name__}) is in train mode: call .eval() on the model first"
            )
    if within is not None:
        within.check(tuple(x.shape[1:]))


def check_logits(logits: Tensor, n: int, y: Tensor) -> None:
    """One row of class scores an image, and every label among the classes."""
    if logits.ndim != 2 or len(logits) != n:
        raise InputError(f"the model returned shape {tuple(logits.shape)} for {n} images: expected ({n}, classes)")
    wrong = y[(y < 0) | (y >= logits.shape[1])]
    if len(wrong):
        raise InputError(f"label {wrong[0].item()} is out of range for a model of {logits.shape[1]} classes")


def model_flags(logits: Tensor, again: Tensor) -> list[str]:
    """Signs, seen on clean images asked about twice, that the model is not what a gradient attack takes it for."""
    flags = []
    if not torch.equal(again, logits):
        flags.append("the model answers differently when asked twice: use an attack for randomised models")
    rows = logits.sum(dim=1)
    if logits.min() >= 0 and torch.allclose(rows, torch.ones_like(rows), atol=1e-4):
        flags.append("the model returns probabilities, not logits: gradients vanish where it is confident")
    return flags


def run_flags(*, zero: int, bad: int, fell: int, stood: int, noise: int, won: int, n: int) -> list[str]:
    """Signs, counted during the attack, that it was weaker than it should have been."""
    flags = []
    if bad:
        flags.append(f"the gradient was not a number for {bad} of {n} images")
    if zero:
        flags.append(f"the gradient was exactly zero for {zero} of {n} images: the loss or the model hides it")
    if fell > 0.2 * stood and fell >= 5:
        flags.append(f"the loss did not rise in {fell} of {stood} runs that failed: the step may be too large")
    if noise >= 0.9 * won and noise > 0.05 * n:
        flags.append(f"random starts alone won {noise} times where the attack won {won}: its gradient does not help")
    return flags


def cascade_flags(broken: dict[str, int], n: int) -> list[str]:
    """Signs that the gradients mislead: attacks that use them less, or not at all, broke what came before them could not.

    `broken` counts the examples that each stage broke, in the order of the stages.
    """
    flags = []
    by_square, by_fab = (sum(k for name, k in broken.items() if name.startswith(s)) for s in ("Square", "FAB"))
    if by_square > max(1, 0.002 * n):
        flags.append(f"Square broke {by_square} of {n} images that the gradients before it did not: they may be masked")
    if by_fab > max(2, 0.05 * n):
        flags.append(f"FAB broke {by_fab} of {n} images that APGD did not: its loss or steps may not suit the model")
    return flags


def precision_flags(classifier: nn.Module, adversarial: Tensor, clean: Tensor, most: int = 8) -> list[str]:
    """Success that is an artefact of float32: asked in float64 about a few adversarial images, the model is not fooled."""
    few = adversarial[:most].double()
    if not len(few):
        return []
    try:
        with torch.no_grad():
            wide = copy.deepcopy(classifier).double()(few).argmax(dim=1).cpu()
    except (RuntimeError, TypeError):  # a model that cannot be copied, or not be brought to float64: nothing is known
        return []
    same = int((wide == clean[: len(few)]).sum())
    return (
        [f"in float64 the model is not fooled by {same} of {len(few)} images that fool it in float32"] if same else []
    )


def unfound_flags(unfound: int, n: int) -> list[str]:
    """An attack without a budget or a target that finds nothing at any distance was misled, or stopped too soon."""
    why = "it was misled, or has too few steps"
    return [f"no adversarial image was found at any distance for {unfound} of {n} images: {why}"] if unfound else []


def order_flags(rates: list[float]) -> list[list[str]]:
    """For success rates of growing budgets: what is wrong with each, if it fell."""
    return [
        [f"a larger budget was not stronger: success {now:.3f} after {before:.3f}"] if now < before else []
        for before, now in zip([0.0, *rates], rates)
    ]
