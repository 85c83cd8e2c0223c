"""Table 2: Tiny ImageNet, depth 4."""

from __future__ import annotations

from antiphase.attacks.config import Attack
from antiphase.config import Budget
from antiphase.measures.seed_intervals import difference, difference_of_gaps
from antiphase.paper.contrasts import about_equal, predict
from antiphase.paper.grid import Grid
from antiphase.paper.series import ASR, Series, Success, difference_line, line, trained_lines
from antiphase.paper.study import Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import data_name, restarts

BUDGETS = ("4/255", "2/255", "1/255", "0.5/255")
WIDTHS = (8, 4, 2)
PRINTED = {
    "DiffViT": (0.6465, 0.4556, 0.1834, 0.6318, 0.3866, 0.2822, 0.2364),
    "ViT": (0.6139, 0.4072, 0.1498, 0.6490, 0.3857, 0.2309, 0.1866),
}


def _depth(grid: Grid) -> int:
    return 4 if 4 in grid.depths else max(grid.depths)


def _attacks(grid: Grid) -> dict[Tick, Attack]:
    """In the paper's order; at the smoke scale what the scale has in their place."""
    widths = WIDTHS if grid.scale != "smoke" else tuple(reversed(grid.s.patch_widths))
    budgets = [Budget(e) for e in BUDGETS] if grid.scale != "smoke" else list(reversed(grid.eps[1:]))
    patches: dict[Tick, Attack] = {Tick.patch(width): grid.patch(width) for width in widths}
    return {**patches, **{Tick.eps(eps): grid.pgd(eps) for eps in budgets}}


def _series(grid: Grid, attack: Attack, reading: str) -> dict[str, Series]:
    data, depth = grid.s.larger_images, _depth(grid)
    models = {"ViT": grid.vit, "DiffViT": grid.diffvit}
    n = 256 if grid.scale == "cpu" else None  # depth 4 and seven attacks: more would take over an hour
    return {
        name: Series(
            tuple(grid.under_attack(make(seed, depth, data=data), attack, n) for seed in grid.seeds(depth)),
            Success(reading),
        )
        for name, make in models.items()
    }


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    attacks = _attacks(grid)
    for name, series in _series(grid, next(iter(attacks.values())), "accuracy").items():
        table += trained_lines(Label(name), series.models)
    for place, (tick, attack) in enumerate(attacks.items()):
        for reading in ASR:
            both = _series(grid, attack, reading)
            for name, series in both.items():
                printed = PRINTED[name][place] if reading == "asr_change" and grid.scale != "smoke" else None
                table.append(line(Label(name, tick), series, reading, reference=printed))
            table.append(difference_line(Label("DiffViT - ViT", tick), both["DiffViT"], both["ViT"], reading))
    return table


def predictions(grid: Grid) -> list[Prediction]:
    """K18: above the ViT for every patch and up to 2/255, most so at 1/255, within two points at 4/255."""
    if grid.scale == "smoke":
        return []
    data, attacks = grid.s.larger_images, {tick.text: attack for tick, attack in _attacks(grid).items()}
    listed: list[Prediction] = []
    for reading in ASR:
        pairs = {label: _series(grid, attack, reading) for label, attack in attacks.items()}
        ends = {label: [both["DiffViT"], both["ViT"]] for label, both in pairs.items()}
        for label in attacks:
            if label != "eps 4/255":
                name = f"ASR of DiffViT - ViT, {label}"
                listed.append(
                    predict("K18", name, data, reading, ends[label], difference, says="patches and small budgets")
                )
        for label in ("eps 2/255", "eps 0.5/255"):
            name, series = f"gap at 1/255 - gap at {label[4:]}", [*ends["eps 1/255"], *ends[label]]
            listed.append(predict("K18", name, data, reading, series, difference_of_gaps, says="the peak at 1/255"))
        what = "ASR of DiffViT - ViT, eps 4/255"
        listed += about_equal("K18", what, data, reading, ends["eps 4/255"], says="4/255")
    return listed


STUDIES = (
    Study(
        name="table2",
        claims=("K18",),
        title=lambda grid: (
            f"Table 2: attack success on ViT and DiffViT of depth {_depth(grid)} on {data_name(grid.s.larger_images)}, "
            f"patches and PGD ({restarts(grid.s.pgd_restarts)})"
        ),
        question="Is the DiffViT easier to fool on Tiny ImageNet too, most at 1/255, and do both converge at 4/255?",
        minutes=106.0,
        lines=lines,
        predictions=predictions,
    ),
)
