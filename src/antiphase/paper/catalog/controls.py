"""X3: controls. What of the effects is the initialisation, the output gain, or nothing that was learned?"""

from __future__ import annotations

from typing import Any

from antiphase.paper.catalog.fig5 import aligned_of
from antiphase.paper.contrasts import ASR, PAIRS, Side, difference_line, line, mean_of, negative, success, trained_lines
from antiphase.paper.grid import Setting
from antiphase.paper.questions import Cell, Train
from antiphase.paper.study import Found, Line, Study

VARIANTS: dict[str, dict[str, Any]] = {
    "official": {},
    "matched initialisation": {"init": "matched"},  # the twin's own weights
    "gain 1": {"out_scale": "none"},  # the head output is not shrunk by 1 - lambda_init
}


def _models(setting: Setting, variant: str) -> list[Train]:
    return [setting.diffvit(seed, **VARIANTS[variant]) for seed in setting.seeds()]


def cells(setting: Setting) -> list[Cell]:
    attack = setting.pgd(setting.middle)
    softmax: list[Cell] = [setting.attacked(setting.vit(seed), attack) for seed in setting.seeds()]
    for variant in VARIANTS:
        models = _models(setting, variant)
        softmax += [setting.attacked(model, attack) for model in models]
        softmax += aligned_of(setting, models, "R1")
    return softmax


def lines(setting: Setting, found: Found) -> list[Line]:
    attack = setting.pgd(setting.middle)
    table: list[Line] = []
    for variant in VARIANTS:
        models = _models(setting, variant)
        table += trained_lines(found, f"DiffViT, {variant}", models)
        for reading in ASR:
            diff = Side(tuple(setting.attacked(model, attack) for model in models), success(reading))
            base = tuple(setting.attacked(setting.vit(seed), attack) for seed in setting.seeds())
            where = f"{variant}, eps {setting.middle}"
            table.append(line(found, f"DiffViT, {where}", diff, reading))
            apart = f"DiffViT - ViT, {where}"
            table.append(difference_line(found, apart, diff, Side(base, success(reading)), reading))
        for pairs in PAIRS:
            asked = aligned_of(setting, models, "R1")
            label = f"DiffViT, {variant}" + ("" if pairs == "own" else f", control: {pairs}")
            table.append(line(found, label, Side(asked, negative(pairs)), "R1: share of cos < 0"))
            table.append(line(found, label, Side(asked, mean_of("cos", 0, pairs=pairs)), "R1: mean cos", unit=""))
    return table


STUDIES = (
    Study(
        name="x3",
        title="X3: initialisation, output gain, untrained models, shuffled and pseudo-branches",
        question="How much of attack success and opposition is the initialisation, the gain, or there without any training?",
        minutes=7.1,
        cells=cells,
        lines=lines,
    ),
)
