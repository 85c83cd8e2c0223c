"""X7: remedies. Which change to differential attention, or to its training, removes the fragility without losing accuracy?

In two stages. **The look**: every recipe is trained from the first three seeds and attacked on images of the look's own
(`LOOK_IMAGES`). A rule that stands in paper/selection.py ranks the remedies. **The confirmation**: the first five, and the same
training of a softmax ViT, are trained from the other seeds and attacked on the usual images. Who takes part in the
confirmation is decided by rows, by a rule that was written before any of them; seeds and attacked images of the two stages
differ, so luck in the look biases no attack success of the confirmation. (Test accuracy is measured on all test images in both
stages, so there only the seeds differ; test images are the same for all models, and accuracy only admits, it does not rank.)

The selection effect, which this design removes: with twelve recipes that are all alike and a standard error of s, the best of
twelve looks 1.6 s better than it is (the mean of the largest of twelve normal draws). Three seeds and 512 images give s of about
two points (the plan of docs/statistics.md), so a look alone would credit a recipe that does nothing with three and a half.

E7 is decided by the first place alone: one recipe, one test of each criterion, nothing to correct for. The other four places are
further readings, each with a verdict of its own, as candidates to be confirmed elsewhere. A candidate succeeds if
- attack success of correct images at .5, 1 and 2/255 is not above the plain softmax ViT's: by less than a point, by its interval;
- AutoAttack confirms that at 1/255; an answer with a red flag of masked gradients counts every image as fooled, in the look too;
- test accuracy is less than a point below the plain DiffViT's, by its interval;
- a training step costs at most 1.3 of the plain DiffViT's.

The last two are premises: they can refute, and a cheap and accurate recipe that is as fragile as ever is not partly a remedy. A
further reading holds each place against the same training of a ViT, since what makes any model harder to fool is no remedy of
differential attention. Controls are no candidates for the same reason. They are trained on both models alike.
What decides how much: at `cpu` the confirmation has seven seeds, enough to show a recipe four points *less* fragile than the ViT
(one exactly as fragile passes in one of twelve cases by the plan); AutoAttack on 64 images cannot decide (`study show remedies
--scale cpu` prints the power), so E7 is at best partly supported there; three seeds of the look alone would decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from antiphase.attacks.config import Attack
from antiphase.config import Budget
from antiphase.measures.questions import MixedChangeQuestion, PredictionQuestion, StepCostQuestion
from antiphase.measures.seed_intervals import estimated
from antiphase.measures.stats import Array
from antiphase.models.config import (
    Attention,
    BoundedDifferential,
    Differential,
    DifferentialV2,
    Dint,
    GroupedDifferential,
    LowRankDifferential,
)
from antiphase.paper.catalog.fig2 import data_sets
from antiphase.paper.contrasts import predict
from antiphase.paper.grid import VIT_NAMES, Grid, attack_on, trained
from antiphase.paper.questions import Ask, Chosen, Images, Model, Ranking, Recipe, Train
from antiphase.paper.selection import MARGIN, MOST_COST, SUCCESS, log_cost
from antiphase.paper.series import Series, Success, Unmasked, Values, line, mean_of, shown, trained_lines
from antiphase.paper.study import Answers, Label, Line, Prediction, Study, Tick
from antiphase.paper.titles import budgets, data_name
from antiphase.training.config import Penalty

LOOK, PLACES = 3, 5  # seeds of the first look; places of its ranking that are confirmed
LOOK_IMAGES = 1  # seed of the subset that the look attacks; the confirmation has 0, as all other studies

OF_BRANCHES = {
    "log-amplification": Penalty(term="amplification", weight=0.1),
    "hinge on kappa": Penalty(term="kappa", weight=0.1),
    "alignment": Penalty(term="alignment", weight=0.1),
}
OF_ANY = {
    "softmax Jacobian": Penalty(term="jasmin", weight=0.1),
    "change under noise": Penalty(term="noise-change", weight=0.1),
    "change under attack": Penalty(term="attack-change", weight=0.1),
}
NOISE = "noise augmentation"
GENERIC: dict[str, dict[str, Any]] = {
    "input gradient": {"penalty": Penalty(term="gradient", weight=0.1, eps=Budget("1/255"), share=0.25)},
    NOISE: {"noise": 8 / 255},
    "label smoothing": {"label_smoothing": 0.1},
    "weight decay": {"weight_decay": 1e-4},
}
EARLY = "early stopping"
RECIPE, ELSEWHERE = "recipe", "elsewhere"
DEEPER = 4  # layers of the models that the first place is looked at in as well


def structures(grid: Grid) -> dict[str, Attention]:
    """One noise map for all heads of a layer is the fewest there can be."""
    return {
        "V2": DifferentialV2(),
        "no head norm": Differential(head_norm="none", out_scale="none"),
        "DINT": Dint(),
        "lambda below 0.5": BoundedDifferential(lambda_init=0.25, out_scale="fixed"),
        "one noise map": GroupedDifferential(ratio=grid.s.heads // 2),
        "low-rank second branch": LowRankDifferential(rank=4),
    }


@dataclass(frozen=True)
class Entry:
    """A recipe as the table calls it."""

    model: str  # ViT or DiffViT
    kind: str  # plain, structure, penalty, control
    name: str
    make: Callable[[Grid, int], Train]

    def label(self, *more: str | Tick) -> Label:
        return Label(self.model, *([] if self.kind == "plain" else [self.kind, self.name]), *more)


# ------------------------------------------------------------------------------------------------- recipes


def plain(grid: Grid, name: str, seed: int) -> Train:
    return grid.vit(seed) if name == "ViT" else grid.diffvit(seed)


def _changed(name: str, **training: Any) -> Callable[[Grid, int], Train]:
    def make(grid: Grid, seed: int) -> Train:
        usual = plain(grid, name, seed)
        return replace(usual, training=replace(usual.training, **training))

    return make


def _attacked_in_training(name: str, place: int) -> Callable[[Grid, int], Train]:
    def make(grid: Grid, seed: int) -> Train:
        eps = grid.eps[place]
        return grid.vit(seed, adv_eps=eps) if name == "ViT" else grid.diffvit(seed, adv_eps=eps)

    return make


def _with(attention: Attention) -> Callable[[Grid, int], Train]:
    return lambda grid, seed: trained(grid, attention, seed, 1)


def remedies(grid: Grid) -> list[Entry]:
    """What is ranked."""
    changed = [Entry("DiffViT", "structure", name, _with(kind)) for name, kind in structures(grid).items()]
    penalties = [
        Entry("DiffViT", "penalty", name, _changed("DiffViT", penalty=penalty))
        for name, penalty in (OF_BRANCHES | OF_ANY).items()
    ]
    return [*changed, *penalties]


def controls(grid: Grid) -> list[Entry]:
    """The same penalties on a ViT, and what makes any model harder to fool, on both."""
    same = [Entry("ViT", "control", name, _changed("ViT", penalty=penalty)) for name, penalty in OF_ANY.items()]
    generic = [
        Entry(model, "control", name, _changed(model, **training))
        for name, training in GENERIC.items()
        for model in VIT_NAMES
    ]
    adversarial = [
        Entry(model, "control", f"PGD training at {grid.eps[place]}", _attacked_in_training(model, place))
        for place in (0, 1)
        for model in VIT_NAMES
    ]
    return [*same, *generic, *adversarial]


def entries(grid: Grid) -> list[Entry]:
    both = [Entry(name, "plain", name, _changed(name)) for name in VIT_NAMES]
    return [*both, *remedies(grid), *controls(grid)]


# ------------------------------------------------------------------------------------------------- what is asked


def budgets_of(grid: Grid) -> tuple[Budget, ...]:
    """.5, 1 and 2/255"""
    return grid.eps[1:4]


def look_seeds(grid: Grid) -> list[int]:
    """The first ones, but for one at least that the confirmation needs, where there are two."""
    own = list(grid.seeds())
    return own[: max(1, min(LOOK, len(own) - 1))]


def fresh_seeds(grid: Grid) -> list[int]:
    """Those that had no part in the look; where there is one seed, a second."""
    own = list(grid.seeds())
    return own[len(look_seeds(grid)) :] or [own[-1] + 1]


def images(grid: Grid, seed: int) -> Images:
    return replace(grid.test(grid.s.measure_images), seed=seed)


def under(grid: Grid, models: Sequence[Model], attack: Attack, seed: int = 0) -> tuple[Ask, ...]:
    return tuple(attack_on(model, images(grid, seed), attack) for model in models)


def predicted(grid: Grid, models: Sequence[Model]) -> tuple[Ask, ...]:
    """On all test images: a point of accuracy is little."""
    everything = Images(data=grid.data)
    return tuple(Ask(of=model, images=everything, question=PredictionQuestion()) for model in models)


def timed(grid: Grid, models: Sequence[Model]) -> tuple[Ask, ...]:
    """Beside the plain DiffViT of the same seed, on images that both learned from."""
    learned = Images(data=grid.data, n=grid.s.measure_images, split="train")
    return tuple(
        Ask(of=model, images=learned, question=StepCostQuestion(), base=grid.diffvit(model.run_seed))
        for model in models
    )


def moved(grid: Grid, models: Sequence[Model], seed: int = 0) -> tuple[Ask, ...]:
    question = MixedChangeQuestion(eps=grid.middle)
    return tuple(Ask(of=model, images=images(grid, seed), question=question) for model in models)


def confirmed(grid: Grid, models: Sequence[Model]) -> tuple[Ask, ...]:
    few = grid.test(grid.s.autoattack_images)
    return tuple(attack_on(model, few, grid.autoattack(grid.middle)) for model in models)


# ------------------------------------------------------------------------------------------------- the two stages


@lru_cache(maxsize=100)
def ranking(grid: Grid) -> Ranking:
    def recipe(make: Callable[[Grid, int], Train]) -> Recipe:
        models = tuple(make(grid, seed) for seed in look_seeds(grid))
        attacked = under(grid, models, grid.pgd(grid.middle), LOOK_IMAGES)
        return Recipe(trained=models, accuracy=predicted(grid, models), attacked=attacked, cost=timed(grid, models))

    looked = tuple(recipe(entry.make) for entry in remedies(grid))
    return Ranking(recipes=looked, beside=recipe(Grid.diffvit))


@lru_cache(maxsize=1_000)
def chosen(
    grid: Grid, place: int, *, softmax: bool = False, depth: int = 1, data: str | None = None
) -> tuple[Chosen, ...]:
    """The recipe at a place of the ranking, from every seed of the confirmation; of deeper models from all of theirs."""
    sizes, seeds = grid.diffvit(0, depth).model, fresh_seeds(grid) if depth == 1 else grid.seeds(depth)
    about: dict[str, Any] = {"model": sizes, "data": data or grid.data, "ranking": ranking(grid), "place": place}
    return tuple(Chosen(**about, seed=seed, softmax=softmax) for seed in seeds)


def elsewhere(grid: Grid) -> list[tuple[int, str]]:
    """Where the first place is looked at as well, though nothing is decided there: deeper models, and more classes."""
    deeper = [depth for depth in grid.depths if 1 < depth <= DEEPER][-1:]
    return [*((depth, grid.data) for depth in deeper), *((1, data) for data in data_sets(grid)[1:])]


# ------------------------------------------------------------------------------------------------- lines


def _numbers(grid: Grid, label: Callable[..., Label], models: Sequence[Model], seed: int, values: Any) -> list[Line]:
    """Accuracies, success at three budgets, the change of the mixed values, and cost."""
    table = trained_lines(label(), models)
    for eps in budgets_of(grid):
        series = Series(under(grid, models, grid.pgd(eps), seed), values)
        table.append(line(label(Tick.eps(eps)), series, SUCCESS))
    for name in ("sign", "pgd"):
        change = Series(moved(grid, models, seed), mean_of("relative_change", perturbation=name))
        table.append(line(label(name), change, "relative change of mixed values", unit=""))
    table.append(_cost_line(label(), timed(grid, models)))
    return table


def _cost_line(label: Label, cells: tuple[Ask, ...]) -> Line:
    """The geometric mean over seeds, and Student's interval of the logarithm."""

    def read(answers: Answers) -> dict[str, Any]:
        arm = Series(cells, log_cost).arm(answers)
        result = shown(estimated([arm]))
        interval = result["interval"]
        ends = None if interval is None else (float(np.exp(interval[0])), float(np.exp(interval[1])))
        return {"value": float(np.exp(result["value"])), "interval": ends, "seeds": len(cells)}

    return Line(
        label=label, reading="seconds of a training step beside the plain DiffViT's", cells=cells, read=read, unit=""
    )


