"""Figure 3c: the L2 perturbation that Carlini-Wagner needs, against depth."""

from __future__ import annotations

from antiphase.measures.bootstrap import log_ratio
from antiphase.paper.contrasts import Side, contrast, distance, line, success
from antiphase.paper.grid import AskVit, Setting, crossover_line, every, twins, vits_under
from antiphase.paper.study import FIGURE_ONLY, Found, Line, Prediction, Study

QUANTILES = {"median": 0.5, "90 %": 0.9, "95 %": 0.95, "99 %": 0.99, "largest": 1.0}  # the largest is one outlier


def _cw(setting: Setting) -> AskVit:
    return vits_under(setting, setting.cw(), setting.s.cw_images)


def _distances(setting: Setting, depth: int, quantile: float) -> dict[str, Side]:
    return {name: Side(cells, distance, quantile) for name, cells in twins(setting, depth, _cw(setting)).items()}


def _cw_lines(setting: Setting, found: Found) -> list[Line]:
    table: list[Line] = []
    for depth in setting.s.depths:
        for label, quantile in QUANTILES.items():
            for name, side in _distances(setting, depth, quantile).items():
                told = FIGURE_ONLY if label == "largest" else None
                reading = f"CW l2, {label}"
                table.append(line(found, f"{name}, depth {depth}", side, reading, reference=told, unit=""))
        for name, cells in twins(setting, depth, _cw(setting)).items():
            side = Side(cells, success("asr_correct"))
            table.append(line(found, f"{name}, depth {depth}", side, "share of correct images that CW fools"))
    pairs = [(d["ViT"], d["DiffViT"]) for d in (_distances(setting, depth, 0.5) for depth in setting.s.depths)]
    return [*table, crossover_line(setting, found, "crossover depth, CW", pairs, "- median CW l2")]


def _cw_contrasts(setting: Setting) -> list[Prediction]:
    deep = setting.deepest
    grown = [_distances(setting, depth, 0.5)["DiffViT"] for depth in (deep, 1)]
    name = f"log of median CW l2 of DiffViT, depth {deep} / 1"
    return [contrast("K5", name, setting.data, "median CW l2", grown, log_ratio)]


STUDIES = (
    Study(
        name="fig3c",
        title="Figure 3c: the L2 perturbation that Carlini-Wagner needs, against depth",
        question="Does a deeper DiffViT need a larger perturbation?",
        minutes=29.5,
        priced=True,
        cells=lambda setting: every(setting, [_cw(setting)]),
        lines=_cw_lines,
        contrasts=_cw_contrasts,
    ),
)
