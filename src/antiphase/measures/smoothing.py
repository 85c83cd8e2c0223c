"""Randomised smoothing (Cohen, Rosenfeld and Kolter 2019): real certificates, of any model, within L2.

The smoothed model answers with the class that the model f itself answers most often when noise is added to the image:

    g(x) = argmax_c P( f(x + noise) = c ),   noise ~ N(0, sigma^2) for every value of every pixel, independently.

If class c has probability p > 1/2 at x, then g answers c everywhere within the L2 radius sigma Phi^-1(p) (their theorem 1, with
1 - p for all other classes). p is bounded from below by draws: some select the class, others, independent of them, count how
often it is answered (measures/certificates.py). A certificate is wrong with a chance of at most alpha, over the draws.

Noisy pixels are not clipped to [0,1]. A model that clips them is another model, of which the theorem holds as well: it asks
nothing of f, not even that it be defined by a network.
C channels, H x W pixels, K classes, D draws, n images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from antiphase import console, runtime
from antiphase.attacks import engine
from antiphase.attacks.engine import CleanPredictions
from antiphase.attacks.red_flags import check_logits
from antiphase.config import InputError
from antiphase.data.imageset import Images, ImageSet, as_images
from antiphase.measures.certificates import certified_radius, leads
from antiphase.measures.questions import CertificateQuestion, SmoothedAttackQuestion
from antiphase.measures.stats import Array
from antiphase.models.fast_path import fast_path
from antiphase.store import Content

BATCH = 128  # noisy copies of one image that the model sees at once
OUTWARD = (
    0.7,
    0.8,
    0.9,
    1.0,
    1.1,
    1.25,
    1.5,
    2.0,
    3.0,
)  # times the perturbation found: where the smoothed model is asked anew
Device = torch.device | str


def certificates(
    classifier: nn.Module,
    images: Images,
    question: CertificateQuestion = CertificateQuestion(),
    *,
    batch_size: int = BATCH,
    device: Device = "cpu",
    label: str = "certificates",
) -> Content:
    """Of every image: id, label, predicted (a class, or None where the smoothed model abstains), hits, radius.

    What is drawn for an image depends on its id, its pixels and the question: not on order, neighbours or batch size.
    """
    if not isinstance(question, CertificateQuestion):
        raise InputError(
            f"certificates take a CertificateQuestion, such as ap.CertificateQuestion(sigma=0.25), not {question!r}"
        )
    if batch_size < 1:
        raise InputError(f"batch_size={batch_size} must be at least 1")
    images, q = as_images(images), question
    rows: list[dict[str, Any]] = []
    with runtime.at_rest(classifier), fast_path(classifier), console.progress(label, total=len(images)) as advance:
        for batch in images.batches(1):
            x, i = batch.pixels[0].to(device), int(batch.ids[0])
            chosen = int(votes(classifier, x, q.sigma, q.selection, stream(q.seed, "select", i), batch_size).argmax())
            counts = votes(classifier, x, q.sigma, q.samples, stream(q.seed, "estimate", i), batch_size)
            hits = int(counts[chosen])
            radius = certified_radius(hits, q.samples, q.sigma, q.alpha)
            predicted = None if radius is None else chosen
            rows.append(
                {"id": i, "label": int(batch.labels[0]), "predicted": predicted, "hits": hits, "radius": radius}
            )
            advance(1, "")
    return {name: [row[name] for row in rows] for name in rows[0]}


def stream(seed: int, purpose: str, image: int) -> np.random.Generator:
    """The noise of an image for one purpose: draws come one after another, however many are taken at once."""
    return np.random.default_rng(runtime.seed_word(seed, "smoothing", purpose, image))


def votes(
    classifier: nn.Module, x: Tensor, sigma: float, draws: int, noise: np.random.Generator, batch_size: int = BATCH
) -> NDArray[np.int64]:
    """How often each class is answered for x: (C, H, W) with noise. (K,)"""
    counts: Tensor | None = None
    for start in range(0, draws, batch_size):
        shape = (min(batch_size, draws - start), *x.shape)
        drawn = torch.from_numpy(noise.standard_normal(shape, dtype=np.float32))
        logits = classifier(x + sigma * drawn.to(x))
        check_logits(logits, len(drawn), torch.empty(0, dtype=torch.int64))
        answered = torch.bincount(logits.argmax(dim=1), minlength=logits.shape[1]).cpu()
        counts = answered if counts is None else counts + answered
    assert counts is not None
    total: NDArray[np.int64] = counts.numpy()
    return total


# ------------------------------------------------------------------------------------------------- the smoothed model attacked


class Smoothed(nn.Module):
    """The smoothed model as a classifier with gradients: the logarithm of the mean softmax over D draws, the same for all images.

    A stand-in for the model that is certified, which counts classes and has no gradient (the attack of Salman et al. 2019).
    """

    noise: Tensor

    def __init__(self, classifier: nn.Module, sigma: float, shape: tuple[int, ...], *, draws: int, seed: int) -> None:
        super().__init__()
        self.classifier = classifier
        drawn = stream(seed, "attack", 0).standard_normal((draws, *shape), dtype=np.float32)
        self.register_buffer("noise", sigma * torch.from_numpy(drawn), persistent=False)  # (D, C, H, W)

    def forward(self, pixels: Tensor) -> Tensor:
        draws = len(self.noise)
        noisy = (pixels[:, None] + self.noise.to(pixels)).flatten(0, 1)  # (B D, C, H, W)
        scores = F.log_softmax(self.classifier(noisy), dim=1)
        scores = scores.reshape(len(pixels), draws, -1)  # (B, D, K)
        return scores.logsumexp(dim=1) - math.log(draws)


@dataclass(frozen=True)
class SmoothedAttack:
    """The nearest image of each at which the smoothed model answers another class, confirmed by draws of its own."""

    distance: Array  # (n,) L2; infinite where none was confirmed
    predicted: NDArray[np.int64]  # (n,) the class there; of an image without one, its own
    found: Array  # (n,) L2 at which the attack fooled the stand-in; infinite where it did not


def attack_smoothed(
    classifier: nn.Module,
    images: ImageSet,
    question: SmoothedAttackQuestion,
    *,
    device: Device = "cpu",
    journal: Path | None = None,
    label: str = "attack on the smoothed model",
) -> SmoothedAttack:
    """Drive every image out of its class in `away_from` by attacking the stand-in, then ask the smoothed model itself.

    The stand-in's boundary is not quite that of the smoothed model, and close to either of them a vote is undecided. So the
    perturbation is shortened and lengthened, and the first length at which the vote is decided (PREDICT, at alpha divided by
    the number of lengths) counts. Only such a distance bounds the true radius from above. Of an image on which the stand-in
    answers another class than the vote there is none.
    """
    q, batch = question, images.all
    smoothed = Smoothed(classifier, q.sigma, images.shape, draws=q.draws, seed=q.seed).to(device)
    at_once = max(1, 2 * BATCH // q.draws)
    own = torch.tensor(q.away_from)
    with runtime.at_rest(smoothed), fast_path(classifier):
        logits = torch.cat([smoothed(x.to(device)).cpu() for x in torch.split(batch.pixels, at_once)])
    settings: dict[str, Any] = {"ids": batch.ids, "seed": q.seed, "batch_size": at_once, "journal": journal}
    clean = CleanPredictions(logits, own, ())
    result = engine.run(
        smoothed, batch.pixels, own, q.attack, **settings, label=label, compile="never", clean_predictions=clean
    )
    agrees = logits.argmax(dim=1).numpy() == own.numpy()  # else the stand-in is "fooled" by the image itself
    found = np.where(result.success.numpy() & agrees, result.distance.numpy(), np.inf)
    distance, predicted = np.full(len(images), np.inf), own.numpy().copy()
    with runtime.at_rest(classifier), fast_path(classifier):
        for row in np.flatnonzero(np.isfinite(found)):
            x, adversarial = batch.pixels[row], result.pixels.changed[int(row)]
            noise = stream(q.seed, "confirm", int(batch.ids[row]))
            for length in OUTWARD:
                there = (x + length * (adversarial - x)).clamp(0, 1)
                counts = votes(classifier, there.to(device), q.sigma, q.samples, noise)
                second, first = np.argsort(counts, kind="stable")[-2:]
                if first != own[row] and leads(int(counts[first]), int(counts[second]), q.alpha / len(OUTWARD)):
                    distance[row] = float((there.double() - x.double()).norm())
                    predicted[row] = first
                    break
    return SmoothedAttack(distance, predicted, found)
