"""The two stages of the study remedies: a rule that was written before any row ranks, and other seeds and images confirm."""

from dataclasses import replace

import numpy as np
import pytest

from antiphase.config import to_plain
from antiphase.models.config import Softmax
from antiphase.paper.catalog import studies
from antiphase.paper.catalog.remedies import (
    GENERIC,
    OF_ANY,
    OF_BRANCHES,
    PLACES,
    Unmasked,
    chosen,
    elsewhere,
    entries,
    fresh_seeds,
    look_seeds,
    ranking,
    remedies,
)
from antiphase.paper.grid import Grid
from antiphase.paper.questions import Chosen, Ranking, ordered
from antiphase.paper.selection import place_of_ranking, ranked

GRID = Grid.at("cpu")


class Looked:
    """Answers of a look in which every recipe has an accuracy, a success and a cost of its own, over 1,000 images."""

    def __init__(self, numbers, flagged=()):
        cells = ranking(GRID)
        self.flagged = {ask.key for place in flagged for ask in cells.recipes[place].attacked}
        self.numbers = {
            ask.key: (name, value)
            for recipe, three in zip((*cells.recipes, cells.beside), numbers)
            for name, value in zip(("accuracy", "attacked", "cost"), three)
            for ask in getattr(recipe, name)
        }

    def __call__(self, cell):
        name, value = self.numbers[cell.key]
        if name == "cost":
            return {"ratio": value}
        n = 1_000
        images = {"id": np.arange(n), "label": np.zeros(n, int), "clean": np.zeros(n, int)}
        if name == "accuracy":
            return {"images": images | {"clean": (np.arange(n) >= value * n).astype(int)}}
        return {
            "images": images | {"changed_in_run": [(np.arange(n) < value * n).astype(int)]},
            "flags": ["a red flag"] * (cell.key in self.flagged),
        }


PLAIN = (0.50, 0.60, 1.0)


def numbers(**changed):
    """All alike but for those that are named."""
    names = [entry.name.replace(" ", "_").replace("-", "_") for entry in remedies(GRID)]
    return [changed.get(name, PLAIN) for name in names] + [PLAIN]


def test_the_lowest_success_leads_among_those_that_keep_accuracy_and_cost():
    look = numbers(
        V2=(0.50, 0.40, 1.2),  # allowed
        DINT=(0.52, 0.30, 1.31),  # too dear
        alignment=(0.495, 0.35, 1.0),  # half a point is not too much
        change_under_noise=(0.48, 0.10, 1.0),  # not accurate enough
    )
    answer = ranked(ranking(GRID), Looked(look))
    names = [remedies(GRID)[i].name for i in answer["order"]]
    assert names[:2] == ["alignment", "V2"]
    assert names[-2:] == ["change under noise", "DINT"]  # out of the running, the lowest success first
    assert names[2] == "no head norm"  # alike: as they are listed
    assert place_of_ranking(ranking(GRID), 0, lambda _: answer) is ranking(GRID).recipes[answer["order"][0]]


def test_an_attack_with_a_red_flag_does_not_bring_a_recipe_to_the_first_place():
    look = Looked(numbers(V2=(0.50, 0.10, 1.0), alignment=(0.50, 0.40, 1.0)), flagged=[0])  # V2 is listed first
    assert [remedies(GRID)[i].name for i in ranked(ranking(GRID), look)["order"]][::11] == ["alignment", "V2"]


@pytest.mark.parametrize(
    ("success", "outcomes"), [(-0.04, {"not supported", "inconclusive"}), (0.1, {"partly supported"})]
)
def test_a_recipe_that_is_only_cheap_and_accurate_is_partly_no_remedy(success, outcomes):
    from benchmarks.calibrate import predictions_at
    from benchmarks.worlds import World, verdict_in

    deciding = predictions_at("cpu")["E7"]
    assert {p.part for p in deciding if p.premise} == {"accuracy", "cost"}

    def truth(prediction):
        return (0.1 if prediction.premise else success), 0.0

    seen = [verdict_in(World(seed), deciding, truth) for seed in range(20)]
    assert set(seen) == outcomes


