"""Table 3: adversarial training of the DiffViT."""

from __future__ import annotations

from antiphase.config import Budget
from antiphase.measures.seed_intervals import difference
from antiphase.paper.contrasts import at_least, predict
from antiphase.paper.grid import Grid
from antiphase.paper.questions import Ask, Train
from antiphase.paper.series import ALIKE, ASR, Series, Success, line, trained_lines
from antiphase.paper.study import Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import budgets, data_name

PRINTED = {  # accuracy, then attack success at 0.25, 0.5 and 1 (/255), by the place of the training budget; None: vanilla
    None: (0.8700, 0.3310, 0.6367, 0.8498),
    0: (0.9518, 0.2537, 0.6434, 0.8824),
    1: (0.8931, 0.1787, 0.4440, 0.7676),
    2: (0.7384, 0.0982, 0.2089, 0.4302),
}


def _budgets(grid: Grid) -> tuple[Budget, ...]:
    """0.25, 0.5 and 1 (/255), or what the smoke scale has in their place: to train with and to attack with."""
    return grid.eps[:3]


def _ways(grid: Grid) -> list[str]:
    return ["fine-tuned", *(["from scratch"] if grid.s.adv_from_scratch else [])]


def _models(grid: Grid, place: int | None, way: str) -> list[Train]:
    vanilla = [grid.diffvit(seed) for seed in grid.seeds()]
    if place is None:
        return vanilla
    eps = _budgets(grid)[place]
    if way == "from scratch":
        return [grid.diffvit(seed, adv_eps=eps) for seed in grid.seeds()]
    epochs = grid.s.adv_epochs
    return [grid.diffvit(m.training.seed, adv_eps=eps, epochs=epochs, start=m) for m in vanilla]


def _variants(grid: Grid) -> list[tuple[int | None, str]]:
    return [(None, "vanilla"), *((place, way) for way in _ways(grid) for place in range(3))]


def _attacked(grid: Grid, place: int | None, way: str, eps: Budget) -> tuple[Ask, ...]:
    return tuple(grid.under_attack(model, grid.pgd(eps)) for model in _models(grid, place, way))


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for place, way in _variants(grid):
        name = ("vanilla",) if place is None else (f"trained at {_budgets(grid)[place]}", way)
        printed = [grid.printed(p) if way != "from scratch" else None for p in PRINTED[place]]
        table += trained_lines(Label(*name), _models(grid, place, way), printed[0])
        for reading in ASR:
            for k, eps in enumerate(_budgets(grid)):
                series = Series(_attacked(grid, place, way, eps), Success(reading))
                reference = printed[k + 1] if reading == "asr_change" else None
                table.append(line(Label(*name, Tick.eps(eps, "attacked at")), series, reading, reference=reference))
    return table


def predictions(grid: Grid) -> list[Prediction]:
    """K12 in its two halves: at its own budget each fine-tuned model falls less often than the vanilla one, at the small ones
    without losing two points of accuracy; beyond 0.5/255 accuracy is lost."""
    listed: list[Prediction] = []
    budgets = _budgets(grid)
    halves = ("lowers success without harming accuracy", "costs accuracy beyond the second budget")
    for reading in ASR:

        def accuracy(place: int | None) -> Series:
            return Series(_attacked(grid, place, "fine-tuned", budgets[2]), Success("accuracy"))

        for place, eps in enumerate(budgets):
            pair = [Series(_attacked(grid, p, "fine-tuned", eps), Success(reading)) for p in (None, place)]
            name = f"ASR vanilla - trained at {eps}, attacked at {eps}"
            listed.append(predict("K12", name, halves[0], reading, pair, difference, says="success"))
        for place, eps in enumerate(budgets[:2]):
            name = f"accuracy trained at {eps} - vanilla + {100 * ALIKE:.0f} points"
            kept = [accuracy(place), accuracy(None)]
            listed.append(
                predict("K12", name, halves[0], reading, kept, at_least, threshold=True, says="accuracy kept")
            )
        name = f"accuracy vanilla - trained at {budgets[2]}"
        listed.append(
            predict("K12", name, halves[1], reading, [accuracy(None), accuracy(2)], difference, says="accuracy lost")
        )
    return listed


STUDIES = (
    Study(
        name="table3",
        claims=("K12",),
        title=lambda grid: (
            f"Table 3: adversarial training of a DiffViT of depth 1 on {data_name(grid.data)} at {budgets(_budgets(grid))}"
        ),
        question="What does adversarial training at 0.25, 0.5 and 1/255 buy at each budget, and what does it cost in accuracy?",
        minutes=85.0,
        lines=lines,
        predictions=predictions,
    ),
)
