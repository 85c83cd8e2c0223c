"""Which method carries out which attack. A new attack is a config, a method and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphase.attacks.apgd import ByAPGD
from antiphase.attacks.config import APGD, FAB, PGD, Attack, Square
from antiphase.attacks.cw import ByCW
from antiphase.attacks.ddn import ByDDN
from antiphase.attacks.fab import ByFAB
from antiphase.attacks.fmn import ByFMN
from antiphase.attacks.job import Job
from antiphase.attacks.method import Method
from antiphase.attacks.minimal import CW, DDN, FMN
from antiphase.attacks.pgd import ByPGD
from antiphase.attacks.square import BySquare

METHODS: dict[type[Attack], Callable[[Any, Job], Method[Any]]] = {
    PGD: ByPGD,
    APGD: ByAPGD,
    FAB: ByFAB,
    Square: BySquare,
    CW: ByCW,
    DDN: ByDDN,
    FMN: ByFMN,
}
