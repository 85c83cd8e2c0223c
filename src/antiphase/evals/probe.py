"""Linear probe: logistic regression on frozen features; its C is chosen on validation images, then it is fitted on all.

n images, D width of the features
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphase import console, files
from antiphase.config import InputError, fits
from antiphase.evals.config import EvalConfig
from antiphase.evals.rows import Row, mean_over_classes, per_class, share

LOWEST, HIGHEST = -6, 6  # exponents of C, as CLIP sweeps it
HELD_OUT = 0.2  # of the training images of each class, where no validation split is published
WORTH_THREADS = 10**9  # multiplications per pass, above which L-BFGS uses several threads
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class LabelledFeatures:
    """(n, D) features and their (n,) labels"""

    features: NDArray[np.float32]
    labels: Labels

    def take(self, rows: Any) -> LabelledFeatures:
        return LabelledFeatures(self.features[rows], self.labels[rows])

    def joined_with(self, other: LabelledFeatures) -> LabelledFeatures:
        return LabelledFeatures(
            np.concatenate([self.features, other.features]), np.concatenate([self.labels, other.labels])
        )


def cost_grid(count: int) -> list[float]:
    """`count` values of C, log-spaced from 1e-6 to 1e6."""
    return [float(c) for c in np.logspace(LOWEST, HIGHEST, count)]


def held_out(labels: Labels, seed: int) -> NDArray[np.bool_]:
    """True for the validation images: a fifth of each class, at least one, where the class has more than one."""
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        wanted = min(len(rows) - 1, max(1, int(len(rows) * HELD_OUT)))
        chosen[np.random.default_rng([seed, int(label)]).permutation(rows)[:wanted]] = True
    return chosen


def probe_rows(
    train: LabelledFeatures,
    validation: LabelledFeatures | None,
    test: LabelledFeatures,
    config: EvalConfig,
    about: str,
    *,
    by_class: bool = False,
    keep: Path | None = None,
) -> tuple[list[Row], dict[str, Any]]:
    """Accuracy on the test images, and the C that was chosen. With `by_class` both use the mean over classes.

    With `keep`, the score of each C is kept in that file, so that an interrupted search goes on where it was.
    """
    if len(np.unique(train.labels)) < 2:
        raise InputError(f"a probe needs training images of two classes at least, and those of {about} are of one")
    whole = train if validation is None else train.joined_with(validation)
    if validation is None:
        chosen = held_out(train.labels, config.seed)
        train, validation = train.take(~chosen), train.take(chosen)
    scores = _validation_scores(train, validation, config, by_class, keep)
    best = max(scores, key=lambda cost: scores[cost])  # among equal scores the smallest C
    fitted, converged = fit(whole, best, config.iterations)
    correct = fitted.predict(test.features.astype(np.float64)) == test.labels
    of = f"right, of {len(test.labels):,} {about} after {len(whole.labels):,} training images"
    plain = share("linear probe", correct, of, chance=1 / len(np.unique(whole.labels)))
    classes = per_class("linear probe", correct, test.labels, f"mean over the classes of the share {of}")
    first, second = (classes, plain) if by_class else (plain, classes)
    other = Row(
        "linear probe, " + ("all images" if by_class else "per class"),
        second.value,
        second.n,
        second.interval,
        second.of,
    )
    return [first, other], {
        "C": best,
        "at_the_edge": best in (min(scores), max(scores)),
        "converged": converged,
        "validation_images": len(validation.labels),
        "validation": [[cost, score] for cost, score in scores.items()],
    }


def _validation_scores(
    train: LabelledFeatures, validation: LabelledFeatures, config: EvalConfig, by_class: bool, keep: Path | None
) -> dict[float, float]:
    """The validation score of every C, smallest C first."""
    scores: dict[str, float] = (files.read_kept(keep) if keep is not None else None) or {}
    if not fits(scores, dict[str, float], plain=True):
        raise InputError(f"{keep} is damaged: delete it, and it is computed again")
    costs = cost_grid(config.costs)
    with console.progress("linear probe", len(costs)) as advance:
        for cost in costs:
            if repr(cost) not in scores:
                fitted, _ = fit(train, cost, config.iterations)
                correct = fitted.predict(validation.features.astype(np.float64)) == validation.labels
                scores[repr(cost)] = (
                    mean_over_classes(correct, validation.labels) if by_class else float(correct.mean())
                )
                if keep is not None:
                    files.write_json(keep, scores)
            advance(1, f"C {cost:.2g}: {100 * scores[repr(cost)]:.1f} %")
    return {cost: scores[repr(cost)] for cost in costs}


def fit(data: LabelledFeatures, cost: float, iterations: int) -> tuple[Any, bool]:
    """scikit-learn's multinomial logistic regression in float64, and whether L-BFGS converged.

    Passes over small data are done by one thread: several would mostly wait for each other.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    model: Callable[..., Any] = LogisticRegression
    products = data.features.size * len(np.unique(data.labels))  # of one pass over the data
    with threadpool_limits(None if products > WORTH_THREADS else 1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = model(C=cost, max_iter=iterations).fit(data.features.astype(np.float64), data.labels)
    return fitted, int(np.max(fitted.n_iter_)) < iterations
