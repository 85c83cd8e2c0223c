"""Table 1: attack success against lambda_init, and the control that the paper leaves out."""

from __future__ import annotations

from itertools import pairwise

from antiphase.measures.seed_intervals import difference
from antiphase.paper.catalog.fig4 import lambda_line
from antiphase.paper.contrasts import predict
from antiphase.paper.grid import Grid, OutScale, attack_on
from antiphase.paper.questions import Ask
from antiphase.paper.series import ASR, Series, Success, line, trained_lines
from antiphase.paper.study import Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import data_name, restarts

PEAK = 0.8
LAMBDAS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.95)
ACCURACY = dict(zip(LAMBDAS, (0.8605, 0.8697, 0.8700, 0.8567, 0.8524, 0.8468)))
SUCCESS = dict(zip(LAMBDAS, (0.4074, 0.6772, 0.8498, 0.7531, 0.4956, 0.4164)))
SCALES: tuple[OutScale, ...] = (
    "official",
    "fixed",
)  # lambda_init also sets the gain 1 - lambda_init: `fixed` takes that out


def _lambdas(grid: Grid, out_scale: OutScale) -> tuple[float, ...]:
    """With the gain fixed, at the cpu scale the ends and the peak only: each study is to stay under an hour."""
    return (0.5, 0.8, 0.95) if out_scale == "fixed" and grid.scale == "cpu" else LAMBDAS


def _attacked(grid: Grid, lam: float, out_scale: OutScale, split: str = "test", seeds: int = 0) -> tuple[Ask, ...]:
    """One cell per seed, or for the first so many of them."""
    many = seeds or seeds_of(grid, lam)
    models = [grid.diffvit(seed, lambda_init=lam, out_scale=out_scale) for seed in range(many)]
    attack = grid.pgd(grid.middle)
    if split == "train":
        return tuple(attack_on(model, grid.learned(model), attack) for model in models)
    return tuple(grid.under_attack(model, attack) for model in models)


def seeds_of(grid: Grid, lam: float) -> int:
    own = len(grid.seeds())
    return own if lam == PEAK or grid.s.lambda_seeds is None else min(own, grid.s.lambda_seeds)


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for scale in SCALES:
        for lam in _lambdas(grid, scale):
            label = Label(Tick.at("lambda_init", lam), "gain fixed at 0.2" if scale == "fixed" else "")
            cells = _attacked(grid, lam, scale)
            accuracy = grid.printed(ACCURACY[lam]) if scale == "official" else None
            table += trained_lines(label, [cell.of for cell in cells], accuracy)
            for reading in ASR:
                printed = grid.printed(SUCCESS[lam]) if scale == "official" and reading == "asr_change" else None
                table.append(line(label, Series(cells, Success(reading)), reading, reference=printed))
            if scale == "official":
                series = Series(_attacked(grid, lam, scale, "train"), Success("asr_change"))
                table.append(line(label, series, "asr_change, on train images"))
            table.append(lambda_line(label, [cell.of for cell in cells], 0, "lambda after training"))
    return table


def predictions(grid: Grid) -> list[Prediction]:
    """K2: step by step up to 0.8, and step by step down from there."""
    rising = [(upper, lower) for lower, upper in pairwise(LAMBDAS) if upper <= PEAK]
    falling = [(lower, upper) for lower, upper in pairwise(LAMBDAS) if lower >= PEAK]
    return [
        predict(
            "K2",
            f"ASR at lambda_init {more} - {less}",
            grid.data,
            reading,
            [Series(_attacked(grid, lam, "official", seeds=shared), Success(reading)) for lam in (more, less)],
            difference,
            says=says,
        )
        for reading in ASR
        for says, steps in {"the rise": rising, "the fall": falling}.items()
        for more, less in steps
        for shared in [min(seeds_of(grid, lam) for lam in (more, less))]
    ]


STUDIES = (
    Study(
        name="table1",
        claims=("K2",),
        title=lambda grid: (
            f"Table 1: attack success against lambda_init, DiffViT of depth 1 on {data_name(grid.data)}, "
            f"PGD at {grid.middle} ({restarts(grid.s.pgd_restarts)})"
        ),
        question="Does attack success rise to lambda_init 0.8 and fall beyond, and is it the subtraction or the gain?",
        minutes=34.7,
        lines=lines,
        predictions=predictions,
    ),
)
