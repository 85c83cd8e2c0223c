"""Results as files for other tools."""

import csv
import json
from pathlib import Path

import pytest
from PIL import Image

from antiphase.report.export import latex, raw_rows, write_export, write_measures


def cell(**rows):
    return {"run": "DiffViT", "seed": 0, "layers": [], "rows": rows}


def test_raw_rows_of_a_measure_are_one_table_with_a_gap_where_a_cell_lacks_a_column():
    cells = [cell(image=[1, 2], cos=[0.5, -0.5]) | {"reading": "R1"}, cell(image=[1], angle=[2.0])]
    assert raw_rows({"run": "x", "alignment": cells, "lambda": [{"layer": "a", "lambda": 0.8}]}) == {
        "alignment": {
            "run": ["DiffViT"] * 3,
            "reading": ["R1", "R1", None],
            "seed": [0, 0, 0],
            "image": [1, 2, 1],
            "cos": [0.5, -0.5, None],
            "angle": [None, None, 2.0],
        }
    }


def test_measures_are_written_without_their_raw_rows_and_the_rows_beside_them(tmp_path):
    row = {"layer": "blocks.0.attn", "lambda": 0.7, "lambda_init": 0.8}
    write_measures({"run": "x", "lambda": [row], "other": [cell(image=[3], cos=[0.1])]}, tmp_path, "jsonl")
    summary = json.loads((tmp_path / "measures.json").read_text())
    assert summary["lambda"] == [row]
    assert summary["other"] == [{"run": "DiffViT", "seed": 0, "layers": []}]
    assert json.loads((tmp_path / "other.jsonl").read_text()) == {"run": "DiffViT", "seed": 0, "image": 3, "cos": 0.1}
    assert {path.name for path in tmp_path.glob("lambda.*")} == {"lambda.png", "lambda.pdf"}


def test_what_latex_would_read_as_a_command_is_escaped():
    line = {"label": "λ_init 50 % & more", "reading": "asr_change", "value": 0.5, "interval": None, "n": 1, "seeds": 1}
    table = {"title": "T", "scale": "cpu", "lines": [line | {"reference": None, "unit": "%", "note": "", "text": ""}]}
    assert r"$\lambda_{\mathrm{init}}$ 50 \% \& more & - & 50.0 \% & - & asr\_change & 1 & 1 \\" in latex(table)


def test_an_export_has_every_table_and_figure_of_the_paper_at_print_size(tmp_path, invented_tables):
    tables = invented_tables("cpu")
    written = write_export(tmp_path, [], tables, [])
    wanted = [f"table{n}.{form}" for n in (1, 2, 3) for form in ("md", "tex", "html")]
    wanted += [f"fig{n}.{form}" for n in (2, 3, 4, 5, 6) for form in ("png", "pdf", "csv")]
    assert set(wanted) <= {Path(path).name for path in written}
    assert all(Path(path).stat().st_size > 0 for path in written)
    for name in (name for name in wanted if name.endswith("png")):
        with Image.open(tmp_path / name) as image:
            assert image.width / image.info["dpi"][0] * 25.4 <= 180.01
            assert image.info["dpi"][0] == pytest.approx(300, abs=0.1)
    text = (tmp_path / "tables.md").read_text()
    assert "| accuracy | paper | 86.1 |" in text  # a matrix in place of the lines of table 1
    assert text.count("| attack success | paper |") == 1
    lines = list(csv.DictReader((tmp_path / "lines.csv").open()))
    assert len(lines) == sum(len(table["lines"]) for table in tables)
    assert {line["study"] for line in lines} == {table["name"] for table in tables}
