"""C3: FGSM and PGD on CLIP and DiffCLIP, driving up the cross-entropy over all prompts."""

from __future__ import annotations

from antiphase.attacks import Linf, fgsm
from antiphase.config import Budget
from antiphase.paper.catalog.fig2_clip import every
from antiphase.paper.contrasts import ASR
from antiphase.paper.grid import Setting, clip_lines
from antiphase.paper.questions import Attack
from antiphase.paper.study import Study

BUDGETS = ("0.5/255", "1/255", "2/255", "4/255", "8/255")


def attacks(setting: Setting) -> dict[str, Attack]:
    budgets = setting.eps if setting.scale == "smoke" else tuple(map(Budget, BUDGETS))
    found: dict[str, Attack] = {}
    for eps in budgets:
        found |= {f"FGSM {eps}": fgsm(Linf(eps)), f"PGD {eps}": setting.pgd(eps)}
    return found


STUDIES = (
    Study(
        name="c3",
        title="C3: FGSM and PGD on CLIP and DiffCLIP",
        question="How much of CLIP and of DiffCLIP do FGSM and PGD break at each budget?",
        minutes=9.1,
        priced=True,
        cells=lambda setting: every(setting, attacks(setting)),
        lines=lambda setting, found: clip_lines(setting, found, attacks(setting), ASR),
        clip=True,
    ),
)
