"""AutoAttack's lists as they are, but with fewer steps. As a program: the command line with such lists."""

import sys

from antiphase.attacks import APGD, FAB, AutoAttack, Square
from antiphase.cli import main

LISTS = AutoAttack.stages.fget


def shortened(apgd: int, targets: int, fab: int, square: int) -> property:
    quick = {APGD: {"steps": apgd, "targets": targets}, FAB: {"steps": fab}, Square: {"queries": square}}
    return property(lambda attack: tuple(type(s)(**{**vars(s), **quick[type(s)]}) for s in LISTS(attack)))


TO_BE_KILLED = {"apgd": 40, "targets": 9, "fab": 10, "square": 100}  # long enough to be killed in the second stage

if __name__ == "__main__":
    AutoAttack.stages = shortened(**TO_BE_KILLED)
    sys.exit(main(sys.argv[1:]))
