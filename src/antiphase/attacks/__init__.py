"""Attacks: frozen values (config, within) and the engine that runs them. The values import without torch."""

from antiphase.attacks.config import PGD, fgsm
from antiphase.attacks.within import Linf, Within

__all__ = ["PGD", "Linf", "Within", "fgsm"]
