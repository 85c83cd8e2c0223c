"""X1: one statistic under noise and under attack of equal size. Is noise common-mode, and are attacks opposed?"""

from __future__ import annotations

from antiphase.config import Names
from antiphase.measures.questions import CancellationQuestion
from antiphase.paper.contrasts import predict, predict_ranks
from antiphase.paper.grid import Grid
from antiphase.paper.questions import Ask
from antiphase.paper.series import Series, difference_line, lambdas, line, mean_of
from antiphase.paper.study import Label, Line, Prediction, Study
from antiphase.paper.titles import data_name

NOISE = ("uniform", "sign", "gaussian")
ATTACKS = ("fgsm", "pgd")
SHOWN = (*NOISE, "scrambled", *ATTACKS, "gaussian16", "blur", "jpeg50")  # scrambled: PGD's own pixels with random signs
LEVELS = ("maps", "values", "held")


def _question(depth: int = 1) -> CancellationQuestion:
    """At depth 1 under everything; deeper under one noise and one attack, layer by layer."""
    return CancellationQuestion(perturbations=Names(SHOWN if depth == 1 else ("sign", "pgd")))


def cancellation(grid: Grid, depth: int = 1) -> tuple[Ask, ...]:
    images = grid.test(grid.s.measure_images)
    models = [grid.diffvit(seed, depth) for seed in grid.seeds(depth)]
    return tuple(Ask(of=model, images=images, question=_question(depth)) for model in models)


def _series(grid: Grid, name: str, statistic: str = "cos", level: str = "maps") -> Series:
    return Series(cancellation(grid), mean_of(statistic, perturbation=name, level=level))


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for level in LEVELS:
        reading = f"cos of changes, {level}"
        for name in SHOWN:
            label = Label("DiffViT", "depth 1", name)
            table.append(line(label, _series(grid, name, "cos", level), reading, unit=""))
        noise, attack = (_series(grid, name, "cos", level) for name in ("scrambled", "pgd"))
        table.append(difference_line(Label("scrambled - pgd"), noise, attack, reading, unit=""))
    for name in SHOWN:
        reading = "1 / CMRR, maps: below 1 cancelled, above 1 amplified"
        table.append(line(Label("DiffViT", "depth 1", name), _series(grid, name, "residue"), reading, unit=""))
    return table


def predictions(grid: Grid) -> list[Prediction]:
    """E2: what the notes say of DiffCLIP (K13), of DiffViTs: cos of the changes of the maps is above 0 under every noise. K22:
    layers of larger lambda have smaller alpha, in models of three layers and more."""
    listed = [
        predict("E2", f"cos of changes under {name} noise", "DiffViT", "maps", [_series(grid, name)], unit="")
        for name in NOISE
    ]
    ranked = [depth for depth in grid.depths if depth > 2]
    for name in ("sign", "pgd") if ranked else ():
        pairs = []
        for depth in ranked:
            cells = cancellation(grid, depth)
            alphas = [Series(cells, mean_of("alpha", k, perturbation=name, level="maps")) for k in range(depth)]
            pairs.append((lambdas(cells, depth), alphas))
        what = f"- rank correlation of lambda and alpha over layers, depth {', '.join(map(str, ranked))}, {name}"
        listed.append(predict_ranks("K22", what, "DiffViT", "alpha_tri", pairs, sign=-1))
    return listed


STUDIES = (
    Study(
        name="noise-vs-attack",
        claims=("E2", "K22"),
        aliases=("x1",),
        title=lambda grid: (
            f"X1: changes of A1 and A2 under noise and under attack of {_question().eps}, {data_name(grid.data)}"
        ),
        question="Do the two maps move alike under noise (cancelled) and against each other under attack (amplified)?",
        minutes=42.9,
        lines=lines,
        predictions=predictions,
    ),
)
