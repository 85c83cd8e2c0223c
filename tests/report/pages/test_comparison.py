"""The page of a comparison carries its rows and nothing else."""

import csv
import html
import re

from antiphase.report import theme
from antiphase.report.page import write_page
from antiphase.report.pages.comparison import comparison_page
from antiphase.report.sentences import caveats, comparison_headline
from antiphase.tables import interval_of, number, percent


def test_the_page_carries_every_number_with_its_interval(comparison, page):
    cells = re.findall(r"<td>(.*?)</td>", page.read_text())
    rates = [
        cell["rates"][name]
        for attacks in zip(*(side["attacks"] for side in comparison["models"]))
        for cell in attacks
        for name in ("robust_accuracy", "asr_correct", "asr_change")
    ]
    aligned = comparison["models"][1]["alignment"]
    own, *controls = (*aligned["layers"], *(layers[0] for layers in aligned["controls"].values()))
    shown = [f"<strong>{percent(own['negative'])}</strong><small>{interval_of(own['negative'])}</small>"]
    rates += [own["undecided"], own["amplifying"]]
    rates += [row[name] for row in controls for name in ("negative", "undecided", "amplifying")]
    shown += [f"{percent(rate)}<small>{interval_of(rate)}</small>" for rate in rates]
    assert sorted(cell for cell in cells if "<small>" in cell) == sorted(shown)


def test_the_page_says_the_headline_in_two_sentences_and_every_caveat(comparison, page):
    text = html.unescape(page.read_text())
    headline = comparison_headline(comparison)
    for words in (headline.first_sentence, headline.second_sentence, *caveats(comparison)):
        assert words in text


def test_the_sensitivity_of_every_layer_is_in_a_table_relative_first(comparison, page):
    rows = list(csv.DictReader((page.parent / "data" / "sensitivity-by-layer.csv").open()))
    assert [row["model"] for row in rows] == ["ViT", "DiffViT"]
    for row, side in zip(rows, comparison["models"]):
        (layer,) = side["lipschitz"]["layers"]
        assert float(row["relative_max"]) == layer["relative_max"]
        assert f"<strong>{number(layer['relative_max'])}</strong>" in page.read_text()


def test_a_comparison_without_looks_names_the_command_that_makes_them(comparison, tmp_path):
    old = {key: value for key, value in comparison.items() if key != "looks"}
    text = write_page(comparison_page(old), tmp_path).read_text()
    folders = " ".join(side["folder"] for side in old["models"])
    assert f"antiphase compare {folders} --out FOLDER" in text
    assert "DecompressionStream" not in text


def test_a_model_has_one_colour_in_card_table_figure_and_lens(page):
    text = page.read_text()
    assert re.search(r'<article class="card m1">\s*<h2>DiffViT', text)
    assert re.search(r'class="group m1"><span class="dot"></span>DiffViT', text)
    assert '"name":"DiffViT","place":1' in text
    assert text.count("var(--m1)") > 4
    assert theme.MODELS[1] not in text.replace(f"--m1: {theme.MODELS[1]}", "")
