"""Figure 1 shows one image as the model itself has it."""

import csv

from antiphase.attacks import PGD, Linf
from antiphase.report.figures.figure1 import figure1
from antiphase.report.page import write_page
from antiphase.report.page_parts import Page, Section
from antiphase.results.branch_picture import branch_picture
from antiphase.results.questions import BranchPictureQuestion


def test_figure_1_shows_the_models_own_maps_on_scales_that_are_named(pair, digits, tmp_path):
    few = digits[1].subset(16)
    question = BranchPictureQuestion(attack=PGD(within=Linf("48/255"), steps=5), probes=4)
    picture = branch_picture(pair[1], few, question).content
    figure = figure1("fig1-figure", picture)
    page = Page(title="x", lede="", sections=(Section(name="s", title="S", parts=(figure,)),))
    text = write_page(page, tmp_path).read_text()
    assert len(figure.panels) == 2
    assert text.count("data:image/png") == 2  # the six pictures of each state
    assert f"A1 − {picture['states']['clean']['lambda']:.2f} A2" in text
    assert f"“{picture['states']['attacked']['prediction']}”" in text
    assert "A1, 0 to " in text
    rows = list(csv.DictReader((tmp_path / "data/fig1-figure.csv").open()))
    assert float(rows[1]["cos"]) == picture["states"]["attacked"]["cos"]
