"""Figure 2: is the differential twin easier to fool? (a, b) perturbed pixels, (c, d) patches; (a, c) ViT, (b, d) CLIP."""

from __future__ import annotations

from collections.abc import Callable

from antiphase.attacks.config import Attack
from antiphase.measures.seed_intervals import difference, difference_of_gaps
from antiphase.paper.contrasts import predict
from antiphase.paper.grid import VIT_NAMES, Grid
from antiphase.paper.questions import Ask
from antiphase.paper.series import ASR, Series, Success, difference_line, line, trained_lines
from antiphase.paper.study import FIGURE_ONLY, Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import budgets, data_names, listed, restarts

Attacks = dict[str | Tick, Attack]  # by what a table calls them
Make = Callable[[Grid], Attacks]


def pixels(grid: Grid) -> Attacks:
    return {Tick.eps(eps): grid.pgd(eps) for eps in grid.eps}


def patches(grid: Grid) -> Attacks:
    return {Tick.patch(width): grid.patch(width) for width in grid.s.patch_widths}


def data_sets(grid: Grid) -> list[str]:
    more = grid.s.more_classes
    return [grid.data, *([more] if more not in (None, grid.data) else [])]


def twins(grid: Grid, data: str, attack: Attack) -> dict[str, tuple[Ask, ...]]:
    """The attack on both models, one cell per seed."""
    models = {
        name: [make(s, data=data) for s in grid.seeds()] for name, make in zip(VIT_NAMES, (grid.vit, grid.diffvit))
    }
    return {name: tuple(grid.under_attack(model, attack) for model in of_seeds) for name, of_seeds in models.items()}


def series(grid: Grid, data: str, attack: Attack, reading: str) -> dict[str, Series]:
    return {name: Series(cells, Success(reading)) for name, cells in twins(grid, data, attack).items()}


def gap(grid: Grid, data: str, attack: Attack, reading: str) -> list[Series]:
    """DiffViT first: a difference of the two is above 0 where it is easier to fool."""
    both = series(grid, data, attack, reading)
    return [both["DiffViT"], both["ViT"]]


def variants(grid: Grid) -> Attacks:
    """What the paper leaves open about its PGD: away from which label, and with how many steps of which size."""
    away: Attacks = {f"eps {eps} away from the predicted label": grid.pgd(eps, label="predicted") for eps in grid.eps}
    corners = grid.pgd(grid.middle, steps=10, step_size=2 / 255)
    return {**away, f"eps {grid.middle}, torchattacks' 10 steps of 2/255": corners}


def _none(_: Grid) -> Attacks:
    return {}


def _lines(attacks: Make, besides: Make = _none) -> Callable[[Grid], list[Line]]:
    def lines(grid: Grid) -> list[Line]:
        table: list[Line] = []
        drawn = attacks(grid)
        for data in data_sets(grid):
            for name, cells in twins(grid, data, next(iter(drawn.values()))).items():
                table += trained_lines(Label(name, data), [cell.of for cell in cells])
            for what, attack in (drawn | besides(grid)).items():
                for reading in (*ASR, "robust_error"):
                    both = series(grid, data, attack, reading)
                    reference = FIGURE_ONLY if reading == "asr_change" and what in drawn else None
                    for name, one in both.items():
                        table.append(line(Label(name, data, what), one, reading, reference=reference))
                    apart = Label("DiffViT - ViT", data, what)
                    table.append(difference_line(apart, both["DiffViT"], both["ViT"], reading))
        return table

    return lines


def _easier_to_fool(attacks: Make, what: str) -> Callable[[Grid], list[Prediction]]:
    """K1: the DiffViT is easier to fool at every budget and width, on every data set."""

    def predictions(grid: Grid) -> list[Prediction]:
        return [
            predict(
                "K1",
                f"ASR of {Label('DiffViT - ViT', data, label)}",
                f"{data}, {what}",
                reading,
                gap(grid, data, attack, reading),
                difference,
            )
            for reading in ASR
            for data in data_sets(grid)
            for label, attack in attacks(grid).items()
        ]

    return predictions


def _narrows(grid: Grid) -> list[Prediction]:
    """E1: the gap is smaller where there are more classes, at every budget."""
    few, *more = data_sets(grid)
    return [
        predict(
            "E1",
            f"gap on {few} - gap on {many}, {Label(label)}",
            f"{few} and {many}",
            reading,
            [one for data in (few, many) for one in gap(grid, data, attack, reading)],
            difference_of_gaps,
        )
        for reading in ASR
        for many in more
        for label, attack in pixels(grid).items()
    ]


STUDIES = (
    Study(
        name="fig2a",
        claims=("K1", "E1"),
        title=lambda grid: (
            f"Figure 2a: PGD at {budgets(grid.eps)} ({restarts(grid.s.pgd_restarts)}) on ViT and DiffViT of depth 1, "
            f"{data_names(data_sets(grid))}"
        ),
        question="Is a depth-1 DiffViT easier to fool than its ViT at every budget, and does the gap narrow with more classes?",
        minutes=64.2,
        lines=_lines(pixels, variants),
        predictions=lambda grid: [*_easier_to_fool(pixels, "pixels")(grid), *_narrows(grid)],
    ),
    Study(
        name="fig2c",
        claims=("K1",),
        title=lambda grid: (
            f"Figure 2c: patches {listed(grid.s.patch_widths)} pixels wide on ViT and DiffViT of depth 1, "
            f"{data_names(data_sets(grid))}"
        ),
        question="Is a depth-1 DiffViT easier to fool than its ViT by a patch of every width?",
        minutes=21.3,
        lines=_lines(patches),
        predictions=_easier_to_fool(patches, "patches"),
    ),
)
