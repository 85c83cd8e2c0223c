"""A Cancellation of changes that are written down, for tests that know the answer."""

import numpy as np

from antiphase.measures.cancellation import Cancellation

EPS = 8 / 255


def of(d1, d2, lam=0.8, perturbation="sign", layer="a"):
    """A Cancellation of given changes, (n, h, entries) each."""
    d1, d2 = (np.asarray(d, dtype=np.float64) for d in (d1, d2))
    sizes = np.ones(len(d1))
    moments = ((d1 * d1).sum(-1), (d2 * d2).sum(-1), (d1 * d2).sum(-1))
    return Cancellation(layer, perturbation, EPS, "maps", "branches", lam, *moments, sizes, sizes)
