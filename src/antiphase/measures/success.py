"""Accuracy and attack success rates, each over the denominator that its name says."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from antiphase.attacks.engine import AttackResult
from antiphase.attacks.red_flags import check_logits
from antiphase.config import check_value
from antiphase.data.imageset import Images, ImageSet, as_images
from antiphase.models.fast_path import fast_path
from antiphase.rates import rate
from antiphase.runtime import frozen

DENOMINATORS = {
    "clean_accuracy": "correct without an attack, of all images",
    "robust_accuracy": "correct and changed by no restart, of all images",
    "asr_change": "prediction changed, of all images, mean over restarts (the paper's rate)",
    "asr_correct": "prediction changed, of the correctly classified images, mean over restarts",
    "asr_union": "prediction changed by at least one restart, of all images",
}


def success_rates(result: AttackResult) -> dict[str, Any]:
    """The rates of `DENOMINATORS`, each with hits, n and interval."""
    check_value("result", result, AttackResult)
    return rates_of(result.correct.numpy(), result.changed_in_restart.numpy())


def rates_of(correct: NDArray[np.bool_], changed_in_restart: NDArray[np.bool_]) -> dict[str, Any]:
    """From which images were classified correctly before the attack (n,) and which each restart changed (R, n)."""
    changed = changed_in_restart.T  # (n, R)
    union = changed.any(axis=1)
    rates = {
        "clean_accuracy": rate(correct),
        "robust_accuracy": rate(correct & ~union),
        "asr_change": rate(changed),
        "asr_correct": rate(changed[correct]),
        "asr_union": rate(union),
    }
    return {name: value.plain() for name, value in rates.items()}


def predictions(
    classifier: nn.Module, images: Images, *, batch_size: int = 256, device: torch.device | str = "cpu"
) -> NDArray[np.int64]:
    """The class predicted for each image."""
    return _classes(classifier, as_images(images), batch_size, device, labelled=False)


def _classes(
    classifier: nn.Module, images: ImageSet, batch_size: int, device: torch.device | str, *, labelled: bool
) -> NDArray[np.int64]:
    """Of logits that are one row of numbers per image; where it is `labelled`, of as many classes as the labels need."""
    parts = []
    with frozen(classifier), fast_path(classifier), torch.no_grad():
        for batch in images.batches(batch_size):
            logits = classifier(batch.pixels.to(device))
            check_logits(logits, len(batch.labels), batch.labels[: None if labelled else 0])
            parts.append(logits.argmax(dim=1).cpu())
    classes: NDArray[np.int64] = torch.cat(parts).numpy()
    return classes


def accuracy(
    classifier: nn.Module, images: Images, *, batch_size: int = 256, device: torch.device | str = "cpu"
) -> float:
    """Share of images classified correctly."""
    images = as_images(images)
    return float((_classes(classifier, images, batch_size, device, labelled=True) == images.labels).mean())
