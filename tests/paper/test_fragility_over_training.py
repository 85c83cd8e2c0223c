"""When fragility appears over training, and whether lambda leads: what is looked at, and rules fixed before any run."""

from dataclasses import asdict

import numpy as np
import pytest
from benchmarks.worlds import World, contrast_in
from scipy.stats import spearmanr

from antiphase.measures.radius import margins
from antiphase.measures.seed_intervals import PerImage
from antiphase.models import Differential
from antiphase.models.config import Schedule
from antiphase.models.run import Run
from antiphase.paper.catalog import studies
from antiphase.paper.catalog.fragility_over_training import appears, depths, epochs, kinds, models_after, predictions
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Ask
from antiphase.paper.study import NOT_RUN, Answers
from antiphase.paper.verdict_rule import LEVEL
from antiphase.report.figures.over_training import OVER_TRAINING
from antiphase.report.pages.ledger import ledger_page

NAME = "fragility-over-training"
CPU = Grid.at("cpu")


def lag(reading):
    return next(p for p in predictions(CPU) if p.claim == "E9" and p.reading.startswith(reading))


# ------------------------------------------------------------------------------------------------- what is looked at


def test_short_trainings_are_looked_at_after_every_epoch_longer_and_deeper_ones_after_some():
    assert epochs(CPU, 1) == tuple(range(1, 16))
    assert epochs(CPU, 4) == (1, 2, 3, 5, 8, 12, 15)
    assert epochs(Grid.at("paper"), 1) == (1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 80, 100)
    assert {scale: depths(Grid.at(scale)) for scale in ("smoke", "cpu", "desk", "paper")} == {
        "smoke": (1, 2),
        "cpu": (1, 4),
        "desk": (1, 4),
        "paper": (1, 4),
    }


def test_every_epoch_is_of_one_training_per_seed_and_the_cells_of_other_studies_have_the_keys_they_had():
    whole = {model.whole.key for epoch in epochs(CPU, 1) for model in models_after(CPU, 1, epoch)["ViT"]}
    assert whole == {model.key for model in models_after(CPU, 1, 15)["ViT"]}
    assert len(whole) == 10
    assert (CPU.vit(0).key, CPU.diffvit(0).key) == ("ee37bdb0d167", "2488539910bc")  # of results/replication
    assert CPU.vit(0).key not in whole


def test_a_mixture_of_kinds_of_lambda_takes_two_layers():
    assert [len(kinds(depth)) for depth in (1, 2, 4)] == [3, 5, 5]
    mixed = kinds(4)["fixed in the first half of the layers and learned in the second"]
    assert [layer.learned for layer in mixed] == [False, False, True, True]
    (halves,) = kinds(4)["by schedule in the first half of the layers and 0.8 in the second"]
    assert halves.lambda_init == (Schedule().at(0), Schedule().at(1), 0.8, 0.8)
    assert kinds(1)["lambda fixed at 0.8"] == (Differential(learned=False),)


# ------------------------------------------------------------------------------------------------- the rules


@pytest.mark.parametrize(
    ("ps", "first"),
    [
        ([0.001, 0.001, 0.001], 0),
        ([0.5, 0.001, 0.001], 1),
        ([0.001, 0.5, 0.001], 2),  # from which on, without a break
        ([0.001, 0.001, 0.5], None),
        ([0.02, 0.5, 0.5], None),
        ([0.9, 0.9, 0.02], None),  # below the level by itself, and not after Holm's correction
    ],
)
def test_the_gap_appears_where_it_is_above_0_after_that_epoch_and_every_later_one_corrected(ps, first):
    assert appears(ps) == first


def test_where_there_is_no_gap_it_seldom_appears_and_where_there_is_one_it_does():
    deciding = [p for p in predictions(CPU) if p.claim == "E8" and p.reading == "asr_correct"]
    assert len(deciding) == 15

    def share(gap, worlds):
        drawn = [[contrast_in(World(seed), p, gap).p_above for p in deciding] for seed in range(worlds)]
        return np.mean([appears(ps) is not None for ps in drawn])

    assert share(0.0, 6) <= 0.2
    assert share(0.2, 2) == 1.0


def test_lead_less_follow_is_half_the_difference_of_their_mean_rank_correlations():
    random = np.random.default_rng(3)
    lam, gap = random.normal(size=(2, 15, 10))  # after each epoch, of each seed

    def numbers(series):
        model = series.cells[0].of
        place = (model.after or 15) - 1
        course = lam if series.of_model else gap if model.model.is_differential else 0 * gap
        return PerImage(course[place][:, None], np.ones((10, 1)), "models")

    moved = [np.diff(course, axis=0) for course in (lam, gap)]  # (14, 10) each
    lead = np.mean([spearmanr(*pair).statistic for pair in zip(moved[0][:-1], moved[1][1:])])
    follow = np.mean([spearmanr(*pair).statistic for pair in zip(moved[0][1:], moved[1][:-1])])
    assert lag("lead:").contrast(numbers).value == pytest.approx(lead)
    assert lag("follow:").contrast(numbers).value == pytest.approx(follow)
    assert lag("lead - follow").contrast(numbers).value == pytest.approx((lead - follow) / 2)


