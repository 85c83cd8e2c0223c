"""antiphase: what the subtraction in differential attention costs in robustness, and what it buys.

The names below are imported when first used, so `import antiphase` is light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphase.attacks import APGD, CW, DDN, FAB, FMN, L2, PGD, AutoAttack, Linf, MinimalL2, Patch, Square, fgsm
    from antiphase.attacks.engine import run as attack
    from antiphase.attacks.engine import sweep
    from antiphase.data import load
    from antiphase.data.pair_catalog import load_pairs
    from antiphase.data.pairs import of_classes
    from antiphase.measures.distances import distances
    from antiphase.measures.jacobians_forward import branch_alignment
    from antiphase.measures.lipschitz import l_sample
    from antiphase.measures.success import accuracy, success_rates
    from antiphase.models import Differential, Schedule, Softmax, ViTConfig
    from antiphase.models.clip_config import CLIPConfig
    from antiphase.models.convert import convert
    from antiphase.models.differentiate import differentiate
    from antiphase.models.run import Run
    from antiphase.models.taps import taps
    from antiphase.models.vit import build
    from antiphase.models.zero_shot import zero_shot
    from antiphase.training import ContrastiveConfig, TrainConfig
    from antiphase.training.clip_task import train_clip
    from antiphase.training.loop import train

_HOME = {
    "APGD": "attacks",
    "FAB": "attacks",
    "CW": "attacks",
    "DDN": "attacks",
    "FMN": "attacks",
    "MinimalL2": "attacks",
    "PGD": "attacks",
    "AutoAttack": "attacks",
    "Square": "attacks",
    "L2": "attacks",
    "Linf": "attacks",
    "Patch": "attacks",
    "fgsm": "attacks",
    "attack": "attacks.engine:run",
    "sweep": "attacks.engine",
    "load": "data",
    "load_pairs": "data.pair_catalog",
    "of_classes": "data.pairs",
    "branch_alignment": "measures.jacobians_forward",
    "distances": "measures.distances",
    "l_sample": "measures.lipschitz",
    "accuracy": "measures.success",
    "success_rates": "measures.success",
    "Differential": "models",
    "Schedule": "models",
    "Softmax": "models",
    "ViTConfig": "models",
    "Run": "models.run",
    "CLIPConfig": "models.clip_config",
    "convert": "models.convert",
    "differentiate": "models.differentiate",
    "taps": "models.taps",
    "build": "models.vit",
    "zero_shot": "models.zero_shot",
    "ContrastiveConfig": "training",
    "TrainConfig": "training",
    "train": "training.loop",
    "train_clip": "training.clip_task",
}
__all__ = [
    "APGD",
    "CW",
    "DDN",
    "FAB",
    "FMN",
    "L2",
    "PGD",
    "AutoAttack",
    "CLIPConfig",
    "ContrastiveConfig",
    "Differential",
    "Linf",
    "MinimalL2",
    "Patch",
    "Run",
    "Schedule",
    "Softmax",
    "Square",
    "TrainConfig",
    "ViTConfig",
    "accuracy",
    "attack",
    "branch_alignment",
    "build",
    "convert",
    "differentiate",
    "distances",
    "fgsm",
    "l_sample",
    "load",
    "load_pairs",
    "of_classes",
    "success_rates",
    "sweep",
    "taps",
    "train",
    "train_clip",
    "zero_shot",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'antiphase' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(import_module(f"antiphase.{module}"), attribute or name)
