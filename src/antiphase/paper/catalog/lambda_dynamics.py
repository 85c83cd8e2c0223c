"""lambda of every layer over the epochs and seeds of training."""

from __future__ import annotations

import numpy as np

from antiphase.paper.grid import Setting
from antiphase.paper.questions import Cell, Train
from antiphase.paper.study import Found, Line, Missing, Study


def _models(setting: Setting, depth: int) -> list[Train]:
    return [setting.diffvit(seed, depth) for seed in setting.seeds(depth)]


def cells(setting: Setting) -> list[Cell]:
    return [model for depth in setting.s.depths for model in _models(setting, depth)]


def lines(setting: Setting, found: Found) -> list[Line]:
    """After the first epoch, half of them and all of them; every epoch is in the rows of the ledger."""
    table: list[Line] = []
    for depth in setting.s.depths:
        try:
            logs = [found(model)["log"] for model in _models(setting, depth)]
        except Missing:
            table.append(Line(label=f"depth {depth}", reading="lambda", unit="", note="not run yet"))
            continue
        epochs = len(logs[0])
        for layer in logs[0][0]["lambda"]:
            for epoch in sorted({1, (epochs + 1) // 2, epochs}):
                values = [float(log[epoch - 1]["lambda"][layer]) for log in logs]
                label = f"depth {depth}, {layer.removeprefix('model.').removeprefix('vit.')}, epoch {epoch}"
                spread = f"from {min(values):.3f} to {max(values):.3f} over seeds" if len(values) > 1 else ""
                shown = {"value": float(np.mean(values)), "seeds": len(values), "note": spread}
                table.append(Line(label=label, reading="lambda, from 0.8 on average", unit="", **shown))  # type: ignore[arg-type]
    return table


STUDIES = (
    Study(
        name="lambda-dynamics",
        title="lambda per layer over epochs and seeds",
        question="Where does training take lambda, layer by layer, and does it leave (0, 1)?",
        minutes=21.2,
        priced=True,
        cells=cells,
        lines=lines,
    ),
)
