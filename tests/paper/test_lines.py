"""What the lines and titles of studies say: true sizes, every layer, no interval where there is nothing to draw from."""

import numpy as np
import pytest
import scipy.stats

from antiphase.paper.catalog import studies
from antiphase.paper.catalog.fig3c import RADII, fooled_within
from antiphase.paper.grid import Grid
from antiphase.paper.study import Label, Tick

TRUE_AT_SMOKE = {
    "table1": "DiffViT of depth 1 on digits, PGD at 8/255 (one restart)",
    "table2": "of depth 2 on digits",
    "table3": "on digits at 2, 4 and 8/255",
    "fig1": "under PGD at 32/255",
    "fig2a": "PGD at 2, 4, 8, 16 and 32/255 (one restart)",
    "fig2c": "patches 1 and 2 pixels wide",
    "fig3a": "PGD at 8 and 32/255 (one restart) on depths 1 and 2, digits",
    "fig6": "fooled by the one restart of PGD, digits",
    "noise-vs-attack": "of 8/255, digits",  # that question has one size at every scale
}
TRUE_AT_CPU = {
    "table2": "of depth 4 on Tiny ImageNet",
    "fig1": "under PGD at 4/255",
    "fig5": "CIFAR-10 and CIFAR-100",
    "fig6": "fooled by any of 3 restarts of PGD",
}


@pytest.mark.parametrize(("scale", "phrases"), [("smoke", TRUE_AT_SMOKE), ("cpu", TRUE_AT_CPU)])
def test_titles_say_the_depth_data_budgets_and_restarts_of_the_scale(scale, phrases):
    grid = Grid.at(scale)
    for name, phrase in phrases.items():
        assert phrase in studies()[name].titled(grid)


def test_no_title_at_smoke_speaks_of_a_data_set_or_a_budget_that_smoke_has_not():
    grid = Grid.at("smoke")
    titles = [study.titled(grid) for study in studies().values()]
    assert not [title for title in titles if "CIFAR" in title or "ImageNet" in title or " 4/255" in title]


@pytest.mark.parametrize("name", ["fig4", "fig4-clip", "table1", "fragility-over-training"])
def test_lambda_has_a_range_over_seeds_and_neither_images_nor_an_interval(name):
    lines = [line for line in studies()[name].lines(Grid.at("cpu")) if line.reading.startswith("lambda")]
    cells = lines[0].cells
    answers = dict(zip((cell.key for cell in cells), np.linspace(0.7, 0.9, len(cells))))

    def trained(cell):
        return {"lambda": [{"lambda": answers[cell.key]}]}

    (row,) = lines[0].rows(trained)
    assert row.value == pytest.approx(0.8)
    assert row.interval is None
    assert row.n is None
    assert row.seeds == len(cells)
    assert row.note == "from 0.700 to 0.900 over seeds"


@pytest.mark.parametrize(("name", "reading"), [("fig4", "L-sample of maps"), ("fig5", "R1: share of cos < 0")])
def test_figures_4_and_5_have_every_layer_at_every_depth_and_the_data_with_more_classes(name, reading):
    grid = Grid.at("cpu")
    lines = [line for line in studies()[name].lines(grid) if line.reading == reading and line.label.model == "DiffViT"]
    places = {(*line.label.details[:2], line.label.tick.x) for line in lines}
    every = {("cifar10", f"depth {depth}", layer + 1) for depth in grid.s.depths for layer in range(depth)}
    assert places == every | {("cifar100", "depth 1", 1)}


def test_at_depth_1_figure_5_asks_what_its_claim_asks():
    study, grid = studies()["fig5"], Grid.at("cpu")
    read = {cell.key for line in study.lines(grid) for cell in line.cells}
    assert {
        cell.key for prediction in study.predictions(grid) for cell in prediction.cells if cell.kind == "alignment"
    } <= read


def test_attack_success_within_a_radius_counts_correct_images_only():
    images = {
        "clean": [1, 2, 3, 4],
        "label": [1, 2, 3, 0],
        "distance": [0.05, 0.3, None, 0.01],
        "changed_in_run": [[1, 1, 0, 1]],
    }
    top, bottom = fooled_within(0.1)({"images": images})
    assert (top.sum(), bottom.sum()) == (1, 3)
    assert list(RADII) == sorted(RADII)


def test_details_of_a_label_are_its_words_without_model_and_number():
    label = Label("DiffViT", "cifar10", "depth 4", Tick.at("layer", 2), "control: pseudo")
    assert label.details == ("cifar10", "depth 4", "control: pseudo")
    assert Label("DiffViT - ViT", Tick.at("depth", 1)).details == ("DiffViT - ViT",)


def test_calibration_under_a_corruption_is_compared_seed_by_seed_with_students_t():
    """What all models of a seed share (here up to 30 points) is in neither the difference nor its interval."""
    grid = Grid.at("cpu")
    table = studies()["corrupted"].lines(grid)
    of = {str(line.label): line for line in table if line.reading.startswith("ECE") and "fog" in str(line.label)}
    assert list(of) == ["ViT, fog", "DiffViT, fog", "DiffViT - ViT, fog"]
    seeds = len(of["ViT, fog"].cells)
    shared, apart = np.linspace(0, 0.3, seeds), 0.02 + 0.01 * np.cos(np.arange(seeds))

    def answers(cell):
        seed = cell.of.run_seed
        value = 0.1 + shared[seed] + (apart[seed] if cell.of.model.is_differential else 0)
        clean, *parts = [{"ece": {"value": ece}, "accuracy": {"n": 1024}} for ece in (9.0, value - 0.01, value + 0.01)]
        return {"severities": [clean, *parts]}

    rows = {label: line.rows(answers)[0] for label, line in of.items()}
    gap = rows["DiffViT - ViT, fog"]
    assert (gap.unit, gap.n, gap.seeds) == ("points", 1024, seeds)
    assert gap.value == pytest.approx(rows["DiffViT, fog"].value - rows["ViT, fog"].value)
    tested = scipy.stats.ttest_1samp(apart, 0).confidence_interval(0.95)
    assert gap.interval == pytest.approx(tuple(tested))
    low, high = rows["ViT, fog"].interval
    assert high - low > 5 * (gap.interval[1] - gap.interval[0])


def test_the_difference_in_calibration_asks_for_no_cell_of_its_own():
    table = [line for line in studies()["corrupted"].lines(Grid.at("cpu")) if line.reading.startswith("ECE")]
    of_models, of_differences = (
        {cell.key for line in table if bool(line.label.model) is of_model for cell in line.cells}
        for of_model in (True, False)
    )
    assert of_differences == of_models