def lines(grid: Grid) -> list[Line]:
    table: list[Line] = []
    for entry in entries(grid):
        models = [entry.make(grid, seed) for seed in look_seeds(grid)]
        table += _numbers(grid, entry.label, models, LOOK_IMAGES, Success(SUCCESS))
    table += _early_lines(grid)
    table.append(_ranking_line(grid))
    for name in VIT_NAMES:
        models = [plain(grid, name, seed) for seed in fresh_seeds(grid)]
        table += _confirmation(grid, Label(name, "confirmation"), models)
    for place in range(PLACES):
        table.append(recipe_line(grid, place))
        table += _confirmation(grid, Label("DiffViT", "confirmation", f"place {place + 1}"), chosen(grid, place))
        control = chosen(grid, place, softmax=True)
        table += _confirmation(grid, Label("ViT", "confirmation", f"control of place {place + 1}"), control)
    for depth, data in elsewhere(grid):
        table += _elsewhere_lines(grid, depth, data)
    return table


def _elsewhere_lines(grid: Grid, depth: int, data: str) -> list[Line]:
    """Accuracies and success of both plain models, of the first place and of its control."""
    seeds = [model.run_seed for model in chosen(grid, 0, depth=depth, data=data)]
    models: dict[tuple[str, ...], Sequence[Model]] = {
        ("ViT",): [grid.vit(seed, depth, data=data) for seed in seeds],
        ("DiffViT",): [grid.diffvit(seed, depth, data=data) for seed in seeds],
        ("DiffViT", "place 1"): chosen(grid, 0, depth=depth, data=data),
        ("ViT", "control of place 1"): chosen(grid, 0, softmax=True, depth=depth, data=data),
    }
    table: list[Line] = []
    for (name, *place), of in models.items():
        about = (name, ELSEWHERE, data, f"depth {depth}", *place)
        table += trained_lines(Label(*about), of)
        for eps in budgets_of(grid):
            asked = tuple(attack_on(model, grid.test(data=data), grid.pgd(eps)) for model in of)
            table.append(line(Label(*about, Tick.eps(eps)), Series(asked, Unmasked(SUCCESS)), SUCCESS))
    return table


