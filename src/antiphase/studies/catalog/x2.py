"""X2: every statement of the theory held against trained pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from antiphase.config import Budget
from antiphase.measures.bootstrap import Array, log_ratio
from antiphase.studies.depths import NAMES, twins
from antiphase.studies.inside import mean_of
from antiphase.studies.plan import Cell, Train
from antiphase.studies.questions import Audited, OfImages, Propagated
from antiphase.studies.setting import Setting
from antiphase.studies.sides import Side, Values, contrast, line
from antiphase.studies.study import Answer, Contrast, Found, Line, Missing, Study

TOLERATED = 0.05  # a lemma that fails on more than this share of cases is not taken to hold
PERTURBED = ("sign", "pgd")


def audits(setting: Setting) -> tuple[Audited, ...]:
    images = setting.test(setting.s.measure_images if setting.scale != "smoke" else setting.s.sharp_images)
    sizes = {"probes": setting.s.probes, "draws": setting.s.lipschitz_draws}
    return tuple(
        Audited(of=setting.diffvit(seed), base=setting.vit(seed), images=images, **sizes) for seed in setting.seeds()
    )


def _travelled(setting: Setting) -> dict[str, tuple[OfImages, ...]]:
    """How perturbations travel through both models of the deepest kind."""

    def ask(of: Train) -> Propagated:
        return Propagated(
            of=of, images=setting.test(setting.s.measure_images), perturbations=PERTURBED, eps=Budget("8/255")
        )

    return twins(setting, setting.deepest, ask)


def cells(setting: Setting) -> list[Cell]:
    travelled = [cell for each in _travelled(setting).values() for cell in each]
    told: list[Cell] = [setting.predicted(cell.of) for cell in travelled]
    return [*audits(setting), *(setting.predicted(a.of, a.images) for a in audits(setting)), *travelled, *told]


def lines(setting: Setting, found: Found) -> list[Line]:
    """The audit's own verdicts, one line a statement and seed, then the slack of the blocks."""
    table: list[Line] = []
    for cell in audits(setting):
        seed = cell.of.run_seed
        try:
            rows = found(cell)["rows"]
        except Missing:
            table.append(Line(label=f"seed {seed}", reading="audit", note="not run yet"))
            continue
        n = len(found(cell)["ids"])
        table += [
            Line(label=row["name"], reading=f"audit of seed {seed}", text=row["verdict"], n=n, seeds=1) for row in rows
        ]
    for name in NAMES:
        for perturbation in PERTURBED:
            side = _slack(setting, name, perturbation)
            label = f"{name}, depth {setting.deepest}, {perturbation}"
            table.append(line(found, label, side, "alpha_slack: gain / sigma_max, mean over blocks", unit=""))
    return table


def _slack(setting: Setting, name: str, perturbation: str) -> Side:
    return Side(_travelled(setting)[name], mean_of("slack", perturbation=perturbation))


def _evidence(answer: Answer) -> Any:
    from antiphase.measures.evidence import Evidence, read

    return read(Evidence, answer["evidence"])


def _violated(answer: Answer) -> tuple[Array, Array]:
    from antiphase.measures.theory_bounds import lemma_2_excess

    with np.errstate(all="ignore"):
        excess, decided = lemma_2_excess(_evidence(answer))
    return (decided & (excess > 0)).sum(axis=1).astype(np.float64), decided.sum(axis=1).astype(np.float64)


def _log_ratio_of(name: str, *, over: str) -> Values:
    """log of one model's number over the other's, of images that both classify correctly."""

    def values(answer: Answer) -> tuple[Array, Array]:
        e = _evidence(answer)
        top, bottom = (e.da, e.base) if over == "base" else (e.base, e.da)
        with np.errstate(all="ignore"):
            logs = np.log(getattr(top, name)) - np.log(getattr(bottom, name))
        there = np.isfinite(logs) & e.da.right & e.base.right
        return np.where(there, logs, 0.0), there.astype(np.float64)

    return values


def _rarely(share: Array) -> Array:
    return TOLERATED - share


def contrasts(setting: Setting) -> list[Contrast]:
    """K16: Lemma 2 fails on fewer than 5 % of decided cases. K17: less slack. K21: larger margin, smaller radius."""
    asked, data = audits(setting), setting.data
    margin, radius = _log_ratio_of("margin", over="base"), _log_ratio_of("first_l2", over="da")
    found = [
        contrast("K16", "5 % - violations of Lemma 2, r -> 0", data, "sigma_max", [Side(asked, _violated)], _rarely),
        contrast("K21", "log of margin, DiffViT / ViT", data, "first order, l2", [Side(asked, margin)]),
        contrast("K21", "log of radius, ViT / DiffViT", data, "first order, l2", [Side(asked, radius)]),
    ]
    for perturbation in PERTURBED:
        sides = [_slack(setting, name, perturbation) for name in ("ViT", "DiffViT")]
        name = f"log of alpha_slack, ViT / DiffViT, {perturbation}"
        found.append(contrast("K17", name, data, "alpha_slack", sides, log_ratio))
    return found


STUDIES = (
    Study(
        name="x2",
        title="X2: the theory audit on trained depth-1 pairs",
        question="Which lemmas and theorems hold on trained pairs, and is cancellation stronger in the DiffViT?",
        cells=cells,
        lines=lines,
        contrasts=contrasts,
    ),
)
