"""Transfer: what images that were made to fool one model do to another, judged image by image.

The other model is fooled where its own prediction changes between the clean image and the one made for the first model. An
image that the attack did not fool the first model with is shown clean, so it counts as not transferred. n images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase.attacks import engine
from antiphase.attacks.config import Attack
from antiphase.config import InputError, to_plain
from antiphase.data.imageset import Images, ImageSet, as_images
from antiphase.measures.success import predictions
from antiphase.rates import rate

MEANING = {
    "clean_accuracy": "correct without an attack, of all images",
    "transfer_change": "prediction changed by the image made for the source, of all images",
    "transfer_correct": "the same, of the images that the target has right",
    "transfer_fooled": "the same, of the images that fooled the source",
}


@dataclass(frozen=True)
class Transferred:
    """What a target predicts for clean images and for those made for the source: one entry per image."""

    labels: NDArray[np.int64]  # (n,)
    clean: NDArray[np.int64]  # (n,) the target's prediction for the clean image
    shown: NDArray[np.int64]  # (n,) and for the one made for the source
    fooled_source: NDArray[np.bool_]  # (n,)

    @property
    def changed(self) -> NDArray[np.bool_]:
        return np.not_equal(self.shown, self.clean)

    def rates(self) -> dict[str, Any]:
        """The rates of `MEANING`, each with hits, n and Wilson's interval."""
        correct = np.equal(self.clean, self.labels)
        rates = {
            "clean_accuracy": rate(correct),
            "transfer_change": rate(self.changed),
            "transfer_correct": rate(self.changed[correct]),
            "transfer_fooled": rate(self.changed[self.fooled_source]),
        }
        return {name: value.plain() for name, value in rates.items()}


def judged(
    target: nn.Module,
    images: ImageSet,
    adversarial: Tensor,
    fooled_source: NDArray[np.bool_],
    *,
    device: torch.device | str = "cpu",
) -> Transferred:
    """A target shown clean images and those made for the source, (n, C, H, W) in the same order."""
    clean = predictions(target, images, device=device)
    shown = predictions(target, images.with_pixels(adversarial), device=device)
    shown = np.where(fooled_source, shown, clean)  # the very same pixels: batches of another size may round otherwise
    return Transferred(images.labels, clean, shown, fooled_source)


def transfer(
    classifiers: Mapping[str, nn.Module],
    images: Images,
    attack: Attack,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """Every model attacked, and what was made for it shown to every model: rows are sources, columns targets."""
    if not classifiers:
        raise InputError("there is no model to attack: name at least one")
    images = as_images(images)
    x, y, ids = images.all
    rows = []
    for source in classifiers.values():
        result = engine.run(source, x, y, attack, ids=ids, seed=seed)
        fooled = result.success.numpy()
        rows.append(
            [judged(t, images, result.adversarial, fooled, device=device).rates() for t in classifiers.values()]
        )
    return matrix(list(classifiers), len(images), attack, rows)


def matrix(models: list[str], n: int, attack: Attack, rows: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """As it is returned and printed: entry [i][j] has the rates of images made for model i and shown to model j."""
    return {"models": models, "n": n, "attack": to_plain(attack), "meaning": MEANING, "matrix": rows}