def _confirmation(grid: Grid, about: Label, models: Sequence[Model]) -> list[Line]:
    def label(*more: str | Tick) -> Label:
        return Label(*about.parts, *more)

    table = _numbers(grid, label, models, 0, Unmasked(SUCCESS))
    judged = Series(confirmed(grid, models), Unmasked("union_correct"))
    return [*table, line(label("AutoAttack", Tick.eps(grid.middle)), judged, "union_correct")]


def _ranking_line(grid: Grid) -> Line:
    """Who came first, in words."""
    cell = ranking(grid)

    def read(answers: Answers) -> dict[str, Any]:
        names, looked = [entry.name for entry in remedies(grid)], answers(cell)
        in_order = [
            names[i] + " (too dear or not accurate enough)" * (not looked["allowed"][i]) for i in looked["order"]
        ]
        return {"text": "; ".join(in_order), "seeds": len(look_seeds(grid))}

    return Line(label=Label("ranking of the first look"), reading="first to last", cells=(cell,), read=read)


def recipe_line(grid: Grid, place: int) -> Line:
    """Which recipe is at a place."""
    cell = ranking(grid)

    def read(answers: Answers) -> dict[str, Any]:
        return {"text": [entry.name for entry in remedies(grid)][answers(cell)["order"][place]]}

    label = Label("DiffViT", "confirmation", f"place {place + 1}")
    return Line(label=label, reading=RECIPE, cells=(cell,), read=read)


