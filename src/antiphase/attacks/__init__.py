"""Attacks: frozen values (config, within) and the engine that runs them. The values import without torch."""

from antiphase.attacks.config import PGD, fgsm
from antiphase.attacks.minimal import CW, DDN, FMN, MinimalL2
from antiphase.attacks.within import L2, Linf, Patch, Within

__all__ = ["CW", "DDN", "FMN", "L2", "PGD", "Linf", "MinimalL2", "Patch", "Within", "fgsm"]
