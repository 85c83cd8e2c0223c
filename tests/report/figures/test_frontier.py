"""The frontier: every recipe of the table is a mark on it, at its numbers."""

from dataclasses import asdict

import matplotlib.pyplot as plt
import pytest

from antiphase.paper.catalog.remedies import PLACES, RECIPE, entries, lines
from antiphase.paper.grid import Grid
from antiphase.report.figures.frontier import ACCURACY, SUCCESS, frontier_figure
from antiphase.report.figures.render import write_figure

GRID = Grid.at("cpu")


@pytest.fixture
def rows():
    """Numbers by the place of a line in the table, with intervals of two points."""
    listed = [line for line in lines(GRID) if line.reading in (ACCURACY, SUCCESS)]
    values = [0.3 + 0.4 * i / len(listed) for i in range(len(listed))]
    return [asdict(line.row(value=v, interval=(v - 0.01, v + 0.01), n=512, seeds=3)) for line, v in zip(listed, values)]


def drawn(panel):
    _, axis = plt.subplots()
    panel(axis)
    marks = [line for line in axis.get_lines() if line.get_marker() not in ("None", "", None)]
    legend = [text.get_text() for text in axis.get_legend().get_texts()]
    at = {(round(float(line.get_xdata()[0]), 6), round(float(line.get_ydata()[0]), 6)) for line in marks}
    plt.close()
    return at, legend


def test_every_recipe_is_on_it_at_its_success_at_the_middle_budget_and_its_accuracy(rows):
    figure = frontier_figure("remedies", rows)
    look, confirmation = figure.panels
    at, legend = drawn(look)
    names = [entry.name for entry in entries(GRID)] + ["early stopping"]
    assert len(at) == len(legend) == len(names)
    assert all(any(name in text for text in legend) for name in names)
    budget = f"eps {GRID.middle}"
    (v2,) = (r for r in rows if r["label"] == f"DiffViT, structure, V2, {budget}")
    (accuracy,) = (r for r in rows if r["label"] == "DiffViT, structure, V2" and r["reading"] == ACCURACY)
    assert (round(100 * v2["value"], 6), round(100 * accuracy["value"], 6)) in at
    at, legend = drawn(confirmation)
    assert len(at) == len(legend) == 2 + 2 * PLACES
    assert {"1  place 1", "1  control of place 1"} <= set(legend)


def test_places_have_the_names_of_their_recipes_once_the_ranking_is_known(rows):
    first = next(line for line in lines(GRID) if line.reading == RECIPE)
    named = frontier_figure("remedies", [*rows, asdict(first.row(text="V2"))])
    _, legend = drawn(named.panels[1])
    assert {"1  place 1: V2", "1  control of place 1: V2", "2  place 2"} <= set(legend)


def test_without_a_recipe_that_has_both_numbers_there_is_no_figure(rows):
    assert frontier_figure("remedies", [row for row in rows if row["reading"] == ACCURACY]) is None
    look = [row for row in rows if "confirmation" not in row["label"]]
    assert len(frontier_figure("remedies", look).panels) == 1


def test_it_is_written_as_files_with_its_numbers(rows, tmp_path):
    write_figure(frontier_figure("remedies", rows), tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".pdf", ".csv"}
    assert "DiffViT, structure, V2" in (tmp_path / "remedies.csv").read_text()
