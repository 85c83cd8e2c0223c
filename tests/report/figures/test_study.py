"""The figure of a study draws what its lines say."""

from antiphase.report import theme
from antiphase.report.figures.render import svg_of
from antiphase.report.figures.study import axis_of, drawn_as, figure_of, split_label


def test_the_axis_of_a_studys_figure_is_what_its_labels_number():
    assert axis_of(["ViT, cifar10, eps 0.25/255", "DiffViT, cifar10, eps 1/255"]) == "eps"
    assert axis_of(["ViT, depth 1, eps 1/255", "ViT, depth 4, eps 1/255", "ViT, depth 12, eps 4/255"]) == "depth"
    assert axis_of(["DiffViT, layer 1", "control: pseudo"]) is None
    assert split_label("ViT, digits, patch 2 x 2", "patch") == ("ViT, digits", 2.0)
    assert split_label("lambda_init 0.85, gain fixed at 0.2", "lambda_init") == ("gain fixed at 0.2", 0.85)


def test_a_figure_of_a_study_draws_what_is_there_and_nothing_else(lines):
    assert figure_of("x", "X", [lines[1]], {}) is None
    figure = figure_of("x", "X", lines, {"ViT": 0})
    assert figure.data["value"] == [0.4321]
    assert "ViT, eps 1/255: 43.2 %" in figure.alt
    assert "hollow mark is the paper's number" in figure.note
    assert "intervals over seeds and images." in figure.note
    assert "intervals over images." in figure_of("x", "X", [{**lines[0], "seeds": 1}], {"ViT": 0}).note
    assert svg_of(figure.panels[0]).count("var(--m0)") >= 1


def test_what_is_no_model_never_has_the_look_of_one():
    places = {"ViT": 0, "DiffViT": 1}
    models = [drawn_as(f"{name}, digits", places, 5) for name in places]
    others = [drawn_as("control: pseudo", places, i) for i in range(6)]
    assert [m["color"] for m in models] == list(theme.MODELS[:2])
    assert not {o["color"] for o in others} & set(theme.MODELS)
    assert not {o["marker"] for o in others} & set(theme.MARKERS)
