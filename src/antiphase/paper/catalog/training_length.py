"""X4: the recipe overfits. What of accuracy, attack success and opposition depends on how long was trained?"""

from __future__ import annotations

from dataclasses import replace

from antiphase.attacks.config import Attack
from antiphase.paper.catalog.fig2 import pixels
from antiphase.paper.catalog.fig4 import lambda_line
from antiphase.paper.catalog.fig5 import alignment_of, opposition_lines
from antiphase.paper.catalog.table1 import LAMBDAS, PEAK, seeds_of
from antiphase.paper.grid import VIT_NAMES, Grid, attack_on
from antiphase.paper.questions import Ask, Train
from antiphase.paper.series import ASR, Series, Success, difference_line, line, trained_lines
from antiphase.paper.study import Answers, Label, Line, Study, TableRow, Tick


def epochs(grid: Grid) -> tuple[int | None, ...]:
    """After which models are looked at; None: after the last."""
    return (*grid.s.keep_epochs, None)


def after(models: list[Train], epoch: int | None) -> list[Train]:
    return [replace(model, after=epoch) for model in models]


def _twins(grid: Grid, epoch: int | None) -> dict[str, list[Train]]:
    return {
        name: after([make(seed) for seed in grid.seeds()], epoch)
        for name, make in zip(VIT_NAMES, (grid.vit, grid.diffvit))
    }


def _tested(grid: Grid, models: list[Train], attack: Attack) -> tuple[Ask, ...]:
    """No more test images than measures take: every model is attacked once per epoch that is looked at."""
    return tuple(grid.under_attack(model, attack, grid.s.measure_images) for model in models)


def _learned(grid: Grid, models: list[Train], attack: Attack) -> tuple[Ask, ...]:
    return tuple(attack_on(model, grid.learned(model), attack) for model in models)


def _lambdas(grid: Grid, lam: float, epoch: int | None) -> list[Train]:
    return after([grid.diffvit(seed, lambda_init=lam) for seed in range(seeds_of(grid, lam))], epoch)


def lines(grid: Grid) -> list[Line]:
    table = [_best_epoch(name, models) for name, models in _twins(grid, None).items()]
    for epoch in epochs(grid):
        tick = Tick.at("epoch", epoch or grid.vit(0).training.epochs)
        table += [*_twin_lines(grid, epoch, tick), *_lambda_lines(grid, epoch, tick)]
    return table


def _best_epoch(name: str, models: list[Train]) -> Line:
    """Test accuracy after the epoch where it is best, and accuracy on training images after the same."""

    def read(answers: Answers) -> list[TableRow]:
        logs = [answers(model)["log"] for model in models]
        best = [max(log, key=lambda epoch: epoch["test_accuracy"]) for log in logs]
        by_seed = ", ".join(str(epoch["epoch"]) for epoch in best)
        rows = []
        for reading, key in (("test_accuracy", "test_accuracy"), ("train_accuracy", "fit_accuracy")):
            if key in best[0]:
                mean = sum(float(epoch[key]) for epoch in best) / len(best)
                label, note = Label(name, "best epoch"), f"the epoch with the best test accuracy: {by_seed}, by seed"
                rows.append(TableRow.about(label, reading, value=mean, seeds=len(best), note=note))
        return rows

    return Line(label=Label(name, "best epoch"), reading="test_accuracy", cells=tuple(models), read=read)


def _twin_lines(grid: Grid, epoch: int | None, tick: Tick) -> list[Line]:
    """ViT and DiffViT: every budget, on test images and at the middle one on train images; opposition of branches."""
    both, table = _twins(grid, epoch), []
    for name, models in both.items():
        table += trained_lines(Label(name, tick), list(models))
    for eps, attack in pixels(grid).items():
        where = eps.text if isinstance(eps, Tick) else eps
        cells = {name: _tested(grid, models, attack) for name, models in both.items()}
        table += _compared(tick, where, cells)
    attack = grid.pgd(grid.middle)
    learned = {name: _learned(grid, models, attack) for name, models in both.items()}
    table += _compared(tick, f"eps {grid.middle}, on train images", learned, paired=False)
    return [*table, *opposition_lines(alignment_of(grid, both["DiffViT"], "R1"), tick)]


def _compared(tick: Tick, where: str, cells: dict[str, tuple[Ask, ...]], *, paired: bool = True) -> list[Line]:
    table = []
    for reading in ASR:
        of = {name: Series(asked, Success(reading)) for name, asked in cells.items()}
        table += [line(Label(name, tick, where), series, reading) for name, series in of.items()]
        if paired:
            table.append(difference_line(Label("DiffViT - ViT", tick, where), of["DiffViT"], of["ViT"], reading))
    return table


def _lambda_lines(grid: Grid, epoch: int | None, tick: Tick) -> list[Line]:
    """Table 1 after this epoch, the models of lambda_init 0.8 among them."""
    attack, table = grid.pgd(grid.middle), []
    for lam in LAMBDAS:
        models, label = _lambdas(grid, lam, epoch), Label(f"lambda_init {lam}", tick)
        if lam != PEAK:
            table += trained_lines(label, list(models))
            tested, learned = _tested(grid, models, attack), _learned(grid, models, attack)
            for reading in ASR:
                table.append(line(label, Series(tested, Success(reading)), reading))
            table.append(line(label, Series(learned, Success("asr_change")), "asr_change, on train images"))
        table.append(lambda_line(label, list(models), 0, "lambda after training"))
    return table


STUDIES = (
    Study(
        name="training-length",
        aliases=("x4",),
        title=lambda grid: f"X4: after {_listed(grid)} epochs of the same training, depth 1",
        question="What of accuracy, attack success and opposition of branches depends on how long was trained?",
        minutes=40.8,
        lines=lines,
    ),
)


def _listed(grid: Grid) -> str:
    last = grid.vit(0).training.epochs
    return ", ".join(map(str, grid.s.keep_epochs)) + (" and " if grid.s.keep_epochs else "") + str(last)
