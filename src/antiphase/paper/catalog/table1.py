"""Table 1: does robustness depend on lambda_init, and is it worst at 0.8?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from antiphase.measures.bootstrap import difference
from antiphase.paper.contrasts import ASR, Side, contrast, line, success, trained_lines
from antiphase.paper.grid import OutScale, Setting
from antiphase.paper.questions import Attacked, Cell
from antiphase.paper.study import Found, Line, Missing, Prediction, Study

PEAK = 0.8
LAMBDAS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.95)
ACCURACY = dict(zip(LAMBDAS, (0.8605, 0.8697, 0.8700, 0.8567, 0.8524, 0.8468)))
SUCCESS = dict(zip(LAMBDAS, (0.4074, 0.6772, 0.8498, 0.7531, 0.4956, 0.4164)))


# lambda_init also sets the gain 1 - lambda_init: `fixed` takes that out
SCALES: tuple[OutScale, ...] = ("official", "fixed")


def _grid(setting: Setting, out_scale: OutScale) -> tuple[float, ...]:
    """With the gain fixed, at the cpu scale the ends and the peak only: each study is to stay under an hour."""
    return (0.5, 0.8, 0.95) if out_scale == "fixed" and setting.scale == "cpu" else LAMBDAS


def _cells(setting: Setting, lam: float, out_scale: OutScale, split: str = "test") -> tuple[Attacked, ...]:
    models = [setting.diffvit(seed, lambda_init=lam, out_scale=out_scale) for seed in setting.seeds()]
    attack = setting.pgd(setting.middle)
    if split == "train":
        return tuple(Attacked(of=model, images=setting.learned(model), attack=attack) for model in models)
    return tuple(setting.attacked(model, attack) for model in models)


def cells(setting: Setting) -> list[Cell]:
    grid = [(lam, scale) for scale in SCALES for lam in _grid(setting, scale)]
    tests: list[Cell] = [cell for lam, scale in grid for cell in _cells(setting, lam, scale)]
    return tests + [cell for lam in LAMBDAS for cell in _cells(setting, lam, "official", "train")]


def lines(setting: Setting, found: Found) -> list[Line]:
    table: list[Line] = []
    for scale in SCALES:
        for lam in _grid(setting, scale):
            label = f"lambda_init {lam}" + (", gain fixed at 0.2" if scale == "fixed" else "")
            tested = _cells(setting, lam, scale)
            accuracy = setting.printed(ACCURACY[lam]) if scale == "official" else None
            table += trained_lines(found, label, [cell.of for cell in tested], accuracy)
            for reading in ASR:
                told = setting.printed(SUCCESS[lam]) if scale == "official" and reading == "asr_change" else None
                table.append(line(found, label, Side(tested, success(reading)), reading, reference=told))
            if scale == "official":
                side = Side(_cells(setting, lam, scale, "train"), success("asr_change"))
                table.append(line(found, label, side, "asr_change, on train images"))
            table.append(_lambda(found, label, tested))
    return table


def _lambda(found: Found, label: str, tested: Sequence[Attacked]) -> Line:
    try:
        final = [float(found(cell.of)["lambda"][0]["lambda"]) for cell in tested]
    except Missing:
        return Line(label=label, reading="lambda after training", unit="", note="not run yet")
    spread = f"from {min(final):.3f} to {max(final):.3f} over seeds" if len(final) > 1 else ""
    mean = sum(final) / len(final)
    return Line(label=label, reading="lambda after training", value=mean, seeds=len(final), unit="", note=spread)


def contrasts(setting: Setting) -> list[Prediction]:
    """K2: step by step up to 0.8, and step by step down from there."""
    rising = [(upper, lower) for lower, upper in pairwise(LAMBDAS) if upper <= PEAK]
    falling = [(lower, upper) for lower, upper in pairwise(LAMBDAS) if lower >= PEAK]
    return [
        contrast(
            "K2",
            f"ASR at lambda_init {more} - {less}",
            setting.data,
            reading,
            [Side(_cells(setting, lam, "official"), success(reading)) for lam in (more, less)],
            difference,
        )
        for reading in ASR
        for more, less in rising + falling
    ]


STUDIES = (
    Study(
        name="table1",
        title="Table 1: attack success against lambda_init, depth-1 DiffViT, PGD (the paper's at 1/255)",
        question="Does attack success rise to lambda_init 0.8 and fall beyond, and is it the subtraction or the gain?",
        minutes=9.2,
        cells=cells,
        lines=lines,
        contrasts=contrasts,
    ),
)
