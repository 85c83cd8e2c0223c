"""Figure 5: how often do the gradients of the two branches oppose each other?"""

from __future__ import annotations

from dataclasses import replace

from antiphase.measures.questions import AlignmentQuestion
from antiphase.measures.stats import Array
from antiphase.models.config import Softmax
from antiphase.paper.catalog.fig2 import data_sets
from antiphase.paper.catalog.fig4 import shown
from antiphase.paper.contrasts import predict
from antiphase.paper.grid import Grid
from antiphase.paper.questions import Ask, Train
from antiphase.paper.series import PAIRS, Series, line, mean_of, negative, stacked, undecided
from antiphase.paper.study import FIGURE_ONLY, Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import data_names, depths

READINGS = ("R1", "R3", "R8")  # Jacobians per head, finite changes, the layer isolated
DECIDING = ("R1", "R3")  # primary and co-primary


def alignment_of(grid: Grid, models: list[Train], reading: str) -> tuple[Ask, ...]:
    """DiffViTs on images of their own data, each beside the ViT of its seed, depth and training."""
    question = AlignmentQuestion(reading=reading, probes=grid.s.probes, max_probes=grid.s.max_probes)
    return tuple(
        Ask(of=model, base=_twin(model), images=grid.test(grid.s.measure_images, model.data), question=question)
        for model in models
    )


def _twin(model: Train) -> Train:
    """The ViT that differs from a DiffViT in its attention alone."""
    return replace(model, model=replace(model.model, attention=(Softmax(),), init="official"))


def alignment(grid: Grid, reading: str, depth: int = 1, data: str | None = None) -> tuple[Ask, ...]:
    return alignment_of(grid, [grid.diffvit(seed, depth, data=data) for seed in grid.seeds(depth)], reading)


def lines(grid: Grid) -> list[Line]:
    """Every layer at every depth, and at depth 1 on the data with more classes."""
    return [row for data, depth in shown(grid) for k in range(depth) for row in _layer_lines(grid, data, depth, k)]


def _layer_lines(grid: Grid, data: str, depth: int, layer: int) -> list[Line]:
    shares = [(f"{reading}: share of cos < 0", reading, negative) for reading in READINGS]
    shares += [("R2: share of cos < 0, heads together", "R1", stacked)]
    shares += [("R1: share of undecided signs, left out", "R1", undecided)]
    at = (data, f"depth {depth}", Tick.at("layer", layer + 1))
    table = [
        line(
            _label(at, pairs),
            Series(alignment(grid, measured, depth, data), values(pairs, layer)),
            reading,
            reference=FIGURE_ONLY if pairs == "own" and values is not undecided else None,
        )
        for reading, measured, values in shares
        for pairs in PAIRS
    ]
    for pairs in PAIRS:
        series = Series(alignment(grid, "R1", depth, data), mean_of("cos", layer, pairs=pairs))
        table.append(line(_label(at, pairs), series, "R1: mean cos", unit=""))
    return table


def _label(at: tuple[str | Tick, ...], pairs: str) -> Label:
    return Label("DiffViT", *at, "" if pairs == "own" else f"control: {pairs}")


def opposition_lines(cells: tuple[Ask, ...], *at: str | Tick) -> list[Line]:
    """Of answers under R1: how often the first layer's branches are opposed, and how strongly, beside the controls."""
    table = []
    for pairs in PAIRS:
        table.append(line(_label(at, pairs), Series(cells, negative(pairs)), "R1: share of cos < 0"))
        table.append(line(_label(at, pairs), Series(cells, mean_of("cos", 0, pairs=pairs)), "R1: mean cos", unit=""))
    return table


def _over_half(share: Array) -> Array:
    return share - 0.5


def predictions(grid: Grid) -> list[Prediction]:
    """K8: more than half of the (image, head) pairs of a depth-1 DiffViT are opposed."""
    return [
        predict(
            "K8",
            f"share of cos < 0 ({reading}) - 50 %, depth 1",
            "DiffViT",
            reading,
            [Series(alignment(grid, reading), negative("own"))],
            _over_half,
            says="most inputs, depth 1",
        )
        for reading in DECIDING
    ]


STUDIES = (
    Study(
        name="fig5",
        claims=("K8",),
        title=lambda grid: (
            f"Figure 5: frequency of negative gradient alignment, {depths(grid.depths)}, {data_names(data_sets(grid))}"
        ),
        question="Do the input gradients of A1 and A2 oppose each other on more than half of the images, beyond the controls?",
        minutes=143.4,
        lines=lines,
        predictions=predictions,
    ),
)
