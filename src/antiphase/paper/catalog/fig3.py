"""Figure 3a and b: what depth does to attack success, under PGD and under AutoAttack."""

from __future__ import annotations

from antiphase.measures.bootstrap import difference
from antiphase.measures.stats import Array
from antiphase.paper.contrasts import ASR, contrast
from antiphase.paper.grid import VIT_NAMES, AskVit, Setting, accuracies, depth_lines, every, vit_series, vits_under
from antiphase.paper.study import Prediction, Study

SATURATED = 0.95


def pgd(setting: Setting) -> dict[str, AskVit]:
    return {f"PGD {eps}": vits_under(setting, setting.pgd(eps)) for eps in (setting.middle, setting.large)}


def autoattack(setting: Setting) -> dict[str, AskVit]:
    n = setting.s.autoattack_images
    return {f"AutoAttack {e}": vits_under(setting, setting.autoattack(e), n) for e in (setting.middle, setting.large)}


def crossing(setting: Setting, claim: str, where: str, ask: AskVit, reading: str) -> list[Prediction]:
    """At depth 1 the DiffViT is easier to fool than the ViT, at the deepest it is harder; and depth has made it so."""
    deep = setting.deepest
    at = {depth: vit_series(setting, depth, ask, reading) for depth in (1, deep)}
    listed = {
        f"ASR of DiffViT - ViT, depth 1, {where}": [at[1]["DiffViT"], at[1]["ViT"]],
        f"ASR of DiffViT, depth 1 - {deep}, {where}": [at[1]["DiffViT"], at[deep]["DiffViT"]],
        f"ASR of ViT - DiffViT, depth {deep}, {where}": [at[deep]["ViT"], at[deep]["DiffViT"]],
    }
    return [contrast(claim, name, setting.data, reading, ends, difference) for name, ends in listed.items()]


def _pgd_contrasts(setting: Setting) -> list[Prediction]:
    """K3: at the small budget the DiffViT gains by depth and crosses below the ViT. K4: at the large one nearly all falls."""
    small, large = pgd(setting).values()
    found = [c for reading in ASR for c in crossing(setting, "K3", f"PGD {setting.middle}", small, reading)]
    for name in VIT_NAMES:
        for depth in (1, setting.deepest):
            side = vit_series(setting, depth, large, "asr_correct")[name]
            what = f"ASR of {name}, depth {depth}, PGD {setting.large}, above {100 * SATURATED:.0f} %"
            found.append(contrast("K4", what, setting.data, "asr_correct", [side], _saturated, threshold=True))
    return found


def _saturated(rate: Array) -> Array:
    return rate - SATURATED


def _autoattack_contrasts(setting: Setting) -> list[Prediction]:
    """K23: what K3 says of PGD, vits_under AutoAttack."""
    small = next(iter(autoattack(setting).values()))
    where = f"AutoAttack {setting.middle}"
    return [c for reading in ASR for c in crossing(setting, "K23", where, small, reading)]


STUDIES = (
    Study(
        name="fig3a",
        title="Figure 3a: PGD against depth",
        question="Does the DiffViT become harder to fool with depth and cross below the ViT, and do both saturate at 4/255?",
        minutes=33.9,
        priced=True,
        cells=lambda setting: every(setting, list(pgd(setting).values())),
        lines=lambda setting, found: [
            *accuracies(setting, found),
            *depth_lines(setting, found, pgd(setting), ASR),
        ],
        contrasts=_pgd_contrasts,
    ),
    Study(
        name="fig3b",
        title="Figure 3b: AutoAttack against depth",
        question="Does AutoAttack show the same trend with depth as PGD?",
        minutes=40.5,
        priced=True,
        cells=lambda setting: every(setting, list(autoattack(setting).values())),
        lines=lambda setting, found: depth_lines(setting, found, autoattack(setting), (*ASR, "robust_error")),
        contrasts=_autoattack_contrasts,
    ),
)
