"""Accuracy and attack success rates, each over the denominator that its name says."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from antiphase.attacks.engine import AttackResult
from antiphase.data.imageset import ImageSet
from antiphase.measures.interval import rate
from antiphase.runtime import frozen


def accuracy(classifier: nn.Module, images: ImageSet, *, batch_size: int = 256, device: torch.device | str = "cpu") -> float:
    """Share of images classified correctly."""
    correct = 0
    with frozen(classifier), torch.no_grad():
        for batch in images.batches(batch_size):
            correct += int((classifier(batch.pixels.to(device)).argmax(dim=1).cpu() == batch.labels).sum())
    return correct / len(images)


DENOMINATORS = {
    "clean_accuracy": "correct without an attack, over all images",
    "robust_accuracy": "correct and unchanged by every run, over all images",
    "asr_change": "prediction changed by a run, over all images and runs (the paper's definition)",
    "asr_correct": "prediction changed by a run, over correctly classified images and all runs",
    "asr_union": "prediction changed by at least one run, over all images",
}


def success_rates(result: AttackResult) -> dict[str, Any]:
    """The rates of `DENOMINATORS`, each with hits, n and interval. Means over runs count every run of an image as one trial,
    but their interval is computed over images: runs of one image are not independent."""
    changed, correct = result.changed_in_run.numpy(), result.correct.numpy()
    union = changed.any(axis=0)
    return {
        "clean_accuracy": rate(correct).plain(),
        "robust_accuracy": rate(correct & ~union).plain(),
        "asr_change": _mean_over_runs(changed),
        "asr_correct": _mean_over_runs(changed[:, correct]),
        "asr_union": rate(union).plain(),
    }


def _mean_over_runs(changed: Any) -> dict[str, Any]:
    """Mean over runs of the rate; the interval is Wilson's at n images around that mean."""
    runs, n = changed.shape
    hits = int(changed.sum())
    if n == 0:
        return rate(changed[0]).plain()
    from scipy.stats import norm

    p, z2 = hits / (runs * n), float(norm.ppf(0.975)) ** 2
    centre, half = (p + z2 / (2 * n)) / (1 + z2 / n), (z2 / n * (p * (1 - p) + z2 / (4 * n))) ** 0.5 / (1 + z2 / n)
    return {"value": p, "interval": [max(0.0, centre - half), min(1.0, centre + half)], "hits": hits, "n": n, "runs": runs}
