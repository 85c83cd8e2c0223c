"""Figure 5: how often do the gradients of the two branches oppose each other?"""

from __future__ import annotations

from antiphase.measures.questions import AlignmentQuestion
from antiphase.measures.stats import Array
from antiphase.paper.contrasts import PAIRS, Series, line, mean_of, negative, predict, stacked, undecided
from antiphase.paper.grid import Grid
from antiphase.paper.questions import Ask, Train
from antiphase.paper.study import FIGURE_ONLY, Label, Line, Prediction, Study

READINGS = ("R1", "R3", "R8")  # Jacobians per head, finite changes, the layer isolated
DECIDING = ("R1", "R3")  # primary and co-primary


def alignment_of(grid: Grid, models: list[Train], reading: str) -> tuple[Ask, ...]:
    """Depth-1 DiffViTs, each beside the ViT of its seed."""
    question = AlignmentQuestion(reading=reading, probes=grid.s.probes, max_probes=grid.s.max_probes)
    images = grid.test(grid.s.measure_images)
    return tuple(
        Ask(of=model, base=grid.vit(model.training.seed), images=images, question=question) for model in models
    )


def alignment(grid: Grid, reading: str) -> tuple[Ask, ...]:
    return alignment_of(grid, [grid.diffvit(seed) for seed in grid.seeds()], reading)


def lines(grid: Grid) -> list[Line]:
    shown = [(f"{reading}: share of cos < 0", reading, negative) for reading in READINGS]
    shown += [("R2: share of cos < 0, heads together", "R1", stacked)]
    shown += [("R1: share of undecided signs, left out", "R1", undecided)]
    shares = [
        line(
            _label(pairs),
            Series(alignment(grid, measured), values(pairs)),
            reading,
            reference=FIGURE_ONLY if pairs == "own" and values is not undecided else None,
        )
        for reading, measured, values in shown
        for pairs in PAIRS
    ]
    cells = alignment(grid, "R1")
    means = [
        line(_label(pairs), Series(cells, mean_of("cos", 0, pairs=pairs)), "R1: mean cos", unit="") for pairs in PAIRS
    ]
    return [*shares, *means]


def _label(pairs: str) -> Label:
    return Label("DiffViT", "layer 1") if pairs == "own" else Label(f"control: {pairs}")


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
        )
        for reading in DECIDING
    ]


STUDIES = (
    Study(
        name="fig5",
        claims=("K8",),
        title="Figure 5: frequency of negative gradient alignment",
        question="Do the input gradients of A1 and A2 oppose each other on more than half of the images, beyond the controls?",
        minutes=3.0,
        lines=lines,
        predictions=predictions,
    ),
)
