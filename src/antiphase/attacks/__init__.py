"""Attacks: frozen values (config, threat_model) and the engine that runs them. The values import without torch."""

from antiphase.attacks.config import APGD, CW, DDN, FAB, FMN, PGD, AutoAttack, MinimalL2, Square, fgsm
from antiphase.attacks.threat_model import L2, Linf, Patch, ThreatModel

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
    "ThreatModel",
    "fgsm",
]
