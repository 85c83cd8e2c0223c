"""The figure of a study draws what its lines say: curves along their axis, in the colour of their model and in their unit."""

from itertools import combinations

import pytest
from matplotlib import pyplot as plt

from antiphase.report import theme
from antiphase.report.figures.render import _whole, svg_of
from antiphase.report.figures.study import study_figure

PLACES = {"ViT": 0, "DiffViT": 1}


@pytest.fixture
def axis():
    figure, axis = plt.subplots()
    yield axis
    plt.close(figure)


def along(line, xs, **fields):
    """The same line at several numbers on its axis."""
    return [{**line, **fields, "x": x, "value": line["value"] / (i + 1)} for i, x in enumerate(xs)]


def test_a_figure_of_a_study_draws_what_is_there_and_nothing_else(lines):
    assert study_figure("x", [lines[1]], {}) is None
    figure = study_figure("x", lines, PLACES)
    assert figure.data["value"] == [0.4321]
    assert "ViT, ε 1/255: 43.2 %" in figure.alt
    assert "hollow circle is the paper's number" in figure.note
    assert "intervals over seeds and images." in figure.note
    assert "intervals over images." in study_figure("x", [{**lines[0], "seeds": 1}], PLACES).note
    assert svg_of(figure.panels[0]).count("var(--m0)") >= 1


def test_lines_are_joined_to_curves_by_their_series_along_their_own_axis(lines, axis):
    measured = lines[0]
    curves = along(measured, (4, 1)) + along(measured, (1, 4), series="DiffViT", model="DiffViT")
    patches = along(measured, (2, 3), axis="patch")
    figure = study_figure("x", [*curves, *patches], PLACES)
    assert len(figure.panels) == 2
    figure.panels[0](axis)
    vit, diffvit = (line for line in axis.get_lines() if line.get_markerfacecolor() != "none")
    assert vit.get_xdata().tolist() == [1, 4]
    assert vit.get_ydata().tolist() == pytest.approx([21.605, 43.21])
    assert [vit.get_color(), diffvit.get_color()] == list(theme.MODELS[:2])
    assert axis.get_xlabel() == "budget ε (in 255ths of a pixel's range)"
    assert axis.get_ylim() == (0, 104)  # a share
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["ViT", "DiffViT"]


def test_a_cosine_is_drawn_as_it_was_measured(lines, axis):
    cosines = along({**lines[0], "unit": "", "reference": None, "interval": None}, (1, 2))
    figure = study_figure("x", cosines, PLACES)
    figure.panels[0](axis)
    (drawn,) = axis.get_lines()
    assert drawn.get_ydata().tolist() == pytest.approx([0.4321, 0.21605])
    assert "ViT, ε 1/255: 0.432" in figure.alt


def test_a_line_about_no_model_never_looks_like_a_model(lines, axis):
    control = {**lines[0], "model": "", "axis": "", "x": None, "reference": None, "interval": None}
    controls = [{**control, "label": name, "series": name} for name in ("gain 1", "DiffViT - ViT")]
    study_figure("x", controls, PLACES).panels[0](axis)
    marks = [line for line in axis.get_lines() if line.get_marker() != "None"]
    assert len(marks) == 2
    assert not {mark.get_color() for mark in marks} & set(theme.MODELS)
    assert not {mark.get_marker() for mark in marks} & set(theme.MARKERS)


def test_dots_share_a_row_with_their_control_and_the_title_says_what_all_of_them_have_in_common(lines, axis):
    plain = {
        **lines[0],
        "axis": "",
        "x": None,
        "reference": None,
        "reading": "R1: share of cos < 0",
        "model": "DiffViT",
    }
    labels = (
        "DiffViT, official, eps 1/255",
        "DiffViT, official, eps 1/255, control: shuffled",
        "DiffViT, gain 1, eps 1/255",
    )
    figure = study_figure("x", [{**plain, "label": label} for label in labels], PLACES)
    figure.panels[0](axis)
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["official", "gain 1"]
    assert [text.get_text() for text in axis.texts] == ["opposed input gradients of A1 and A2 (cos < 0):\nε 1/255"]
    assert {text.get_text() for text in axis.get_legend().get_texts()} == {"DiffViT", "A2 of the next head"}
    assert axis.get_xlim() == (0, 102)


def test_a_panel_is_as_high_as_its_rows_and_none_is_left_out_silently(lines):
    plain = {**lines[0], "axis": "", "x": None}
    few, many = (
        [{**plain, "label": f"ViT, gain {i}", "reading": r} for i in range(n)] for r, n in (("a", 2), ("b", 12))
    )
    low, high = study_figure("x", [*few, *many], PLACES).heights
    assert high > 2 * low
    readings = [{**plain, "reading": f"reading {i}"} for i in range(10)]
    assert "2 further panels are left out" in study_figure("x", readings, PLACES).note


def test_in_print_no_word_of_a_panel_is_cut_or_lies_over_another_panels(lines):
    """Panels with long words beside their rows, and panels without any."""
    plain = {**lines[0], "axis": "", "x": None, "reference": None}
    rows = [{**plain, "label": f"ViT, initialised as its twin is, {i}", "reading": r} for r in "ab" for i in range(3)]
    single = [{**plain, "label": "ViT", "reading": r} for r in ("R1: share of cos < 0", "R3: share of cos < 0")]
    with plt.rc_context(theme.STYLE | theme.PRINT):
        drawing = _whole(study_figure("x", [*rows, *single], PLACES))
        drawing.canvas.draw()
    titles = [
        text.get_window_extent() for axis in drawing.axes for text in (*axis.texts, axis._left_title) if text.get_text()
    ]
    assert len(titles) == 4
    assert all(box.x0 >= 0 and box.x1 <= drawing.bbox.x1 for box in titles)
    assert not any(one.overlaps(other) for one, other in combinations(titles, 2))
    plt.close(drawing)
