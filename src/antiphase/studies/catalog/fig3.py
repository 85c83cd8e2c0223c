"""Figure 3a and b: what depth does to attack success, under PGD and under AutoAttack."""

from __future__ import annotations

from antiphase.measures.bootstrap import Array, difference
from antiphase.studies.depths import NAMES, Ask, accuracies, every, sides, success_lines, under
from antiphase.studies.setting import Setting
from antiphase.studies.sides import ASR, contrast
from antiphase.studies.study import Contrast, Study

SATURATED = 0.95


def pgd(setting: Setting) -> dict[str, Ask]:
    return {f"PGD {eps}": under(setting, setting.pgd(eps)) for eps in (setting.middle, setting.large)}


def autoattack(setting: Setting) -> dict[str, Ask]:
    n = setting.s.autoattack_images
    return {f"AutoAttack {e}": under(setting, setting.autoattack(e), n) for e in (setting.middle, setting.large)}


def _pgd_contrasts(setting: Setting) -> list[Contrast]:
    """K3: at the small budget the DiffViT gains by depth, and ends below the ViT. K4: at the large one nearly all falls."""
    deep, (small, large) = setting.deepest, pgd(setting).values()
    found: list[Contrast] = []
    for reading in ASR:
        at = {depth: sides(setting, depth, small, reading) for depth in (1, deep)}
        falls = [at[1]["DiffViT"], at[deep]["DiffViT"]]
        crosses = [at[deep]["ViT"], at[deep]["DiffViT"]]
        where = f"PGD {setting.middle}"
        found += [
            contrast("K3", f"ASR of DiffViT, depth 1 - {deep}, {where}", setting.data, reading, falls, difference),
            contrast("K3", f"ASR of ViT - DiffViT, depth {deep}, {where}", setting.data, reading, crosses, difference),
        ]
    for name in NAMES:
        for depth in (1, deep):
            side = sides(setting, depth, large, "asr_correct")[name]
            what = f"ASR of {name}, depth {depth}, PGD {setting.large}, above {100 * SATURATED:.0f} %"
            found.append(contrast("K4", what, setting.data, "asr_correct", [side], _saturated))
    return found


def _saturated(rate: Array) -> Array:
    return rate - SATURATED


def _autoattack_contrasts(setting: Setting) -> list[Contrast]:
    """K23: what K3 says of PGD, under AutoAttack; images that are wrong from the start are left out there."""
    deep, small = setting.deepest, next(iter(autoattack(setting).values()))
    falls = [sides(setting, depth, small, "asr_correct")["DiffViT"] for depth in (1, deep)]
    name = f"ASR of DiffViT, depth 1 - {deep}, AutoAttack {setting.middle}"
    return [contrast("K23", name, setting.data, "asr_correct", falls, difference)]


STUDIES = (
    Study(
        name="fig3a",
        title="Figure 3a: PGD against depth",
        question="Does the DiffViT become harder to fool with depth and cross below the ViT, and do both saturate at 4/255?",
        cells=lambda setting: every(setting, list(pgd(setting).values())),
        lines=lambda setting, found: [
            *accuracies(setting, found),
            *success_lines(setting, found, pgd(setting), ASR),
        ],
        contrasts=_pgd_contrasts,
    ),
    Study(
        name="fig3b",
        title="Figure 3b: AutoAttack against depth",
        question="Does AutoAttack show the same trend with depth as PGD?",
        cells=lambda setting: every(setting, list(autoattack(setting).values())),
        lines=lambda setting, found: success_lines(
            setting, found, autoattack(setting), ("asr_correct", "robust_error")
        ),
        contrasts=_autoattack_contrasts,
    ),
)
