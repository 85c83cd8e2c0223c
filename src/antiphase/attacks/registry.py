"""Which method carries out which attack. A new attack is a config, a method and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from antiphase.attacks.apgd import ByAPGD
from antiphase.attacks.carlini_wagner import ByCW
from antiphase.attacks.config import APGD, CW, DDN, FAB, FMN, PGD, Attack, Square
from antiphase.attacks.fab import ByFAB
from antiphase.attacks.minimum_norm import ByDDN, ByFMN
from antiphase.attacks.pgd import ByPGD
from antiphase.attacks.scheduler import Method
from antiphase.attacks.square import BySquare

if TYPE_CHECKING:
    from antiphase.attacks.engine import Job

METHODS: dict[type[Attack], Callable[[Any, Job], Method[Any]]] = {
    PGD: ByPGD,
    APGD: ByAPGD,
    FAB: ByFAB,
    Square: BySquare,
    CW: ByCW,
    DDN: ByDDN,
    FMN: ByFMN,
}
