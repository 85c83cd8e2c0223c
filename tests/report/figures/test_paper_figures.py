"""The figures of the paper: as wide as a printed page, readable there, and drawn from what was measured."""

from functools import cache
from itertools import combinations

import pytest
from matplotlib import pyplot as plt
from matplotlib.text import Text

from antiphase.report.figures.over_training import OVER_TRAINING
from antiphase.report.figures.paper_figures import FIGURES, paper_figure
from antiphase.report.figures.render import PRINT_WIDTH, _whole, svg_of
from antiphase.report.theme import MODELS, PRINT, STYLE

BY_NAME = {figure.name: figure for figure in (*FIGURES, OVER_TRAINING)}


@pytest.fixture(scope="module")
def drawn(invented_tables):
    """(figure, scale) -> the figure with invented numbers, and its drawing at print size; each drawn once."""
    lines = {scale: {table["name"]: table["lines"] for table in invented_tables(scale)} for scale in ("cpu", "desk")}

    @cache
    def draw(name, scale):
        figure = paper_figure(BY_NAME[name], lines[scale])
        with plt.rc_context(STYLE | PRINT):
            drawing = _whole(figure)
            drawing.canvas.draw()
        return figure, drawing

    yield draw
    plt.close("all")


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("fig2", "cpu"),
        ("fig3", "desk"),
        ("fig4", "desk"),
        ("fig5", "desk"),
        ("fig6", "cpu"),
        (OVER_TRAINING.name, "cpu"),
    ],
)
def test_a_figure_is_180_mm_wide_and_every_word_of_it_can_be_read(name, scale, drawn):
    _, drawing = drawn(name, scale)
    assert drawing.get_figwidth() * 25.4 <= 180 + 1e-9
    words = _words(drawing)
    assert min(word.get_fontsize() for word in words) >= 7
    boxes = {word: word.get_window_extent() for word in words}
    sheet = drawing.bbox
    cut = [
        w.get_text() for w, b in boxes.items() if b.x0 < -1 or b.x1 > sheet.x1 + 1 or b.y0 < -1 or b.y1 > sheet.y1 + 1
    ]
    assert cut == []
    overlaps = [
        (one.get_text(), other.get_text())
        for one, other in combinations(words, 2)
        if boxes[one].shrunk(0.9, 0.7).overlaps(boxes[other].shrunk(0.9, 0.7))
    ]
    assert overlaps == []


def _words(drawing):
    """All text that is seen: matplotlib keeps ticks beyond the limits of an axis, and does not draw them."""
    axes = [along for axis in drawing.axes for along in (axis.xaxis, axis.yaxis)]
    ticks = [(along, tick) for along in axes for tick in (*along.majorTicks, *along.minorTicks)]
    unseen = {
        label
        for along, tick in ticks
        for label in (tick.label1, tick.label2)
        if not min(along.get_view_interval()) - 1e-9 <= tick.get_loc() <= max(along.get_view_interval()) + 1e-9
    }
    return [word for word in drawing.findobj(Text) if word.get_text() and word.get_visible() and word not in unseen]


def test_figure_2_has_four_panels_and_a_curve_for_each_model_and_data_set(drawn):
    figure, drawing = drawn("fig2", "cpu")
    titles = [axis.get_title(loc="left")[:3] for axis in drawing.axes]
    assert titles == ["(a)", "(b)", "(c)", "(d)"]
    first = drawing.axes[0]
    assert {text.get_text() for text in first.get_legend().get_texts()} == {
        "ViT, CIFAR-10",
        "DiffViT, CIFAR-10",
        "ViT, CIFAR-100",
        "DiffViT, CIFAR-100",
    }
    assert {line.get_color() for line in first.get_lines()} == set(MODELS[:2])
    assert "attack success, all images" in figure.note
    assert "asr_change" not in figure.note + figure.alt


@pytest.mark.parametrize(
    ("name", "scale"),
    [("fig2", "cpu"), ("fig3", "desk"), ("fig5", "desk"), ("fig6", "cpu"), (OVER_TRAINING.name, "cpu")],
)
def test_no_legend_lies_over_data(name, scale, drawn):
    _, drawing = drawn(name, scale)
    legends = [(axis.get_legend().get_window_extent(), axis.bbox) for axis in drawing.axes if axis.get_legend()]
    assert legends
    assert all(legend.y0 >= within.y1 - 1 for legend, within in legends)