def test_what_shakes_both_for_an_epoch_looks_like_lead_and_follow_reversed_and_not_like_their_difference():
    """In a world without an effect, whose seeds share a trend; in one with an effect the difference is above 0."""

    def tests(reading, effect):
        return [contrast_in(World(seed), lag(reading), effect) for seed in range(12)]

    assert np.mean([test.p_below < LEVEL for test in tests("lead:", 0.0)]) > 0.5
    none, some = tests("lead - follow", 0.0), tests("lead - follow", 0.05)
    assert sum(test.p_above < LEVEL or test.p_below < LEVEL for test in none) <= 1
    assert sum(test.p_above < LEVEL for test in some) >= 3
    assert not any(test.p_below < LEVEL for test in some)


# ------------------------------------------------------------------------------------------------- run


@pytest.fixture(scope="module")
def ledger(tmp_path_factory, shell):
    """Depth 1 at smoke through the real command line, with an export."""
    folder = tmp_path_factory.mktemp("over-training")
    words = (NAME, "--depths", "1", "--ledger", folder / "ledger")
    done = shell("study", "run", *words)
    assert done.returncode == 0, done.stderr
    assert "not run yet" not in done.stdout
    exported = shell("study", "export", NAME, "--ledger", folder / "ledger", "--out", folder / "export")
    assert exported.returncode == 0, exported.stderr
    return Ledger(folder / "ledger"), folder / "export"


def test_keeping_weights_on_the_way_changes_nothing_of_the_training(ledger):
    answers, grid = Answers(ledger[0]), Grid.at("smoke", depths=(1,))
    for on_the_way, model in zip(models_after(grid, 1, 7).values(), (grid.vit(0), grid.diffvit(0))):
        assert answers(on_the_way[0].whole)["weights_sha256"] == answers(model)["weights_sha256"]
        assert answers(on_the_way[0])["weights_sha256"] != answers(model)["weights_sha256"]
        assert answers(on_the_way[0])["log"] == answers(on_the_way[0].whole)["log"][:7]


def test_every_line_has_its_number_and_lambda_moves_where_it_is_learned(ledger):
    grid, study = Grid.at("smoke", depths=(1,)), studies()[NAME]
    rows = [asdict(row) for row in study.table(grid, Answers(ledger[0]))]
    assert not [row["label"] for row in rows if row["note"] == NOT_RUN]
    final = {row["label"]: row["value"] for row in rows if row["reading"] == "lambda after training"}
    assert final["DiffViT, depth 1, lambda fixed at 0.8, layer 1"] == pytest.approx(0.8)
    assert final["DiffViT, depth 1, lambda learned, layer 1"] != pytest.approx(0.8, abs=1e-3)
    over = {row["x"]: row["value"] for row in rows if row["reading"] == "lambda, mean over layers"}
    assert list(over) == list(range(1, 9))
    assert over[8] == final["DiffViT, depth 1, lambda learned, layer 1"]


def test_a_margin_is_above_0_exactly_where_the_image_is_classified_correctly(ledger, digits):
    (cell,) = [
        c
        for c in studies()[NAME].cells(Grid.at("smoke", depths=(1,)))
        if isinstance(c, Ask) and c.kind == "margins" and c.of == models_after(Grid.at("smoke"), 1, 8)["DiffViT"][0]
    ]
    stored = ledger[0].answer(ledger[0].row(cell))["rows"]
    images = digits[1].at_most(cell.images.n, cell.images.seed)
    classifier = Run(ledger[0].run_folder(cell.of.key)).classifier()
    measured = margins(classifier, images, batch_size=7)
    correct = classifier(images.all.pixels).argmax(dim=1).numpy() == images.labels
    assert stored["image"] == images.ids.tolist()
    assert np.array_equal(measured["margin"] > 0, correct)
    assert stored["margin"] == pytest.approx(measured["margin"].tolist(), abs=1e-4)
    assert [radius is not None for radius in stored["first_linf"]] == correct.tolist()


def test_its_figure_is_on_the_page_and_in_the_export(ledger):
    folder, export = ledger
    assert {f"{NAME}.{form}" for form in ("png", "pdf", "csv")} <= {path.name for path in export.iterdir()}
    page = ledger_page(folder.folder, "smoke")
    (section,) = [section for section in page.sections if section.name == f"study-{NAME}"]
    figure = section.parts[0]
    assert figure.title == OVER_TRAINING.title
    assert len(figure.panels) == 6
