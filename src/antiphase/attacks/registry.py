"""Which algorithm carries out which attack. A new attack is a config (attacks/config.py), an algorithm and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from antiphase.attacks.apgd import APGDAlgorithm
from antiphase.attacks.carlini_wagner import CWAlgorithm
from antiphase.attacks.config import APGD, CW, DDN, FAB, FMN, PGD, Attack, Square
from antiphase.attacks.fab import FABAlgorithm
from antiphase.attacks.minimum_norm import DDNAlgorithm, FMNAlgorithm
from antiphase.attacks.pgd import PGDAlgorithm
from antiphase.attacks.scheduler import AttackAlgorithm
from antiphase.attacks.square import SquareAlgorithm

if TYPE_CHECKING:
    from antiphase.attacks.engine import Examples

ALGORITHMS: dict[type[Attack], Callable[[Any, Examples], AttackAlgorithm[Any]]] = {
    PGD: PGDAlgorithm,
    APGD: APGDAlgorithm,
    FAB: FABAlgorithm,
    Square: SquareAlgorithm,
    CW: CWAlgorithm,
    DDN: DDNAlgorithm,
    FMN: FMNAlgorithm,
}