# ------------------------------------------------------------------------------------------------- early stopping


def stops(grid: Grid) -> tuple[int, ...]:
    """Epochs after which a DiffViT is looked at: a third, a half and two thirds of its training."""
    last = grid.diffvit(0).training.epochs
    return tuple(dict.fromkeys(max(1, round(last * share)) for share in (1 / 3, 1 / 2, 2 / 3)))


def _stopped(grid: Grid, seed: int) -> list[Train]:
    """The same DiffViT after each of these epochs, and after the last."""
    whole = _changed("DiffViT", keep_epochs=stops(grid))(grid, seed)
    return [*(replace(whole, after=epoch) for epoch in stops(grid)), whole]


def _early_lines(grid: Grid) -> list[Line]:
    """Of each seed the epoch whose train accuracy is nearest to that of its ViT after the last one."""
    by_seed = [_stopped(grid, seed) for seed in look_seeds(grid)]
    twins = [grid.vit(seed) for seed in look_seeds(grid)]

    def matched(answers: Answers) -> list[Train]:
        def gap(model: Train, twin: Train) -> float:
            return abs(float(answers(model)["train_accuracy"]) - float(answers(twin)["train_accuracy"]))

        return [min(of, key=lambda model: gap(model, twin)) for of, twin in zip(by_seed, twins)]

    def of_matched(
        label: Label, reading: str, ask: Callable[[Sequence[Train]], tuple[Ask, ...]], values: Values
    ) -> Line:
        def read(answers: Answers) -> dict[str, Any]:
            models = matched(answers)
            epochs = ", ".join(str(model.after or model.training.epochs) for model in models)
            result = line(label, Series(ask(models), values), reading).read(answers)
            assert isinstance(result, dict)
            return {**result, "note": f"stopped after epoch {epochs}, by seed"}

        every = [cell for of in by_seed for cell in (*of, *ask(of))]
        return Line(label=label, reading=reading, cells=(*every, *twins), read=read)

    def label(*more: Tick) -> Label:
        return Label("DiffViT", "control", EARLY, *more)

    def attacked(eps: Budget) -> Callable[[Sequence[Train]], tuple[Ask, ...]]:
        return lambda models: under(grid, models, grid.pgd(eps), LOOK_IMAGES)

    everything = of_matched(label(), "test_accuracy", lambda of: predicted(grid, of), Success("accuracy"))
    return [
        everything,
        *(of_matched(label(Tick.eps(e)), SUCCESS, attacked(e), Success(SUCCESS)) for e in budgets_of(grid)),
    ]


