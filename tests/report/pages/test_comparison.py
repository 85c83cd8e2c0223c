"""The page of a comparison carries its rows and nothing else."""

import html
import re

from antiphase.report import theme
from antiphase.report.page import write_page
from antiphase.report.pages.comparison import comparison_page
from antiphase.report.sentences import findings
from antiphase.tables import interval_of, percent


def test_the_page_carries_every_number_with_its_interval(comparison, page):
    cells = re.findall(r"<td>(.*?)</td>", page.read_text())
    expected = [
        f"{percent(rate)}<small>{interval_of(rate)}</small>"
        for attacks in zip(*(side["attacks"] for side in comparison["models"]))
        for cell in attacks
        for rate in (cell["rates"][name] for name in ("robust_accuracy", "asr_change", "asr_correct"))
    ]
    assert [cell for cell in cells if "<small>" in cell] == expected
    for finding in findings(comparison):
        assert html.escape(finding, quote=False).replace('"', "&#34;").replace("'", "&#39;") in page.read_text()


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
