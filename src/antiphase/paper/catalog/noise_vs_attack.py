"""X1: one statistic under noise and under attack of equal size. Is noise common-mode, and are attacks opposed?"""

from __future__ import annotations

from antiphase.config import Budget
from antiphase.measures.bootstrap import rank_correlation
from antiphase.measures.stats import Array
from antiphase.paper.contrasts import Side, contrast, difference_line, lambdas, line, mean_of
from antiphase.paper.grid import Setting
from antiphase.paper.questions import Cancelled, Cell
from antiphase.paper.study import Found, Line, Prediction, Study

NOISE = ("uniform", "sign", "gaussian")
ATTACKS = ("fgsm", "pgd")
SHOWN = (*NOISE, "scrambled", *ATTACKS, "gaussian16", "blur", "jpeg50")  # scrambled: PGD's own pixels with random signs
EPS = Budget("8/255")
LEVELS = ("maps", "values", "held")


def cancelled(setting: Setting, depth: int = 1) -> tuple[Cancelled, ...]:
    """At depth 1 under everything; at the deepest under one noise and one attack, layer by layer."""
    images, names = setting.test(setting.s.measure_images), SHOWN if depth == 1 else ("sign", "pgd")
    models = [setting.diffvit(seed, depth) for seed in setting.seeds(depth)]
    return tuple(Cancelled(of=model, images=images, perturbations=names, eps=EPS) for model in models)


def cells(setting: Setting) -> list[Cell]:
    asked = [*cancelled(setting), *cancelled(setting, setting.deepest)]
    return [*asked, *(setting.predicted(cell.of) for cell in asked)]


def _side(setting: Setting, name: str, statistic: str = "cos", level: str = "maps") -> Side:
    return Side(cancelled(setting), mean_of(statistic, perturbation=name, level=level))


def lines(setting: Setting, found: Found) -> list[Line]:
    table: list[Line] = []
    for level in LEVELS:
        for name in SHOWN:
            side = _side(setting, name, "cos", level)
            table.append(line(found, f"DiffViT, depth 1, {name}", side, f"cos of changes, {level}", unit=""))
        noise, attack = (_side(setting, name, "cos", level) for name in ("scrambled", "pgd"))
        table.append(difference_line(found, "scrambled - pgd", noise, attack, f"cos of changes, {level}", unit=""))
    for name in SHOWN:
        side = _side(setting, name, "residue")
        reading = "1 / CMRR, maps: below 1 cancelled, above 1 amplified"
        table.append(line(found, f"DiffViT, depth 1, {name}", side, reading, unit=""))
    return table


def _below(*values: Array) -> Array:
    return -rank_correlation(*values)


def contrasts(setting: Setting) -> list[Prediction]:
    """K13: cos of the changes of the maps is above 0 under every noise. K22: layers of larger lambda have smaller alpha."""
    found = [
        contrast("K13", f"cos of changes under {name} noise", "DiffViT", "maps", [_side(setting, name)])
        for name in NOISE
    ]
    deep = setting.deepest
    if deep > 2:
        asked = cancelled(setting, deep)
        for name in ("sign", "pgd"):
            alphas = [Side(asked, mean_of("alpha", k, perturbation=name, level="maps")) for k in range(deep)]
            what = f"- rank correlation of lambda and alpha over {deep} layers, {name}"
            found.append(contrast("K22", what, "DiffViT", "alpha_tri", [*alphas, *lambdas(asked, deep)], _below))
    return found


STUDIES = (
    Study(
        name="x1",
        title="X1: changes of A1 and A2 under noise and under attack, 8/255",
        question="Do the two maps move alike under noise (cancelled) and against each other under attack (amplified)?",
        minutes=17.2,
        priced=True,
        cells=cells,
        lines=lines,
        contrasts=contrasts,
    ),
)
