"""Linear probe: logistic regression (L-BFGS) on frozen features, its C chosen on validation images, fitted again on all."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphase import console, files
from antiphase.config import InputError
from antiphase.evals.config import EvalConfig
from antiphase.evals.rows import Row, class_mean, per_class, share

LOWEST, HIGHEST = -6, 6  # exponents of C, as CLIP sweeps it
HELD_OUT = 0.2  # of the training images of each class, where no validation split is published
WORTH_SHARING = 10**9  # multiplications
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Labelled:
    """(n, D) features and their (n,) labels"""

    features: NDArray[np.float32]
    labels: Labels

    def take(self, rows: Any) -> Labelled:
        return Labelled(self.features[rows], self.labels[rows])

    def and_(self, other: Labelled) -> Labelled:
        return Labelled(np.concatenate([self.features, other.features]), np.concatenate([self.labels, other.labels]))


def grid(count: int) -> list[float]:
    """So many values of C, log-spaced from 1e-6 to 1e6."""
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
    train: Labelled,
    validation: Labelled | None,
    test: Labelled,
    config: EvalConfig,
    about: str,
    *,
    by_class: bool = False,
    keep: Path | None = None,
) -> tuple[list[Row], dict[str, Any]]:
    """Accuracy on the test images, and what was chosen. `by_class` scores by the mean over classes, in the choice too.

    With `keep`, what each C scored is kept in that file, so that an interrupted search goes on where it was.
    """
    if len(np.unique(train.labels)) < 2:
        raise InputError(f"a probe needs training images of two classes at least, and those of {about} are of one")
    whole = train if validation is None else train.and_(validation)
    if validation is None:
        later = held_out(train.labels, config.seed)
        train, validation = train.take(~later), train.take(later)
    scored = _scores(train, validation, config, by_class, keep)
    best = max(scored, key=lambda cost: scored[cost])  # of equals the smallest C
    fitted, converged = fit(whole, best, config.iterations)
    right = fitted.predict(test.features.astype(np.float64)) == test.labels
    of = f"right, of {len(test.labels):,} {about} after {len(whole.labels):,} training images"
    plain = share("linear probe", right, of, chance=1 / len(np.unique(whole.labels)))
    classes = per_class("linear probe", right, test.labels, f"mean over the classes of the share {of}")
    first, second = (classes, plain) if by_class else (plain, classes)
    also = Row(
        "linear probe, " + ("all images" if by_class else "per class"),
        second.value,
        second.n,
        second.interval,
        second.of,
    )
    return [first, also], {
        "C": best,
        "at_the_edge": best in (min(scored), max(scored)),
        "converged": converged,
        "validation_images": len(validation.labels),
        "validation": [[cost, score] for cost, score in scored.items()],
    }


def _scores(
    train: Labelled, validation: Labelled, config: EvalConfig, by_class: bool, keep: Path | None
) -> dict[float, float]:
    """The validation score of every C, smallest C first."""
    known: dict[str, float] = files.read_json(keep) if keep is not None and keep.exists() else {}
    costs = grid(config.costs)
    with console.progress("linear probe", len(costs)) as advance:
        for cost in costs:
            if repr(cost) not in known:
                fitted, _ = fit(train, cost, config.iterations)
                right = fitted.predict(validation.features.astype(np.float64)) == validation.labels
                known[repr(cost)] = class_mean(right, validation.labels) if by_class else float(right.mean())
                if keep is not None:
                    files.write_json(keep, known)
            advance(1, f"C {cost:.2g}: {100 * known[repr(cost)]:.1f} %")
    return {cost: known[repr(cost)] for cost in costs}


def fit(data: Labelled, cost: float, iterations: int) -> tuple[Any, bool]:
    """scikit-learn's multinomial logistic regression in float64, and whether L-BFGS came to its end.

    Its passes over small data are too short to be shared: threads would mostly wait for each other.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    model: Callable[..., Any] = LogisticRegression
    products = data.features.size * len(np.unique(data.labels))  # of one pass over the data
    with threadpool_limits(None if products > WORTH_SHARING else 1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = model(C=cost, max_iter=iterations).fit(data.features.astype(np.float64), data.labels)
    return fitted, int(np.max(fitted.n_iter_)) < iterations
