"""A page is one file that needs nothing else, with its figures and numbers beside it."""

import csv
import re

import pytest
from PIL import Image

from antiphase.config import InputError
from antiphase.report import page as page_module
from antiphase.report.page import write_page
from antiphase.report.page_parts import Page, Section, Slot, study_table
from antiphase.report.pages.comparison import comparison_page
from antiphase.report.sentences import headline


def test_the_page_requests_nothing_from_the_network_and_is_small(page):
    text = page.read_text()
    assert not re.search(r'(src|href)="(https?:|//)', text)
    assert "default-src 'none'" in text
    assert text.count("<svg") == 5  # two views of success, two of sensitivity, one histogram
    assert len(text) < 6e6


def test_the_same_rows_give_the_same_bytes(comparison, page, tmp_path):
    again = write_page(comparison_page(comparison), tmp_path)
    for path in (page.parent / "data").iterdir():
        assert (again.parent / "data" / path.name).read_bytes() == path.read_bytes(), path.name
    assert again.read_bytes() == page.read_bytes()


def test_every_figure_lies_beside_the_page_as_png_pdf_and_data(comparison, page):
    text, data = page.read_text(), page.parent / "data"
    linked = set(re.findall(r'href="data/([^"]+)"', text))
    assert linked == {path.name for path in data.iterdir()}
    assert {"attack-success.png", "attack-success.pdf", "sensitivity.png", "sensitivity.pdf"} <= linked
    assert Image.open(data / "attack-success.png").size[0] > 1000
    rows = list(csv.DictReader((data / "attack-success.csv").open()))
    first = comparison["models"][0]["attacks"][0]["rates"][rows[0]["rate"]]
    assert float(rows[0]["value"]) == first["value"]
    assert [float(rows[0]["low"]), float(rows[0]["high"])] == first["interval"]


def test_a_page_without_rows_verdicts_or_models_says_so(tmp_path):
    empty = study_table("table1", "Table 1", [])
    slot = Slot(study="fig3", command="antiphase study run fig3 --scale cpu")
    page = Page(
        title="Nothing yet",
        lede="",
        headline=headline(()),
        sections=(Section(name="s", title="S", parts=(empty, slot)),),
    )
    text = write_page(page, tmp_path).read_text()
    assert "No claim has been put to the test yet." in text
    assert "There are no rows yet." in text
    assert "antiphase study run fig3 --scale cpu" in text


def test_a_page_too_large_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "LARGEST", 1000)
    with pytest.raises(InputError, match="fewer images in antiphase look"):
        write_page(Page(title="x", lede=""), tmp_path / "page")
    assert not (tmp_path / "page").exists()
