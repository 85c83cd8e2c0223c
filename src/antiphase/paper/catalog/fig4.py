"""Figure 4: the local Lipschitz estimate layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from antiphase.measures.seed_intervals import log_ratio
from antiphase.measures.stats import Array, ranked_alike
from antiphase.paper.catalog.fig3d import lipschitz, sampled
from antiphase.paper.contrasts import Series, lambdas, line, log_of, over_models, predict_ranks, predict_sum
from antiphase.paper.grid import Grid, vits
from antiphase.paper.study import FIGURE_ONLY, Answers, Label, Line, Prediction, Study, Tick


def _moments(grid: Grid, name: str, depth: int) -> list[Series]:
    """E[log L] and E[(log L)^2] of every layer in turn."""
    cells = vits(grid, depth, lipschitz(grid))[name]
    return [Series(cells, log_of("max", k, squared=squared)) for k in range(depth) for squared in (False, True)]


def _spread(*moments: Array) -> Array:
    """Mean over layers of the standard deviation of log L over images."""
    deviations = [np.sqrt(np.maximum(b - a**2, 0)) for a, b in zip(moments[::2], moments[1::2])]
    mean: Array = np.mean(deviations, axis=0)
    return mean


def _wider(*moments: Array) -> Array:
    half = len(moments) // 2
    return _spread(*moments[:half]) - _spread(*moments[half:])


def _uneven(*means: Array) -> Array:
    """Standard deviation of E[log L] over layers, the first half of the arrays less the second."""
    half = len(means) // 2
    apart: Array = np.std(means[:half], axis=0, ddof=1) - np.std(means[half:], axis=0, ddof=1)
    return apart


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    deep = max(grid.depths)
    for k in range(deep):
        for name, series in sampled(grid, deep, k).items():
            table += box_lines(Label(name, f"depth {deep}", Tick.at("layer", k + 1)), series)
    cells = vits(grid, deep, lipschitz(grid))["DiffViT"]
    for k, series in enumerate(lambdas(cells, deep)):
        label = Label("DiffViT", f"depth {deep}", Tick.at("layer", k + 1))
        table.append(line(label, series, "lambda", unit=""))
    return [*table, _ranked(grid)] if deep > 2 else table


def _ranked(grid: Grid) -> Line:
    """Do lambda and L rank the layers alike? Seed by seed, with the chance that layers in random order do so as well."""
    deep = max(grid.depths)
    sizes = [sampled(grid, deep, k)["DiffViT"] for k in range(deep)]
    values = lambdas(vits(grid, deep, lipschitz(grid))["DiffViT"], deep)

    def read(answers: Answers) -> dict[str, Any]:
        of_layers, of_lambdas = (np.array([s.arm(answers).value for s in part]) for part in (sizes, values))  # (L, S)
        test = ranked_alike([(of_lambdas, of_layers)])
        note = f"p {test['p_above']:.2g}, layers permuted for all seeds at once"
        return {"value": test["rho"], "seeds": test["models"], "note": note}

    cells = tuple(cell for series in (*sizes, *values) for cell in series.sources)
    reading = "Spearman of lambda and L over layers"
    return Line(label=Label("DiffViT"), reading=reading, cells=cells, read=read, unit="")


def box_lines(label: Label, series: Series) -> list[Line]:
    """The mean, and the box of a box plot."""
    boxes = [
        line(label, Series(series.cells, series.values, q), f"L-sample of maps, quantile {q}", unit="")
        for q in (0.25, 0.5, 0.75)
    ]
    return [line(label, series, "L-sample of maps", reference=FIGURE_ONLY, unit=""), *boxes]


def predictions(grid: Grid) -> list[Prediction]:
    """K7: L and lambda rank the layers alike, in models of three layers and more. K20, of all models of two layers and more: the
    last layer below the first, and log L spreads wider than in the ViT, over images (the boxes) and over layers (the paper's
    words)."""
    reading = "L-sample"
    several = [depth for depth in grid.depths if depth > 1]
    ranked = [depth for depth in grid.depths if depth > 2]  # of two layers a rank correlation says nothing
    listed: list[Prediction] = []
    if several:
        which = f"depth {', '.join(map(str, several))}"

        def ends(depth: int) -> list[Series]:
            return [sampled(grid, depth, k)["DiffViT"] for k in (0, depth - 1)]

        def moments(depth: int) -> list[Series]:
            return [*_moments(grid, "DiffViT", depth), *_moments(grid, "ViT", depth)]

        def means(depth: int) -> list[Series]:
            return [*_moments(grid, "DiffViT", depth)[::2], *_moments(grid, "ViT", depth)[::2]]

        for name, groups in {
            f"log L of DiffViT, layer 1 / last, {which}": over_models(several, ends, log_ratio),
            f"spread of log L over images, DiffViT - ViT, {which}": over_models(several, moments, _wider),
            f"spread of log L over layers, DiffViT - ViT, {which}": over_models(several, means, _uneven),
        }.items():
            listed.append(predict_sum("K20", name, grid.data, reading, groups, unit=""))
    if ranked:
        pairs = [
            (lambdas(vits(grid, d, lipschitz(grid))["DiffViT"], d), [sampled(grid, d, k)["DiffViT"] for k in range(d)])
            for d in ranked
        ]
        name = f"rank correlation of lambda and L over layers, depth {', '.join(map(str, ranked))}"
        listed.append(predict_ranks("K7", name, grid.data, reading, pairs))
    return listed


STUDIES = (
    Study(
        name="fig4",
        claims=("K7", "K20"),
        title="Figure 4: local Lipschitz of the maps, layer by layer",
        question="Is L largest where lambda is large, lower in later layers, and wider spread in the DiffViT?",
        minutes=18.9,
        priced=True,
        lines=lines,
        predictions=predictions,
    ),
)
