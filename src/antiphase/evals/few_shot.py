"""Few-shot classification: in each episode test images of a few classes go to the nearest centroid of a few training images.

w classes of an episode, D width of the features
"""

from __future__ import annotations

import numpy as np
import scipy  # scipy.stats is loaded when it is first used: it takes seconds
from numpy.typing import NDArray

from antiphase import console
from antiphase.config import InputError
from antiphase.evals.config import EvalConfig
from antiphase.evals.rows import Row

Features = NDArray[np.float32]
Labels = NDArray[np.int64]


def few_shot_rows(
    train: Features, train_labels: Labels, test: Features, test_labels: Labels, config: EvalConfig, about: str
) -> list[Row]:
    """The mean accuracy of the episodes, each of which counts the same; the interval is that of the mean over episodes."""
    accuracies = episodes(train, train_labels, test, test_labels, config)
    n, mean = len(accuracies), float(accuracies.mean())
    half = float(scipy.stats.t.ppf(0.975, n - 1) * accuracies.std(ddof=1) / np.sqrt(n))
    of = (
        f"right, mean of {n:,} episodes of {config.ways} classes with {config.shots} training and up to {config.queries} "
        f"test images each, drawn from {len(train_labels):,} training images and {len(test_labels):,} {about}"
        + ("; features centered" if config.center else "")
    )
    interval = max(0.0, mean - half), min(1.0, mean + half)
    return [Row("few-shot", mean, n, interval, of, chance=1 / config.ways)]


def episodes(
    train: Features, train_labels: Labels, test: Features, test_labels: Labels, config: EvalConfig
) -> NDArray[np.float64]:
    """The accuracy of every episode; episode i depends on (seed, i) and not on how many there are."""
    support = {label: np.flatnonzero(train_labels == label) for label in np.unique(test_labels)}
    usable = [label for label, rows in support.items() if len(rows) >= config.shots]
    if len(usable) < config.ways:
        raise InputError(
            f"{len(usable)} classes have {config.shots} training images and a test image: episodes of "
            f"{config.ways} classes need as many"
        )
    query = {label: np.flatnonzero(test_labels == label) for label in usable}
    accuracies = np.empty(config.episodes)
    with console.progress("few-shot episodes", config.episodes) as advance:
        for i in range(config.episodes):
            draw = np.random.default_rng([config.seed, i])
            classes = draw.choice(usable, config.ways, replace=False)
            shots = np.stack([draw.choice(support[c], config.shots, replace=False) for c in classes])  # (w, shots)
            queries = [draw.permutation(query[c])[: config.queries] for c in classes]
            accuracies[i] = _accuracy(
                train[shots],
                test[np.concatenate(queries)],
                np.repeat(np.arange(config.ways), list(map(len, queries))),
                config,
            )
            advance(1, "")
    return accuracies


def _accuracy(shots: Features, queries: Features, labels: Labels, config: EvalConfig) -> float:
    """Of one episode, from (w, shots, D) training features and (queries, D) test features by cosine to the centroids."""
    if config.center:
        center = shots.reshape(-1, shots.shape[-1]).mean(axis=0)
        shots, queries = shots - center, queries - center
    centroids = _unit(_unit(shots).mean(axis=1))  # (w, D)
    return float(((_unit(queries) @ centroids.T).argmax(axis=1) == labels).mean())


def _unit(vectors: Features) -> Features:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: Features = vectors / np.maximum(lengths, 1e-12)
    return unit