def test_intervals_of_curves_that_share_a_colour_are_bars_and_no_bands(drawn):
    _, drawing = drawn("fig2", "cpu")
    kinds = {axis.get_title(loc="left")[:3]: {type(c).__name__ for c in axis.collections} for axis in drawing.axes}
    assert kinds["(a)"] == {"LineCollection"}  # each model on two data sets
    assert "LineCollection" not in kinds["(b)"]  # a colour for each curve


def test_figure_3c_is_attack_success_against_the_radius_at_each_depth(drawn):
    _, drawing = drawn("fig3", "desk")
    panel = drawing.axes[2]
    assert "L2" in panel.get_xlabel()
    named = {text.get_text() for text in panel.get_legend().get_texts()}
    assert named == {"ViT", "DiffViT", *(f"depth {d}" for d in (1, 2, 4, 8, 12))}
    curves = [line for line in panel.get_lines() if len(line.get_xdata()) > 2]
    assert len(curves) == 2 * 5
    assert all((line.get_ydata()[1:] >= line.get_ydata()[:-1]).all() for line in curves)


def test_figure_4_has_a_box_per_model_and_layer_and_lambda_below_each_layer(drawn):
    _, drawing = drawn("fig4", "desk")
    boxes, lambdas = drawing.axes[:2]
    layers = (1 + 2 + 4 + 8 + 12) + 1  # at each depth, and at depth 1 on the data with more classes
    assert len(boxes.patches) == 2 * layers
    assert sum(len(line.get_xdata()) for line in lambdas.get_lines()) == layers


def test_figure_5_has_a_bar_per_layer_of_every_depth_and_data_set_its_controls_and_a_line_at_one_half(drawn):
    _, drawing = drawn("fig5", "desk")
    panel = drawing.axes[0]
    assert len(panel.patches) == (1 + 2 + 4 + 8 + 12) + 1
    assert [line for line in panel.get_lines() if set(line.get_ydata()) == {50}]
    assert sum(len(line.get_xdata()) == len(panel.patches) for line in panel.get_lines()) == 3
    assert {"CIFAR-10", "CIFAR-100"} <= {text.get_text() for text in panel.texts}


def test_a_panel_without_numbers_is_left_out_and_the_others_keep_their_letters(invented_tables):
    lines = {table["name"]: table["lines"] for table in invented_tables("cpu")}
    lines["fig2b"] = [{**line, "value": None} for line in lines["fig2b"]]
    del lines["fig2d"]
    figure = paper_figure(BY_NAME["fig2"], lines)
    drawing, axes = plt.subplots(1, 2)
    for axis, panel in zip(axes, figure.panels, strict=True):
        panel(axis)
    assert [axis.get_title()[:3] or axis.get_title(loc="left")[:3] for axis in axes] == ["(a)", "(c)"]
    plt.close(drawing)
    assert paper_figure(BY_NAME["fig2"], {}) is None


def test_a_wide_panel_of_a_page_follows_the_theme(invented_tables):
    lines = {table["name"]: table["lines"] for table in invented_tables("cpu")}
    figure = paper_figure(BY_NAME["fig5"], lines)
    assert figure.wide
    assert "var(--m1)" in svg_of(figure.panels[0], wide=True)
    assert pytest.approx(180 / 25.4) == PRINT_WIDTH


def test_a_ledger_that_is_being_filled_is_drawn_as_far_as_it_goes(invented_tables):
    """Models are trained before they are measured: lambda is there where L is not; a control may exist without its branches."""
    lines = {table["name"]: table["lines"] for table in invented_tables("cpu")}
    deep = [{**line, "value": None if "depth 4" in line["details"] else line["value"]} for line in lines["fig4"]]
    lines["fig4"] = [new if old["reading"] != "lambda" else old for old, new in zip(lines["fig4"], deep, strict=True)]
    lines["fig5"] = [{**line, "value": None if len(line["details"]) == 2 else line["value"]} for line in lines["fig5"]]
    boxes = paper_figure(BY_NAME["fig4"], lines)
    drawing, axis = plt.subplots()
    boxes.panels[0](axis)
    lower = drawing.axes[1]
    assert sum(len(line.get_xdata()) for line in lower.get_lines()) == (1 + 2) + 1
    plt.close(drawing)
    assert len(paper_figure(BY_NAME["fig5"], lines).panels) == 2  # those of DiffCLIP
