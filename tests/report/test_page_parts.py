"""A table of a study: the paper's number beside ours."""

import csv

from antiphase.report.page import write_page
from antiphase.report.page_parts import Page, Section, study_table


def test_the_table_of_a_study_shows_reference_and_measurement_side_by_side_and_names_failures(lines, tmp_path):
    table = study_table("table1", "Table 1", lines, failed=["DiffViT: out of memory <now>"])
    titles = [c.title for c in table.columns]
    assert titles == ["what", "reference", "ours", "reading", "n", "seeds", "95 % interval"]
    first, second = ([v.text for v in row] for row in table.rows)
    assert first == ["ViT, ε 1/255", "41.0 %", "43.2 %", "attack success, all images", "512", "3", "[39.0, 47.0]"]
    assert second[2] == "not run yet"
    page = Page(title="x", lede="", sections=(Section(name="t", title="T", parts=(table,)),))
    text = write_page(page, tmp_path).read_text()
    assert "Failed:</strong> DiffViT: out of memory &lt;now&gt;" in text
    rows = list(csv.DictReader((tmp_path / "data/table1.csv").open()))
    assert rows[0]["ours"] == "0.4321"
    assert rows[1]["ours"] == ""
