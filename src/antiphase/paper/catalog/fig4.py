"""Figure 4: the local Lipschitz estimate layer by layer."""

from __future__ import annotations

import numpy as np

from antiphase.measures.bootstrap import log_ratio, rank_correlation, ranked_alike
from antiphase.measures.stats import Array
from antiphase.paper.catalog.fig3d import lipschitz, sampled
from antiphase.paper.contrasts import Side, contrast, lambdas, line, log_of
from antiphase.paper.grid import VIT_NAMES, Setting, twins
from antiphase.paper.questions import Cell, OfImages
from antiphase.paper.study import FIGURE_ONLY, Found, Line, Missing, Prediction, Study


def _cells(setting: Setting) -> list[Cell]:
    asked = [cell for cells in twins(setting, setting.deepest, lipschitz(setting)).values() for cell in cells]
    return [*asked, *(setting.predicted(cell.of) for cell in asked if isinstance(cell, OfImages))]


def _moments(setting: Setting, name: str) -> list[Side]:
    """E[log L] and E[(log L)^2] of every layer in turn."""
    cells = twins(setting, setting.deepest, lipschitz(setting))[name]
    layers = range(setting.deepest)
    return [Side(cells, log_of("max", k, squared=squared)) for k in layers for squared in (False, True)]


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


def lines(setting: Setting, found: Found) -> list[Line]:
    table: list[Line] = []
    deep = setting.deepest
    for k in range(deep):
        for name, side in sampled(setting, deep, k).items():
            table += box_lines(found, f"{name}, depth {deep}, layer {k + 1}", side)
    cells = twins(setting, deep, lipschitz(setting))["DiffViT"]
    for k, side in enumerate(lambdas(cells, deep)):
        table.append(line(found, f"DiffViT, depth {deep}, layer {k + 1}", side, "lambda", unit=""))
    return [*table, _ranked(setting, found)] if deep > 2 else table


def _ranked(setting: Setting, found: Found) -> Line:
    """Do lambda and L rank the layers alike? Seed by seed, with the chance that layers in random order do so as well."""
    deep, shown = setting.deepest, {"label": "DiffViT", "reading": "Spearman of lambda and L over layers", "unit": ""}
    cells = twins(setting, deep, lipschitz(setting))["DiffViT"]
    try:
        sizes = np.array([sampled(setting, deep, k)["DiffViT"].arm(found).value for k in range(deep)])  # (L, S)
        values = np.array([side.arm(found).value for side in lambdas(cells, deep)])
    except Missing:
        return Line(**shown, note="not run yet")  # type: ignore[arg-type]
    tests = [ranked_alike(values[:, s], sizes[:, s]) for s in range(sizes.shape[1])]
    note = "permutation p by seed: " + ", ".join(f"{p:.2g} (rho {rho:.2f})" for rho, p in tests)
    return Line(**shown, value=float(np.mean([rho for rho, _ in tests])), seeds=len(tests), note=note)  # type: ignore[arg-type]


def box_lines(found: Found, label: str, side: Side) -> list[Line]:
    """The mean, and the box of a box plot."""
    boxes = [
        line(found, label, Side(side.cells, side.values, q), f"L-sample of maps, quantile {q}", unit="")
        for q in (0.25, 0.5, 0.75)
    ]
    return [line(found, label, side, "L-sample of maps", reference=FIGURE_ONLY, unit=""), *boxes]


def contrasts(setting: Setting) -> list[Prediction]:
    """K7: L and lambda rank the layers alike. K20: the last layer below the first; log L spreads wider than in the ViT, over
    images (the boxes) and over layers (the paper's words)."""
    deep, reading = setting.deepest, "L-sample"
    cells = twins(setting, deep, lipschitz(setting))["DiffViT"]
    by_layer = [sampled(setting, deep, k)["DiffViT"] for k in range(deep)]
    found = [
        contrast("K20", f"log L of {name}, layer 1 / {deep}", setting.data, reading, ends, log_ratio)
        for name in VIT_NAMES
        for ends in [[sampled(setting, deep, k)[name] for k in (0, deep - 1)]]
    ]
    moments = [*_moments(setting, "DiffViT"), *_moments(setting, "ViT")]
    found.append(contrast("K20", "spread of log L over images, DiffViT - ViT", setting.data, reading, moments, _wider))
    means = [*_moments(setting, "DiffViT")[::2], *_moments(setting, "ViT")[::2]]
    found.append(contrast("K20", "spread of log L over layers, DiffViT - ViT", setting.data, reading, means, _uneven))
    if deep > 2:  # of two layers a rank correlation says nothing
        sides = [*by_layer, *lambdas(cells, deep)]
        what = f"rank correlation of L and lambda over {deep} layers"
        found.append(contrast("K7", what, setting.data, reading, sides, rank_correlation))
    return found


STUDIES = (
    Study(
        name="fig4",
        title="Figure 4: local Lipschitz of the maps, layer by layer",
        question="Is L largest where lambda is large, lower in later layers, and wider spread in the DiffViT?",
        minutes=18.9,
        priced=True,
        cells=_cells,
        lines=lines,
        contrasts=contrasts,
    ),
)
