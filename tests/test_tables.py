"""A table as text and as HTML, whoever wrote what is in it."""

import re

import pytest
from rich.cells import cell_len

from antiphase.tables import WIDTH, Table

HOSTILE = (
    "<script>document.title='owned'</script>",
    "\x1b[31mred\x1b[0m",
    "[bold]cat[/bold]",
    "a\u202egnp.exe",
    "two\nlines",
)


def table(**changes) -> Table:
    given = {"title": "images", "columns": ("class", "images"), "rows": [(name, "1") for name in HOSTILE]}
    return Table(**given | changes)


def test_no_line_is_longer_than_80_characters():
    wide = table(title="long " * 40, rows=[("x" * 200, "y" * 200), ("猫" * 60, "1")], notes=["word " * 50])
    assert max(map(cell_len, wide.text().splitlines())) <= WIDTH == 80
    assert wide.text().count("x") == 200  # it goes on below: nothing is left out


def test_names_with_markup_and_control_characters_are_shown_as_they_are_written():
    text = table().text()
    assert "[bold]cat[/bold]" in text
    assert r"\x1b[31mred" in text
    assert r"a\u202egnp.exe" in text
    assert r"two\nlines" in text
    assert not re.search("[\x1b\u202e]", text)


def test_a_table_without_names_of_columns_has_no_head_and_one_without_rows_no_grid():
    assert "─" not in table(columns=("", "")).text()
    assert table(rows=[], notes=["nothing"]).text() == "images\nnothing"


@pytest.mark.parametrize("where", ["title", "columns", "rows", "notes"])
def test_a_browser_runs_nothing_that_a_name_says_and_shows_every_cell(where, tmp_path, visit):
    given = {"title": HOSTILE[0], "columns": HOSTILE[:2], "rows": [(name, "1") for name in HOSTILE], "notes": HOSTILE}
    (tmp_path / "table.html").write_text(
        f"<meta charset=utf-8><title>mine</title>{table(**{where: given[where]}).html()}"
    )
    page = visit(tmp_path / "table.html")
    assert page.title() == "mine"
    assert page.locator("script").count() == 0
    cells = page.locator("tbody td").all_inner_texts()
    assert cells[0::2] == [HOSTILE[0], r"\x1b[31mred\x1b[0m", HOSTILE[2], r"a\u202egnp.exe", r"two\nlines"]
