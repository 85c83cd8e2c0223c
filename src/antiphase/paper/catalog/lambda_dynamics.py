"""lambda of every layer over the epochs and seeds of training."""

from __future__ import annotations

import numpy as np

from antiphase.paper.grid import Grid
from antiphase.paper.study import Answers, Label, Line, Study, TableRow, Tick


def lines(grid: Grid) -> list[Line]:
    """After the first epoch, half of them and all of them; every epoch is in the rows of the ledger."""
    return [_at_depth(grid, depth) for depth in grid.depths]


def _at_depth(grid: Grid, depth: int) -> Line:
    models = tuple(grid.diffvit(seed, depth) for seed in grid.seeds(depth))

    def read(answers: Answers) -> list[TableRow]:
        logs = [answers(model)["log"] for model in models]
        epochs, table = len(logs[0]), []
        for place, layer in enumerate(logs[0][0]["lambda"], start=1):
            for epoch in sorted({1, (epochs + 1) // 2, epochs}):
                values = [float(log[epoch - 1]["lambda"][layer]) for log in logs]
                label = Label(f"depth {depth}", f"layer {place}", Tick.at("epoch", epoch))
                spread = f"from {min(values):.3f} to {max(values):.3f} over seeds" if len(values) > 1 else ""
                reading, mean = "lambda, from 0.8 on average", float(np.mean(values))
                table.append(TableRow.about(label, reading, value=mean, seeds=len(values), unit="", note=spread))
        return table

    return Line(label=Label(f"depth {depth}"), reading="lambda", cells=models, read=read, unit="")


STUDIES = (
    Study(
        name="lambda-dynamics",
        title="lambda per layer over epochs and seeds",
        question="Where does training take lambda, layer by layer, and does it leave (0, 1)?",
        minutes=53.3,
        lines=lines,
    ),
)
