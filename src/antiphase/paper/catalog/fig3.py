"""Figure 3a and b: what depth does to attack success, under PGD and under AutoAttack."""

from __future__ import annotations

from antiphase.measures.bootstrap import difference
from antiphase.measures.stats import Array
from antiphase.paper.contrasts import ASR, predict, success
from antiphase.paper.grid import VIT_NAMES, AskVit, Grid, accuracy_lines, depth_lines, vit_series, vits_under
from antiphase.paper.study import Prediction, Study
from antiphase.paper.titles import budgets, data_name, depths, restarts

SATURATED = 0.95


def pgd(grid: Grid) -> dict[str, AskVit]:
    return {f"PGD {eps}": vits_under(grid, grid.pgd(eps)) for eps in (grid.middle, grid.large)}


def autoattack(grid: Grid) -> dict[str, AskVit]:
    n = grid.s.autoattack_images
    return {f"AutoAttack {e}": vits_under(grid, grid.autoattack(e), n) for e in (grid.middle, grid.large)}


def crossing(grid: Grid, claim: str, where: str, ask: AskVit, reading: str) -> list[Prediction]:
    """At depth 1 the DiffViT is easier to fool than the ViT, at the deepest it is harder; and depth has made it so."""
    deep = grid.deepest
    at = {depth: vit_series(grid, depth, ask, success(reading)) for depth in (1, deep)}
    listed = {
        f"ASR of DiffViT - ViT, depth 1, {where}": [at[1]["DiffViT"], at[1]["ViT"]],
        f"ASR of DiffViT, depth 1 - {deep}, {where}": [at[1]["DiffViT"], at[deep]["DiffViT"]],
        f"ASR of ViT - DiffViT, depth {deep}, {where}": [at[deep]["ViT"], at[deep]["DiffViT"]],
    }
    return [predict(claim, name, grid.data, reading, ends, difference) for name, ends in listed.items()]


def _pgd_predictions(grid: Grid) -> list[Prediction]:
    """K3: at the small budget the DiffViT gains by depth and crosses below the ViT. K4: at the large one nearly all falls."""
    small, large = pgd(grid).values()
    listed = [p for reading in ASR for p in crossing(grid, "K3", f"PGD {grid.middle}", small, reading)]
    for name in VIT_NAMES:
        for depth in (1, grid.deepest):
            series = vit_series(grid, depth, large, success("asr_correct"))[name]
            what = f"ASR of {name}, depth {depth}, PGD {grid.large}, above {100 * SATURATED:.0f} %"
            listed.append(predict("K4", what, grid.data, "asr_correct", [series], _above_saturation, threshold=True))
    return listed


def _above_saturation(rate: Array) -> Array:
    return rate - SATURATED


def _autoattack_predictions(grid: Grid) -> list[Prediction]:
    """K23: what K3 says of PGD, under AutoAttack."""
    small = next(iter(autoattack(grid).values()))
    where = f"AutoAttack {grid.middle}"
    return [p for reading in ASR for p in crossing(grid, "K23", where, small, reading)]


STUDIES = (
    Study(
        name="fig3a",
        claims=("K3", "K4"),
        title=lambda grid: (
            f"Figure 3a: PGD at {budgets((grid.middle, grid.large))} ({restarts(grid.s.pgd_restarts)}) on "
            f"{depths(grid.s.depths)}, {data_name(grid.data)}"
        ),
        question="Does the DiffViT become harder to fool with depth and cross below the ViT, and do both saturate at 4/255?",
        minutes=33.9,
        priced=True,
        lines=lambda grid: [*accuracy_lines(grid), *depth_lines(grid, pgd(grid), ASR)],
        predictions=_pgd_predictions,
    ),
    Study(
        name="fig3b",
        claims=("K23",),
        title=lambda grid: (
            f"Figure 3b: AutoAttack at {budgets((grid.middle, grid.large))} on {depths(grid.s.depths)}, {data_name(grid.data)}"
        ),
        question="Does AutoAttack show the same trend with depth as PGD?",
        minutes=40.5,
        priced=True,
        lines=lambda grid: depth_lines(grid, autoattack(grid), (*ASR, "robust_error")),
        predictions=_autoattack_predictions,
    ),
)
