"""Figure 4: the local Lipschitz estimate layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from antiphase.measures.seed_intervals import log_ratio
from antiphase.measures.stats import Array, ranked_alike
from antiphase.paper.catalog.fig2 import data_sets
from antiphase.paper.catalog.fig3d import lipschitz, sampled
from antiphase.paper.contrasts import over_models, predict_ranks, predict_sum
from antiphase.paper.grid import VIT_NAMES, Grid, vits
from antiphase.paper.questions import Ask, Model
from antiphase.paper.series import Series, lambdas, line, log_of, mean_of
from antiphase.paper.study import FIGURE_ONLY, Answers, Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import data_names, depths

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # the whiskers, the box and the line of a box plot


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


def _measured(grid: Grid, data: str, depth: int) -> dict[str, tuple[Ask, ...]]:
    """Both models at a depth, trained on this data and shown images of it; one cell per seed."""
    ask, makers = lipschitz(grid), dict(zip(VIT_NAMES, (grid.vit, grid.diffvit)))
    return {name: tuple(ask(make(s, depth, data=data)) for s in grid.seeds(depth)) for name, make in makers.items()}


def shown(grid: Grid) -> list[tuple[str, int]]:
    """(data, depth): every depth on the main data, depth 1 on the data with more classes, which figure 2 trains anyway."""
    main, *more = data_sets(grid)
    return [*((main, depth) for depth in grid.depths), *((data, 1) for data in more)]


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for data, depth in shown(grid):
        cells = _measured(grid, data, depth)
        for k in range(depth):
            for name, of_seeds in cells.items():
                label = Label(name, data, f"depth {depth}", Tick.at("layer", k + 1))
                table += box_lines(label, Series(of_seeds, mean_of("max", k)))
        for k in range(depth):
            label = Label("DiffViT", data, f"depth {depth}", Tick.at("layer", k + 1))
            table.append(lambda_line(label, [cell.of for cell in cells["DiffViT"]], k))
    return [*table, _ranked(grid)] if max(grid.depths) > 2 else table


def lambda_line(label: Label, models: Sequence[Model], layer: int | None, reading: str = "lambda") -> Line:
    """lambda of a layer (None: mean over layers) after training, mean over seeds: a number of the model, so there are no images
    to count."""

    def read(answers: Answers) -> dict[str, Any]:
        chosen = slice(layer, None if layer is None else layer + 1)
        final = [float(np.mean([each["lambda"] for each in answers(model)["lambda"][chosen]])) for model in models]
        spread = f"from {min(final):.3f} to {max(final):.3f} over seeds" if len(final) > 1 else ""
        return {"value": float(np.mean(final)), "seeds": len(final), "note": spread}

    return Line(label=label, reading=reading, cells=tuple(models), read=read, unit="")


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
        for q in QUANTILES
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
            says = "how widely values spread" if name.startswith("spread") else "later layers"
            listed.append(predict_sum("K20", name, grid.data, reading, groups, unit="", says=says))
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
        title=lambda grid: (
            f"Figure 4: local Lipschitz of the maps layer by layer, {depths(grid.depths)}, {data_names(data_sets(grid))}"
        ),
        question="Is L largest where lambda is large, lower in later layers, and wider spread in the DiffViT?",
        minutes=118.2,
        lines=lines,
        predictions=predictions,
    ),
)
