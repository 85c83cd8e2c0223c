"""Is it the subtraction? Accuracy, attack success and L of a model as it is and with one thing changed (docs/method.md 2.8).

The same images, the same random starts and the same draws under every intervention of models/interventions.py, so differences are
paired. Attacked anew: the attack knows the intervention. Transferred: the images that were made for the untouched model.
n images, M draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiphase.attacks import engine
from antiphase.attacks.config import Attack
from antiphase.attacks.engine import AttackResult
from antiphase.data.imageset import Images, ImageSet, as_images
from antiphase.measures.lipschitz import SampledLipschitz, l_sample
from antiphase.measures.questions import check_intervention
from antiphase.measures.stats import Array, mcnemar, mean_interval, paired_rates
from antiphase.measures.success import predictions
from antiphase.models.interventions import intervene
from antiphase.rates import rate
from antiphase.runtime import frozen

NONE = "none"
PART = 128  # images whose clean maps are held at a time; nothing depends on it but rounding
MEANING = {
    "accuracy": "correct without an attack, of all images",
    "asr_change": "attacked anew, with the intervention: prediction changed, of all images",
    "asr_correct": "the same, of the images that are correct with the intervention",
    "transfer_change": "shown the images made for the untouched model: prediction changed, of all images",
    "transfer_fooled": "the same, of the images that fooled the untouched model",
    "lipschitz": "L-sample of the maps as they are with the intervention: largest over the draws, mean over images",
}
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Intervened:
    """What a model does with one thing changed: one entry per image."""

    name: str  # none, lam=0, swap, hold=A2, ...
    labels: NDArray[np.int64]  # (n,)
    clean: NDArray[np.int64]  # (n,) prediction for the clean image
    fooled: Flags  # (n,) attacked anew, the prediction changed
    transferred: Flags  # (n,) the image made for the untouched model changes the prediction
    lipschitz: dict[str, Array]  # layer -> (n,) largest ratio over the draws
    flags: tuple[str, ...]  # reasons to distrust the attack

    @property
    def correct(self) -> Flags:
        return np.equal(self.clean, self.labels)

    def summary(self, untouched: Intervened) -> dict[str, Any]:
        """Rates and means with intervals; beside each the paired difference from the untouched model, on the same images."""
        both = self.correct & untouched.correct
        return {
            "intervention": self.name,
            "n": len(self.labels),
            "accuracy": rate(self.correct).plain(),
            "asr_change": rate(self.fooled).plain(),
            "asr_correct": rate(self.fooled[self.correct]).plain(),
            "transfer_change": rate(self.transferred).plain(),
            "transfer_fooled": rate(self.transferred[untouched.fooled]).plain(),
            "lipschitz": [{"layer": layer, **mean_interval(values)} for layer, values in self.lipschitz.items()],
            "against_none": {
                "accuracy": _against(self.correct, untouched.correct),
                "asr_change": _against(self.fooled, untouched.fooled),
                "asr_both_correct": _against(self.fooled[both], untouched.fooled[both]),
                "transfer_change": _against(self.transferred, untouched.fooled),
                "lipschitz": [
                    {"layer": layer, **mean_interval(values - untouched.lipschitz[layer])}
                    for layer, values in self.lipschitz.items()
                ],
            },
            "flags": list(self.flags),
        }

    def rows(self, ids: NDArray[np.int64]) -> list[dict[str, Any]]:
        """One row per layer and image."""
        return [
            {
                "intervention": self.name,
                "layer": layer,
                "image": int(image),
                "label": int(self.labels[i]),
                "clean": int(self.clean[i]),
                "fooled": bool(self.fooled[i]),
                "transferred": bool(self.transferred[i]),
                "max": float(values[i]),
            }
            for layer, values in self.lipschitz.items()
            for i, image in enumerate(ids)
        ]


def _against(first: Flags, second: Flags) -> dict[str, Any]:
    return {**paired_rates(first, second), "p": mcnemar(first, second)["p"]}


def interventions(
    classifier: nn.Module,
    images: Images,
    attack: Attack,
    *,
    names: Sequence[str] = ("lam=0", "swap", "hold=A1", "hold=A2"),
    draws: int = 32,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> list[Intervened]:
    """A model as it is and under each intervention, attacked anew and shown what was made for it untouched.

    A name is lam=NUMBER, swap, hold=A1 or hold=A2. The untouched model comes first, as "none".
    """
    images = as_images(images)
    settings: dict[str, dict[str, Any]] = {NONE: {}, **{name: check_intervention(name) for name in names}}
    with intervene(classifier, lam=0):  # a model without differential layers is refused before anything is computed
        pass
    parts: dict[str, list[Intervened]] = {name: [] for name in settings}
    with frozen(classifier):
        for start in range(0, len(images), PART):
            part = images.take(np.arange(start, min(start + PART, len(images))))
            batch = part.all
            made: Tensor | None = None  # for the untouched model, which comes first
            for name, what in settings.items():
                held: dict[str, Any] = {"clean": batch.pixels} if "hold" in what else {}
                with intervene(classifier, **what, **held) if what else nullcontext():
                    result = engine.run(
                        classifier, *batch[:2], attack, ids=batch.ids, seed=seed, compile="never", label=name
                    )
                    made = result.adversarial if made is None else made
                    shown = predictions(classifier, part.with_pixels(made), device=device)
                    layers = l_sample(classifier, part, draws=draws, seed=seed, device=device)
                parts[name].append(_of_part(name, part, result, shown, layers))
    return [_joined(of_name) for of_name in parts.values()]


def _of_part(
    name: str, images: ImageSet, result: AttackResult, shown: NDArray[np.int64], layers: list[SampledLipschitz]
) -> Intervened:
    clean = result.clean_prediction.numpy()
    return Intervened(
        name=name,
        labels=images.labels,
        clean=clean,
        fooled=result.success.numpy(),
        transferred=np.not_equal(shown, clean),
        lipschitz={layer.layer: layer.ratios.max(axis=1) for layer in layers},
        flags=result.flags,
    )


def _joined(parts: list[Intervened]) -> Intervened:
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("labels", "clean")}
    flags = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("fooled", "transferred")}
    lipschitz = {layer: np.concatenate([part.lipschitz[layer] for part in parts]) for layer in parts[0].lipschitz}
    said = tuple(dict.fromkeys(flag for part in parts for flag in part.flags))
    return Intervened(parts[0].name, **columns, **flags, lipschitz=lipschitz, flags=said)
