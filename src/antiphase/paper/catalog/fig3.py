"""Figure 3a and b: what depth does to attack success, under PGD and under AutoAttack."""

from __future__ import annotations

from collections.abc import Callable

from antiphase.measures.seed_intervals import difference
from antiphase.measures.stats import Array
from antiphase.paper.contrasts import Group, along_depth, predict, predict_sum
from antiphase.paper.grid import AskVit, Grid, accuracy_lines, depth_lines, vit_series, vits_under
from antiphase.paper.series import ASR, Series, Success
from antiphase.paper.study import Prediction, Study
from antiphase.paper.titles import budgets, data_name, depths, restarts

SATURATED = 0.95


def pgd(grid: Grid) -> dict[str, AskVit]:
    return {f"PGD {eps}": vits_under(grid, grid.pgd(eps)) for eps in (grid.middle, grid.large)}


def autoattack(grid: Grid) -> dict[str, AskVit]:
    n = grid.s.autoattack_images
    return {f"AutoAttack {e}": vits_under(grid, grid.autoattack(e), n) for e in (grid.middle, grid.large)}


def twins(grid: Grid, ask: AskVit, reading: str) -> Callable[[int], tuple[Series, Series]]:
    """Of a depth: DiffViT first, so that their difference is above 0 where it is easier to fool."""

    def at(depth: int) -> tuple[Series, Series]:
        both = vit_series(grid, depth, ask, Success(reading))
        return both["DiffViT"], both["ViT"]

    return at


def trends(grid: Grid, ask: AskVit, reading: str) -> dict[str, list[Group]]:
    """What depth does, over all depths: to success on the DiffViT, and to how much easier it is to fool than the ViT."""
    at = twins(grid, ask, reading)
    return {
        "fall of ASR of DiffViT": along_depth(grid.depths, lambda depth: at(depth)[:1], sign=-1),
        "fall of ASR of DiffViT - ViT": along_depth(grid.depths, at, difference, sign=-1),
    }


def _pgd_predictions(grid: Grid) -> list[Prediction]:
    """K3: at the small budget the DiffViT, which is easier to fool at depth 1, gains by depth and ends below the ViT. K4:
    at the large budget nearly all images fall, at every depth."""
    small, large = pgd(grid).values()
    deepest, where = max(grid.depths), f"PGD {grid.middle}"
    listed: list[Prediction] = []
    for reading in ASR:
        at = twins(grid, small, reading)
        shallow = f"ASR of DiffViT - ViT, depth 1, {where}"
        listed.append(predict("K3", shallow, grid.data, reading, at(1), difference, premise=True))
        if len(grid.depths) > 1:
            fall = next(iter(trends(grid, small, reading).values()))
            ends = along_depth(grid.depths, at, difference, at=deepest, sign=-1)
            name = f"fall of ASR of DiffViT from depth 1 to {deepest}, {where}"
            listed.append(predict_sum("K3", name, grid.data, reading, fall, says="the fall with depth"))
            name = f"ASR of ViT - DiffViT at depth {deepest}, by the line through all depths, {where}"
            listed.append(predict_sum("K3", name, grid.data, reading, ends, says="the crossing"))
    for depth in grid.depths:
        for name, series in vit_series(grid, depth, large, Success("asr_correct")).items():
            what = f"ASR of {name}, depth {depth}, PGD {grid.large}, above {100 * SATURATED:.0f} %"
            listed.append(
                predict(
                    "K4",
                    what,
                    grid.data,
                    "asr_correct",
                    [series],
                    _above_saturation,
                    threshold=True,
                    against=SATURATED,
                    says=f"depth {depth}",
                )
            )
    return listed


def _above_saturation(rate: Array) -> Array:
    return rate - SATURATED


def _autoattack_predictions(grid: Grid) -> list[Prediction]:
    """K23: depth does under AutoAttack what it does under PGD."""
    if len(grid.depths) == 1:
        return []
    single, ensemble = next(iter(pgd(grid).values())), next(iter(autoattack(grid).values()))
    listed: list[Prediction] = []
    for reading in ASR:
        like = trends(grid, single, reading)
        for name, groups in trends(grid, ensemble, reading).items():
            what = f"{name} with depth under AutoAttack {grid.middle}, in the direction that PGD has"
            listed.append(
                predict_sum("K23", what, grid.data, reading, groups, direction_of=like[name], among=len(like))
            )
    return listed


STUDIES = (
    Study(
        name="fig3a",
        claims=("K3", "K4"),
        title=lambda grid: (
            f"Figure 3a: PGD at {budgets((grid.middle, grid.large))} ({restarts(grid.s.pgd_restarts)}) on "
            f"{depths(grid.depths)}, {data_name(grid.data)}"
        ),
        question="Does the DiffViT become harder to fool with depth and cross below the ViT, and do both saturate at 4/255?",
        minutes=137.0,
        lines=lambda grid: [*accuracy_lines(grid), *depth_lines(grid, pgd(grid), ASR)],
        predictions=_pgd_predictions,
    ),
    Study(
        name="fig3b",
        claims=("K23",),
        title=lambda grid: (
            f"Figure 3b: AutoAttack at {budgets((grid.middle, grid.large))} on {depths(grid.depths)}, {data_name(grid.data)}"
        ),
        question="Does AutoAttack show the same trend with depth as PGD?",
        minutes=234.7,
        lines=lambda grid: depth_lines(grid, autoattack(grid), (*ASR, "robust_error")),
        predictions=_autoattack_predictions,
    ),
)
