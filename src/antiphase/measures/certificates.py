"""What draws of a noisy model prove, in numbers: bounds, certified radii, and certified accuracy. Free of torch.

measures/smoothing.py makes the draws and has the method. n images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # scipy.special is loaded when it is first used
from numpy.typing import NDArray

from antiphase.measures.stats import Array, mean_interval
from antiphase.rates import rate
from antiphase.store import Content

RADII = (0, 0.125, 0.25, 0.5, 0.75, 1)  # L2, of pixels in [0,1]: where certified accuracy is listed
ABSTAINS = -1  # in place of a class


def lower_bound(hits: int, draws: int, alpha: float) -> float:
    """The exact one-sided bound of Clopper and Pearson: a probability below it would give so many hits or more of these draws
    with a chance below alpha."""
    return float(scipy.special.betaincinv(hits, draws - hits + 1, alpha)) if hits else 0.0


def certified_radius(hits: int, draws: int, sigma: float, alpha: float) -> float | None:
    """sigma times the normal quantile of the bound (Cohen et al. 2019, algorithm CERTIFY); None, which is to abstain, where the
    bound does not exceed one half."""
    bound = lower_bound(hits, draws, alpha)
    return sigma * float(scipy.special.ndtri(bound)) if bound > 0.5 else None


def largest_radius(draws: int, sigma: float, alpha: float) -> float:
    """What is certified where all draws agree: no image has a larger radius with so many draws."""
    return certified_radius(draws, draws, sigma, alpha) or 0.0


def draws_needed(radius: float, sigma: float, alpha: float) -> float:
    """How many draws, if all agree, certify this radius; infinite where float64 cannot say."""
    most_probable = float(scipy.special.log_ndtr(radius / sigma))  # log p: of n draws, all agree with the chance p^n
    return math.ceil(math.log(alpha) / most_probable) if most_probable < 0 else math.inf


def leads(first: int, second: int, alpha: float) -> bool:
    """Whether the most frequent class of some draws beats the second for certain (algorithm PREDICT): were both as likely, so
    uneven counts would have a chance of at most alpha."""
    together = first + second
    return together > 0 and float(scipy.stats.binomtest(first, together, 0.5).pvalue) <= alpha


@dataclass(frozen=True)
class CertificateAnswer:
    """What is certified of every image, as it is stored."""

    content: Content

    @property
    def labels(self) -> NDArray[np.int64]:
        """(n,): the true classes"""
        return np.array(self.content["images"]["label"], dtype=np.int64)

    @property
    def predicted(self) -> NDArray[np.int64]:
        """(n,): the class of the smoothed model; ABSTAINS where it is not certain"""
        classes = self.content["images"]["predicted"]
        return np.array([ABSTAINS if one is None else one for one in classes], dtype=np.int64)

    @property
    def radius(self) -> Array:
        """(n,): within it the prediction is proven not to change; 0 where there is none"""
        return np.array([one or 0.0 for one in self.content["images"]["radius"]])

    @property
    def abstained(self) -> NDArray[np.bool_]:
        return np.equal(self.predicted, ABSTAINS)

    def certified(self, radius: float) -> NDArray[np.bool_]:
        """(n,): predicted correctly, and proven to stay so within this radius"""
        certified: NDArray[np.bool_] = (self.predicted == self.labels) & (self.radius >= radius)
        return certified

    @property
    def largest_radius(self) -> float:
        """No image could have a larger one with so many draws of this noise."""
        return largest_radius(self.content["samples"], self.content["sigma"], self.content["alpha"])

    def can_reach(self, radius: float) -> bool:
        """Whether so many draws can certify this radius at all: of one that they cannot, a share of 0 is no measurement."""
        return radius <= self.largest_radius

    def curve(self, radii: Sequence[float] = RADII) -> list[dict[str, Any]]:
        """Certified accuracy at each radius: the share of all images that are certified there, with Wilson's interval."""
        return [{"radius": radius, **rate(self.certified(radius)).plain()} for radius in radii]

    def summary(self) -> Content:
        """Certified accuracy, abstentions, and the average certified radius, an image that is not correct counting as 0."""
        correct = self.predicted == self.labels
        average = mean_interval(np.where(correct, self.radius, 0.0))
        if average["interval"] is not None:
            average["interval"][0] = max(average["interval"][0], 0.0)  # a radius is never below
        return {
            "rates": self.curve(),
            "abstained": rate(self.abstained).plain(),
            "average_radius": average,
        }
