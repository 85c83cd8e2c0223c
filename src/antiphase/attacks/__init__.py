"""Attacks: frozen values (config, within) and the engine that runs them. The values import without torch."""

from antiphase.attacks.config import APGD, FAB, PGD, AutoAttack, Square, fgsm
from antiphase.attacks.minimal import CW, DDN, FMN, MinimalL2
from antiphase.attacks.within import L2, Linf, Patch, Within

__all__ = [
    "APGD",
    "CW",
    "DDN",
    "FAB",
    "FMN",
    "L2",
    "PGD",
    "AutoAttack",
    "Linf",
    "MinimalL2",
    "Patch",
    "Square",
    "Within",
    "fgsm",
]
