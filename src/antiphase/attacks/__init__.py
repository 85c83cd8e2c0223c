"""Attacks: frozen values (config, within) and the engine that runs them. The values import without torch."""

from antiphase.attacks.config import PGD, fgsm
from antiphase.attacks.within import L2, Linf, Patch, Within

__all__ = ["L2", "PGD", "Linf", "Patch", "Within", "fgsm"]
