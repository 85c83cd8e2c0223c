"""Figures of several models side by side."""

from antiphase.report.figures.models import AttackedModel, success_figure
from antiphase.report.figures.render import svg_of


def test_names_in_a_figure_appear_exactly_as_written(comparison):
    names = ("a$\\x$", "_clip")
    cells = [side["attacks"] for side in comparison["models"]]
    figure = success_figure("x", "X", [AttackedModel(name, i, cells[i]) for i, name in enumerate(names)])
    text = svg_of(figure.panels[0])
    assert all(name in text for name in names)
