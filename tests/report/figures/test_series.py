"""A curve with its intervals, boxes per layer, and the axis of numbers below them."""

import matplotlib
import pytest
from matplotlib import pyplot as plt

from antiphase.report.figures.series import apart, boxes, by_layer, curve, number_axis, rate_points

matplotlib.use("Agg")


@pytest.fixture
def axis():
    figure, axis = plt.subplots()
    yield axis
    plt.close(figure)


def test_a_curve_is_sorted_and_its_band_covers_only_points_with_an_interval(axis):
    line = curve(axis, [(4, 0.5, None), (1, 0.2, (0.1, 0.3)), (2, 0.3, (0.2, 0.4))], color="#123456")
    assert line.get_xdata().tolist() == [1, 2, 4]
    (band,) = axis.collections
    assert {x for x, _ in band.get_paths()[0].vertices} == {1, 2}


def test_bars_stand_beside_each_other_where_bands_could_not_be_told_apart(axis):
    points = [(1, 0.2, (0.1, 0.3)), (2, 0.3, (0.2, 0.4))]
    lines = [curve(axis, points, beside, color="#123456") for beside in apart(2)]
    axis.figure.canvas.draw()
    assert len(axis.collections) == 2
    assert [len(bars.get_segments()) for bars in axis.collections] == [2, 2]
    left, right = (line.get_transform().transform(line.get_xydata())[0] for line in lines)
    assert right[0] > left[0]
    assert right[1] == left[1]


def test_a_single_value_shows_its_interval_too(axis):
    curve(axis, [(1, 0.2, (0.1, 0.3))], color="#123456")
    (bar,) = axis.collections[0].get_segments()
    assert bar[:, 1].tolist() == [0.1, 0.3]


def test_a_rate_without_images_is_left_out_of_a_curve():
    measured, empty = {"value": 0.25, "interval": [0.1, 0.5]}, {"value": None, "interval": None}
    assert rate_points([(1, measured), (2, empty)]) == [(1, 25.0, [10.0, 50.0])]


def test_budgets_that_span_octaves_are_drawn_on_a_logarithmic_axis_without_zero(axis):
    number_axis(axis, [0, 1, 2, 8])
    assert axis.get_xscale() == "log"
    assert axis.get_xticks().tolist() == [1, 2, 8]


def test_depths_close_to_each_other_are_drawn_on_a_linear_axis(axis):
    number_axis(axis, [4, 1, 2, 4])
    assert axis.get_xscale() == "linear"
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["1", "2", "4"]


def test_boxes_stand_at_their_layers_and_undefined_values_are_left_out(axis):
    rows = {"layer": ["a", "a", "b", "b"], "cos": [0.1, None, 0.3, 0.5], "pairs": ["own", "own", "own", "shuffled"]}
    layers = by_layer(rows, "cos", pairs="own")
    assert layers == {"a": [0.1], "b": [0.3]}
    boxes(axis, list(layers.values()), [0, 1], "#123456")
    assert [round(patch.get_path().vertices[:, 0].mean()) for patch in axis.patches] == [0, 1]
