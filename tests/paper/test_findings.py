"""Numbers of the replication in README, docs and results are those of its rows (`make findings`)."""

import csv

import pytest
from benchmarks import findings
from benchmarks.findings import LEDGER, Source, drifted, rewritten
from pyarrow import parquet

from antiphase.config import InputError
from antiphase.paper.catalog import studies
from antiphase.paper.ledger import Ledger

GAP = "fig2a cpu: DiffViT - ViT, cifar10, eps 1/255 @ asr_correct"


@pytest.fixture(scope="module")
def source():
    return Source(Ledger(LEDGER))


def test_every_page_says_what_the_rows_say(source):
    assert list(findings.pages())
    assert drifted(source) == {}, "run `make findings`"


def test_what_is_published_has_every_row_and_the_numbers_of_the_tables(source):
    keys = {path.stem for path in source.ledger.rows.folder.glob("*.json")}
    assert set(parquet.read_table(LEDGER / "rows.parquet", columns=["key"])["key"].to_pylist()) == keys
    folder = LEDGER / "report" / "cpu"
    page = (folder / "index.html").read_text()
    assert all(f"{claim['claim']}<" in page for claim in source.verdicts("cpu"))
    assert (
        "--ledger results/replication<" in page
    )  # commands for any clone, with no path of the machine that wrote them
    assert "--ledger /" not in page
    tables = {study: folder / "data" / f"{study}.csv" for study in studies()}
    assert sum(path.exists() for path in tables.values()) >= 20
    for study, path in tables.items():
        ours = {(line["label"], line["reading"]): line["value"] for line in source.lines(study, "cpu")}
        if not path.exists():
            assert not any(value is not None for value in ours.values()), f"{study}: run `make findings`"
            continue
        with path.open(newline="") as file:
            published = {(row["label"], row["reading"]): row["ours"] for row in csv.DictReader(file)}
        assert {place: float(value) for place, value in published.items() if value} == {
            place: pytest.approx(value, rel=1e-12) for place, value in ours.items() if value is not None
        }, "run `make findings`"


def test_a_page_that_says_something_else_is_found_and_put_right(source, tmp_path, monkeypatch):
    page = tmp_path / "README.md"
    page.write_text(f"a <!-- finding {GAP} -->+99.9 points<!-- end --> b")
    monkeypatch.setattr(findings, "ROOT", tmp_path)
    ((found, text),) = drifted(source).items()
    assert found == page
    assert "99.9" not in text
    page.write_text(text)
    assert drifted(source) == {}


def test_a_finding_has_its_interval_and_a_table_has_it_in_every_cell(source):
    line = source.line("fig2a", "cpu", "ViT, cifar10, eps 1/255", "asr_correct")
    low, high = line["interval"]
    text = f"{100 * line['value']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    wanted = "fig2a cpu: ViT, cifar10, eps 1/255 @ asr_correct"
    assert findings.finding(source, wanted) == text
    assert findings.value(source, wanted) == text.split(" [")[0]
    columns, rows = "columns: {}, eps 1/255 @ asr_correct = of correct", "rows: ViT, cifar10 = softmax"
    asked = f"<!-- table fig2a cpu\n{columns}\n{rows}\n--><!-- end -->"
    written = rewritten(asked, source)
    assert f"| softmax | {text.replace(' %', '')} |" in written
    assert rewritten(written, source) == written


def test_what_is_not_there_is_said_and_what_does_not_exist_is_refused(source):
    empty = Source(Ledger(LEDGER / "nothing"))
    assert findings.finding(empty, GAP) == findings.NOT_YET
    assert findings.NOT_YET in findings.matrix(empty, "table1 cpu")
    with pytest.raises(InputError, match="has 0 lines 'DiffViT, moon' @ 'asr_correct'"):
        findings.value(source, "fig2a cpu: DiffViT, moon @ asr_correct")
