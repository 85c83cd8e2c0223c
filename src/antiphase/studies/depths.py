"""Both models at every depth of a scale: cells, lines and the depth at which they change places. No torch."""

from __future__ import annotations

from collections.abc import Callable

from antiphase.measures.crossover import crossover
from antiphase.studies.plan import Cell, Train
from antiphase.studies.questions import Attack, Attacked, OfImages
from antiphase.studies.setting import Setting
from antiphase.studies.sides import Side, difference_line, line, pair, success, trained_lines
from antiphase.studies.study import FIGURE_ONLY, Found, Line, Missing

NAMES = ("ViT", "DiffViT")
Ask = Callable[[Train], OfImages]


def twins(setting: Setting, depth: int, ask: Ask) -> dict[str, tuple[OfImages, ...]]:
    """What is asked of both models at a depth, a seed each."""
    seeds = setting.seeds(depth)
    models = {"ViT": [setting.vit(s, depth) for s in seeds], "DiffViT": [setting.diffvit(s, depth) for s in seeds]}
    return {name: tuple(map(ask, each)) for name, each in models.items()}


def under(setting: Setting, attack: Attack, n: int | None = None) -> Ask:
    def ask(of: Train) -> Attacked:
        return setting.attacked(of, attack, n)

    return ask


def every(setting: Setting, asks: list[Ask]) -> list[Cell]:
    return [
        cell
        for depth in setting.s.depths
        for ask in asks
        for cells in twins(setting, depth, ask).values()
        for cell in cells
    ]


def sides(setting: Setting, depth: int, ask: Ask, reading: str) -> dict[str, Side]:
    return {name: Side(cells, success(reading)) for name, cells in twins(setting, depth, ask).items()}


def success_lines(
    setting: Setting,
    found: Found,
    asked: dict[str, Ask],
    readings: tuple[str, ...],
    reference: str | None = FIGURE_ONLY,
) -> list[Line]:
    """Each model at each depth, their difference, and the depth at which they change places."""
    table: list[Line] = []
    for label, ask in asked.items():
        for reading in readings:
            for depth in setting.s.depths:
                both = sides(setting, depth, ask, reading)
                told = reference if reading == readings[0] else None
                for name, side in both.items():
                    table.append(line(found, f"{name}, depth {depth}, {label}", side, reading, reference=told))
                apart = f"DiffViT - ViT, depth {depth}, {label}"
                table.append(difference_line(found, apart, both["DiffViT"], both["ViT"], reading))
            by_depth = [sides(setting, depth, ask, reading) for depth in setting.s.depths]
            pairs = [(both["DiffViT"], both["ViT"]) for both in by_depth]
            table.append(crossover_line(setting, found, f"crossover depth, {label}", pairs, reading))
    return table


def crossover_line(setting: Setting, found: Found, label: str, pairs: list[tuple[Side, Side]], reading: str) -> Line:
    """D* of Corollary 1 as it is seen: interpolated in log depth, never extrapolated."""
    try:
        got = crossover(setting.s.depths, [(a.arm(found), b.arm(found)) for a, b in pairs])
    except Missing:
        return Line(label=label, reading=reading, unit="", note="not run yet")
    note = (
        f"90 % interval; {got['sign_changes']} changes of sign; no crossover in {100 * got['none']:.0f} % of replicates"
    )
    value = {"value": got["median"], "interval": got["interval"]}
    shown = note if value["value"] is not None else f"none among these depths; {note}"
    return Line(label=label, reading=reading, **pair(value), unit="", note=shown)


def accuracies(setting: Setting, found: Found) -> list[Line]:
    return [
        row
        for depth in setting.s.depths
        for name, make in (("ViT", setting.vit), ("DiffViT", setting.diffvit))
        for row in trained_lines(found, f"{name}, depth {depth}", [make(s, depth) for s in setting.seeds(depth)])
    ]
