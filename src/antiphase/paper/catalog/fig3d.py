"""Figure 3d: the local Lipschitz estimate of the maps, against depth."""

from __future__ import annotations

import numpy as np

from antiphase.measures.bootstrap import log_ratio
from antiphase.paper.contrasts import Side, contrast, line, mean_of
from antiphase.paper.grid import AskVit, Setting, every, twins
from antiphase.paper.questions import Cell, Lipschitz, OfImages, Train
from antiphase.paper.study import FIGURE_ONLY, Found, Line, Prediction, Study


def lipschitz(setting: Setting, estimator: str = "sample") -> AskVit:
    n = setting.s.measure_images if estimator == "sample" else setting.s.sharp_images

    def ask(of: Train) -> Lipschitz:
        images = setting.test(n)
        return Lipschitz(of=of, images=images, draws=setting.s.lipschitz_draws, estimator=estimator)  # type: ignore[arg-type]

    return ask


def sampled(setting: Setting, depth: int, layer: int | None = None) -> dict[str, Side]:
    """L-sample of one layer, or its mean over the layers."""
    values = mean_of("max", layer)
    return {name: Side(cells, values) for name, cells in twins(setting, depth, lipschitz(setting)).items()}


def _sharp(setting: Setting, depth: int, column: str) -> dict[str, Side]:
    asked = twins(setting, depth, lipschitz(setting, "sharp"))
    return {name: Side(cells, mean_of(column)) for name, cells in asked.items()}


def _per_head(name: str, setting: Setting) -> float:
    """Twins differ in their number of heads: the Frobenius norm over heads is divided by the root of it."""
    return float(np.sqrt(setting.s.heads / (1 if name == "ViT" else 2)))


def _lipschitz_lines(setting: Setting, found: Found) -> list[Line]:
    table: list[Line] = []
    for depth in setting.s.depths:
        for name, side in sampled(setting, depth).items():
            label, heads = f"{name}, depth {depth}", _per_head(name, setting)
            row = line(found, label, side, "L-sample of maps, mean over layers", reference=FIGURE_ONLY, unit="")
            table.append(row)
            if row.value is not None and row.interval is not None:
                ends = row.interval[0] / heads, row.interval[1] / heads
                scaled = {"value": row.value / heads, "interval": ends, "n": row.n, "seeds": row.seeds}
                table.append(Line(label=label, reading="the same per head", unit="", **scaled))  # type: ignore[arg-type]
        for column in ("power", "ascent"):
            for name, side in _sharp(setting, depth, column).items():
                reading = f"L-{column} of maps, mean over layers"
                table.append(line(found, f"{name}, depth {depth}", side, reading, unit=""))
    return table


def _lipschitz_cells(setting: Setting) -> list[Cell]:
    measured = every(setting, [lipschitz(setting), lipschitz(setting, "sharp")])
    models = [cell.of for cell in every(setting, [lipschitz(setting)]) if isinstance(cell, OfImages)]
    return [*measured, *(setting.predicted(model) for model in models)]


def _lipschitz_contrasts(setting: Setting) -> list[Prediction]:
    """K6: L grows from depth 1 to the deepest in the DiffViT, and is larger than the ViT's at every depth."""
    deep, reading = setting.deepest, "L-sample"
    grows = [sampled(setting, depth)["DiffViT"] for depth in (deep, 1)]
    found = [contrast("K6", f"log L of DiffViT, depth {deep} / 1", setting.data, reading, grows, log_ratio)]
    for depth in (d for d in setting.s.depths if d <= deep):
        both = sampled(setting, depth)
        larger = [both["DiffViT"], both["ViT"]]
        found.append(contrast("K6", f"log L of DiffViT / ViT, depth {depth}", setting.data, reading, larger, log_ratio))
    return found


STUDIES = (
    Study(
        name="fig3d",
        title="Figure 3d: local Lipschitz of the maps against depth",
        question="Does the local Lipschitz estimate rise with depth, and is it larger for the DiffViT?",
        minutes=35.2,
        priced=True,
        cells=_lipschitz_cells,
        lines=_lipschitz_lines,
        contrasts=_lipschitz_contrasts,
    ),
)
