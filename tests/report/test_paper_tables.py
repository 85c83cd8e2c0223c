"""A table of the paper is one matrix, written as Markdown, LaTeX and HTML."""

import re
from dataclasses import asdict

import pytest

from antiphase.paper.study import Label, TableRow, Tick
from antiphase.report.page import table_document
from antiphase.report.paper_tables import latex, markdown, paper_table


def row(reading, lam, value, reference=None, interval=(0.4, 0.5), gain="", **fields):
    label = Label(Tick.at("lambda_init", lam), gain)
    sizes = {"n": 512, "seeds": 3, "interval": interval, "reference": reference}
    return asdict(TableRow.about(label, reading, value=value, **sizes | fields))


@pytest.fixture
def table1():
    """Two columns of table 1: accuracy, attack success of all images and lambda; at 0.8 also with the gain fixed."""
    lines = [
        row("train_accuracy", 0.5, 0.55, 0.8605, n=10_000),
        row("test_accuracy", 0.5, 0.45, 0.8605, n=10_000),
        row("asr_change", 0.5, 0.417, 0.4074),
        row("lambda after training", 0.5, 0.41, None, None, n=None, unit=""),
        row("train_accuracy", 0.8, 0.56, 0.8700, n=10_000),
        row("test_accuracy", 0.8, 0.46, 0.8700, n=10_000),
        row("asr_change", 0.8, None, 0.8498, None),
        row("lambda after training", 0.8, 0.79, None, None, n=None, unit=""),
        row("asr_change", 0.8, 0.5, gain="gain fixed at 0.2"),
    ]
    return paper_table("table1", "Table 1: success & λ_init", lines)


NOTE = (
    "In percent; 95 % intervals in brackets. Ours: means over 3 seeds, test accuracy on 10,000 images, "
    "attacks on 512 images. –: not measured."
)


def test_markdown_has_the_papers_row_above_ours_and_intervals_in_small_print(table1):
    assert markdown(table1).splitlines() == [
        "### Table 1: success & λ_init",
        "",
        "| what | whose | λ_init: 0.5 | 0.8 |",
        "| :--- | :--- | ---: | ---: |",
        "| accuracy | paper | 86.1 | 87.0 |",
        "|  | ours, test | 45.0 <sub>[40.0, 50.0]</sub> | 46.0 <sub>[40.0, 50.0]</sub> |",
        "|  | ours, train | 55.0 <sub>[40.0, 50.0]</sub> | 56.0 <sub>[40.0, 50.0]</sub> |",
        "| attack success | paper | 40.7 | 85.0 |",
        "|  | ours, all images | 41.7 <sub>[40.0, 50.0]</sub> | – |",
        "| λ after training | ours | 0.410 | 0.790 |",
        "| attack success, gain fixed at 0.2 | ours, all images | – | 50.0 <sub>[40.0, 50.0]</sub> |",
        "",
        NOTE,
    ]


def test_latex_has_rules_of_booktabs_and_numbers_tables_itself(table1):
    assert latex(table1).splitlines() == [
        r"\begin{table}",
        r"\centering\small\setlength{\tabcolsep}{4pt}",
        r"\caption{success \& $\lambda_{\mathrm{init}}$}",
        r"\begin{tabular}{@{}llrr@{}}",
        r"\toprule",
        r" &  & \multicolumn{2}{c}{$\lambda_{\mathrm{init}}$} \\",
        r"\cmidrule(lr){3-4}",
        r"what & whose & 0.5 & 0.8 \\",
        r"\midrule",
        r"accuracy & paper & 86.1 & 87.0 \\",
        r" & ours, test & 45.0 & 46.0 \\[-3pt]",
        r" &  & {\tiny [40.0, 50.0]} & {\tiny [40.0, 50.0]} \\",
        r" & ours, train & 55.0 & 56.0 \\[-3pt]",
        r" &  & {\tiny [40.0, 50.0]} & {\tiny [40.0, 50.0]} \\",
        r"\midrule",
        r"attack success & paper & 40.7 & 85.0 \\",
        r" & ours, all images & 41.7 & -- \\[-3pt]",
        r" &  & {\tiny [40.0, 50.0]} &  \\",
        r"\midrule",
        r"$\lambda$ after training & ours & 0.410 & 0.790 \\",
        r"\midrule",
        r"attack success, gain fixed at 0.2 & ours, all images & -- & 50.0 \\[-3pt]",
        r" &  &  & {\tiny [40.0, 50.0]} \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip{\footnotesize " + NOTE.replace("%", r"\%").replace("–", "--") + "}",
        r"\end{table}",
    ]


def test_html_has_a_heading_over_the_columns_and_intervals_in_small_print(table1):
    text = table_document(table1)
    assert '<th scope="colgroup" colspan="2" class="group">λ_init</th>' in text
    assert "<td>41.7<small>[40.0, 50.0]</small></td><td>–</td>" in text
    assert text.count('<tr class="start">') == 4
    assert "success &amp; λ_init" in text


def test_a_matrix_needs_a_number_and_a_table_of_the_paper():
    assert paper_table("table1", "x", [row("asr_change", 0.5, None)]) is None
    assert paper_table("fig2a", "x", [row("asr_change", 0.5, 0.5)]) is None


@pytest.mark.parametrize(("name", "columns", "papers_rows"), [("table1", 6, 2), ("table2", 9, 2), ("table3", 5, 4)])
def test_each_table_has_the_columns_and_the_numbers_of_the_paper(name, columns, papers_rows, invented_tables):
    table = next(table for table in invented_tables("cpu") if table["name"] == name)
    matrix = paper_table(name, table["title"], table["lines"])
    assert len(matrix.columns) == 2 + columns
    printed = [value.text for whole in matrix.rows if whole[1].text == "paper" for value in whole[2:]]
    references = {100 * line["reference"] for line in table["lines"] if isinstance(line["reference"], float)}
    assert sum(whole[1].text == "paper" for whole in matrix.rows) == papers_rows
    assert {text for text in printed if text != "–"} == {f"{number:.1f}" for number in references}
    body = [line for line in latex(matrix).splitlines() if line.count("&") > 1 and "multicolumn" not in line]
    assert {line.count("&") for line in body} == {1 + columns}
    assert not re.search(r"(?<!\\)[%_&](?![ ])", "".join(body).replace(r"\_", ""))
