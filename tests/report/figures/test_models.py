"""Figures of several models side by side."""

import copy

import numpy as np
import pytest
from matplotlib import pyplot as plt

from antiphase.report.figures.models import (
    AttackedModel,
    MeasuredModel,
    cosine_figure,
    relative_sensitivity,
    sensitivity_figure,
    success_figure,
)
from antiphase.report.figures.render import svg_of


@pytest.fixture
def measured(comparison):
    return [MeasuredModel(m["name"], i, m["lipschitz"], m["alignment"]) for i, m in enumerate(comparison["models"])]


def drawn(panel):
    _, axis = plt.subplots()
    panel(axis)
    return axis


def test_names_in_a_figure_appear_exactly_as_written(comparison):
    names = ("a$\\x$", "_clip")
    cells = [side["attacks"] for side in comparison["models"]]
    figure = success_figure("x", "X", [AttackedModel(name, i, cells[i]) for i, name in enumerate(names)])
    text = svg_of(figure.panels[0])
    assert all(name in text for name in names)


def test_sensitivity_is_drawn_relative_to_the_map_and_absolute_behind_a_switch(comparison, measured):
    figure = sensitivity_figure("sensitivity", "Sensitivity", measured)
    (switch,) = figure.panels
    assert list(switch.views) == ["relative", "absolute"]
    for view, key in (("relative", "relative_max"), ("absolute", "max")):
        labels = [label.get_text() for label in drawn(switch.views[view]).get_xticklabels()]
        for side, label in zip(comparison["models"], labels):
            mean = side["lipschitz"]["layers"][0][key]
            assert label == f"{side['name']}\nlayer 1: mean {mean:.3g}"
            values = [
                v
                for v, of, model in zip(figure.data["value"], figure.data["measure"], figure.data["model"])
                if (of, model) == (view, side["name"])
            ]
            assert np.mean(values) == pytest.approx(mean)
        plt.close("all")


def test_relative_sensitivity_is_what_the_measure_itself_reports(comparison):
    for side in comparison["models"]:
        relative = relative_sensitivity(side["lipschitz"])
        assert relative.mean() == pytest.approx(side["lipschitz"]["layers"][0]["relative_max"])


def test_pairs_whose_sign_is_undecided_are_hatched_in_the_histogram_and_counted(comparison, measured):
    layer = comparison["models"][1]["alignment"]["layers"][0]
    figure = cosine_figure("cosines", "Cosines", measured)
    (panel,) = figure.panels  # a softmax model has no cosine
    axis = drawn(panel)
    solid, hatched = axis.containers
    undecided = layer["undecided"]["hits"]
    assert undecided > 0
    assert sum(bar.get_height() for bar in hatched) == undecided
    assert sum(bar.get_height() for bar in solid) == layer["undecided"]["n"] - undecided
    assert all(bar.get_hatch() for bar in hatched)
    assert not any(bar.get_hatch() for bar in solid)
    opposed = sum(bar.get_height() for bar in solid if bar.get_x() + bar.get_width() / 2 < 0)
    assert opposed == layer["negative"]["hits"]  # no bar has cosines of both signs
    assert figure.data["decided"].count("no") == undecided
    words = [text.get_text() for text in axis.get_legend().get_texts()]
    assert words[1] == f"undecided ({undecided} pairs)"
    plt.close("all")


def test_no_legend_lies_over_the_data_whatever_the_number_of_models(comparison, measured):
    attacks = comparison["models"][0]["attacks"]
    many = [AttackedModel(f"a model with a long name {i}", i, attacks) for i in range(5)]
    panels = [*success_figure("x", "X", many).drawn, *cosine_figure("x", "X", measured).drawn]
    deep = copy.deepcopy(measured[0].lipschitz)
    rows = deep["rows"]
    for key, column in rows.items():
        rows[key] = [f"{v}.{k}" if key == "layer" else v for k in range(6) for v in column]
    panels += sensitivity_figure("x", "X", [MeasuredModel("deep", 0, deep, None)]).drawn
    for panel in panels:
        axis = drawn(panel)
        axis.figure.canvas.draw()
        assert axis.get_legend().get_window_extent().y0 >= axis.get_window_extent().y1
        plt.close("all")
