"""C3: FGSM and PGD on CLIP and DiffCLIP, driving up the cross-entropy over all prompts."""

from __future__ import annotations

from antiphase.attacks import Linf, fgsm
from antiphase.attacks.config import Attack
from antiphase.config import Budget
from antiphase.paper.grid import Grid, clip_lines
from antiphase.paper.series import ASR
from antiphase.paper.study import Study, Tick

BUDGETS = ("0.5/255", "1/255", "2/255", "4/255", "8/255")


def attacks(grid: Grid) -> dict[Tick, Attack]:
    budgets = grid.eps if grid.scale == "smoke" else tuple(map(Budget, BUDGETS))
    listed: dict[Tick, Attack] = {}
    for eps in budgets:
        listed |= {_tick("FGSM", eps): fgsm(Linf(eps)), _tick("PGD", eps): grid.pgd(eps)}
    return listed


def _tick(attack: str, eps: Budget) -> Tick:
    return Tick("eps", Tick.eps(eps).x, f"{attack} {eps}", series=attack)


STUDIES = (
    Study(
        name="clip-fgsm-pgd",
        aliases=("c3",),
        title="C3: FGSM and PGD on CLIP and DiffCLIP",
        question="How much of CLIP and of DiffCLIP do FGSM and PGD break at each budget?",
        minutes=51.6,
        lines=lambda grid: clip_lines(grid, attacks(grid), ASR),
        clip=True,
    ),
)
