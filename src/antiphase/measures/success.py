"""Accuracy, and the success rates of an attack's result (measures/attack_rates.py)."""

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
from antiphase.measures.attack_rates import rates_of, target_rates_of
from antiphase.models.fast_path import fast_path
from antiphase.runtime import frozen


def success_rates(result: AttackResult) -> dict[str, Any]:
    """Each rate with hits, n and interval.

    `clean_accuracy`, `robust_accuracy`, `asr_change`, `asr_correct` and `asr_union`; of an attack with a target
    `clean_accuracy`, `target_reached` and `target_reached_correct`.
    """
    check_value("result", result, AttackResult)
    correct, changed = result.correct.numpy(), result.changed_in_restart.numpy()
    if result.target is None:
        return rates_of(correct, changed)
    return target_rates_of(correct, changed, result.attackable.numpy())


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