@pytest.mark.parametrize("scale", ["smoke", "cpu", "desk", "paper"])
def test_seeds_and_images_of_the_look_have_no_part_in_the_confirmation(scale):
    grid = Grid.at(scale)
    assert not set(look_seeds(grid)) & set(fresh_seeds(grid))
    looked = {ask.images.seed for recipe in ranking(grid).recipes for ask in recipe.attacked}
    for prediction in studies()["remedies"].predictions(grid):
        models = [cell for cell in prediction.cells if hasattr(cell, "run_seed")]
        assert {model.run_seed for model in models} == set(fresh_seeds(grid))
        attacked = {cell.images.seed for cell in prediction.cells if cell.kind == "attack"}
        assert not attacked & looked


def test_what_is_confirmed_is_listed_before_any_row_is_there():
    """Five places, each with its control; their keys say the ranking, and not who came first."""
    cells = [
        cell for place in range(PLACES) for softmax in (False, True) for cell in chosen(GRID, place, softmax=softmax)
    ]
    assert set(cells) <= set(studies()["remedies"].cells(GRID))
    assert len(cells) == 2 * PLACES * len(fresh_seeds(GRID))
    assert len({cell.key for cell in cells}) == len(cells)
    assert to_plain(cells[0])["ranking"] == {"kind": "Ranking", "key": ranking(GRID).key}
    fewer = replace(ranking(GRID), recipes=ranking(GRID).recipes[:-1])
    assert replace(cells[0], ranking=fewer).key != cells[0].key
    before = ordered([cells[0]])
    assert any(isinstance(cell, Ranking) for cell in before)
    assert len(before) > 36


def test_a_control_is_the_same_training_of_a_softmax_vit_without_what_needs_branches():
    by_name = dict(zip([entry.name for entry in remedies(GRID)], ranking(GRID).recipes))
    own, control = chosen(GRID, 0)[0], chosen(GRID, 0, softmax=True)[0]
    for name, penalty in (OF_BRANCHES | OF_ANY).items():
        assert own.training_of(by_name[name]).training.penalty == penalty
        softmax = control.training_of(by_name[name])
        assert softmax.model.layers == (Softmax(),)
        assert softmax.training.penalty == (penalty if name in OF_ANY else None)
        assert softmax.training.seed == own.training_of(by_name[name]).training.seed == own.seed
    assert control.training_of(by_name["V2"]).key == GRID.vit(control.seed).key


def test_the_first_place_is_looked_at_in_deeper_models_and_with_more_classes_too():
    assert elsewhere(GRID) == [(4, "cifar10"), (1, "cifar100")]
    v2 = ranking(GRID).recipes[0]
    deep, many = chosen(GRID, 0, depth=4)[0], chosen(GRID, 0, data="cifar100")[0]
    assert deep.training_of(v2).model.depth == 4
    assert deep.training_of(v2).model.layers == v2.trained[0].model.layers * 4
    assert (many.training_of(v2).data, many.training_of(v2).model.depth) == ("cifar100", 1)
    assert {cell.run_seed for cell in chosen(GRID, 0, depth=4)} == set(GRID.seeds(4))
    asked = {(cell.model.depth, cell.data) for cell in studies()["remedies"].cells(GRID) if isinstance(cell, Chosen)}
    assert asked == {(1, "cifar10"), (4, "cifar10"), (1, "cifar100")}


def test_controls_are_on_both_models_and_none_of_them_is_ranked():
    names = {(entry.model, entry.name) for entry in entries(GRID) if entry.kind == "control"}
    assert {(model, name) for model in ("ViT", "DiffViT") for name in GENERIC} <= names
    assert {("ViT", name) for name in OF_ANY} <= names
    assert not {name for _, name in names} & ({entry.name for entry in remedies(GRID)} - set(OF_ANY))
    made = [entry.make(GRID, 0).key for entry in entries(GRID)]
    assert len(made) == len(set(made))


def test_an_answer_with_a_red_flag_counts_every_correct_image_as_fooled():
    content = {
        "images": {"label": [0, 0, 1], "clean": [0, 0, 0], "changed_in_run": [[1, 0, 0]]},
        "flags": [],
    }
    content["images"] = {name: np.array(values) for name, values in content["images"].items()}
    top, bottom = Unmasked("asr_correct")(content)
    assert (top.tolist(), bottom.tolist()) == ([1, 0, 0], [1, 1, 0])
    top, bottom = Unmasked("asr_correct")(content | {"flags": ["the gradient was exactly zero for 2 of 3 images"]})
    assert (top.tolist(), bottom.tolist()) == ([1, 1, 0], [1, 1, 0])