# ------------------------------------------------------------------------------------------------- what E7 predicts


def not_above(base: Array, own: Array) -> Array:
    """How far the second lies below a point above the first."""
    return base - own + MARGIN


def not_below(own: Array, base: Array) -> Array:
    """How far the first lies above a point below the second."""
    return own - base + MARGIN


def affordable(log_ratio: Array) -> Array:
    return float(np.log(MOST_COST)) - log_ratio


def predictions(grid: Grid) -> list[Prediction]:
    return [one for place in range(PLACES) for one in _of_place(grid, place)]


def _of_place(grid: Grid, place: int) -> list[Prediction]:
    """E7 of one recipe: every criterion of success by itself, and as a further reading beside the same training of a ViT."""
    models, reading = chosen(grid, place), f"place {place + 1} of the first look"
    vits, diffvits = ([plain(grid, name, seed) for seed in fresh_seeds(grid)] for name in VIT_NAMES)
    listed = _robust_as(grid, reading, "ViT", vits, models)
    kept = [Series(predicted(grid, of), Success("accuracy")) for of in (models, diffvits)]
    what = "test accuracy: remedy - DiffViT + 1 point"
    listed.append(predict("E7", what, "accuracy", reading, kept, not_below, threshold=True, premise=True))
    cost = [Series(timed(grid, models), log_cost)]
    what = f"log {MOST_COST:g} - log of the cost of a step"
    listed.append(predict("E7", what, "cost", reading, cost, affordable, unit="", threshold=True, premise=True))
    twins = chosen(grid, place, softmax=True)
    return [*listed, *_robust_as(grid, f"{reading}, beside the same training of a ViT", "that ViT", twins, models)]


def _robust_as(grid: Grid, reading: str, name: str, vits: Sequence[Model], models: Sequence[Model]) -> list[Prediction]:
    """No more of the remedy's images are fooled than of a ViT's, by a point: at three budgets, and by AutoAttack at one."""
    attacked = [
        (
            f"ASR of correct images at {eps}",
            "success",
            SUCCESS,
            [under(grid, of, grid.pgd(eps)) for of in (vits, models)],
        )
        for eps in budgets_of(grid)
    ]
    judged = [confirmed(grid, of) for of in (vits, models)]
    attacked.append((f"AutoAttack, correct images at {grid.middle}", "AutoAttack", "union_correct", judged))
    listed = []
    for what, part, rate, (usual, own) in attacked:
        pair = [Series(usual, Success(rate)), Series(own, Unmasked(rate))]
        sentence = f"{what}: {name} + 1 point - remedy"
        listed.append(predict("E7", sentence, part, reading, pair, not_above, threshold=True, says=part))
    return listed


STUDIES = (
    Study(
        name="remedies",
        claims=("E7",),
        aliases=("x7",),
        title=lambda grid: f"X7: remedies, depth 1, {data_name(grid.data)}, PGD at {budgets(budgets_of(grid))}",
        question="Which change to differential attention or to its training removes the fragility without losing accuracy?",
        minutes=161.1,
        lines=lines,
        predictions=predictions,
    ),
)
