"""Attacks: frozen values (config, within) and the engine that runs them. The values import without torch."""

from antiphase.attacks.config import APGD, FAB, PGD, AutoAttack, Square, fgsm
from antiphase.attacks.within import L2, Linf, Patch, Within

__all__ = ["APGD", "FAB", "L2", "PGD", "AutoAttack", "Linf", "Patch", "Square", "Within", "fgsm"]
