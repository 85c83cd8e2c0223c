"""The page of a ledger shows its verdicts and studies, and names what failed or is damaged."""

import html
from pathlib import Path

import pytest

from antiphase.paper.catalog import studies
from antiphase.paper.claims import CLAIMS
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.report.page import write_page
from antiphase.report.pages.ledger import ledger_page, verdict_of
from antiphase.report.sentences import sentence


@pytest.fixture
def ledger(tmp_path):
    """A ledger with a failed cell and a damaged row, as the runner leaves them."""
    cell = next(iter(studies()["fig2a"].cells(Grid.at("smoke"))))
    made = Ledger(tmp_path / "ledger")
    made.fail(cell, {"key": cell.key, "title": cell.title, "error": "the loss is not finite"})
    made.rows.path("broken").parent.mkdir(parents=True)
    made.rows.path("broken").write_text("{")
    return made.folder


def test_an_empty_ledger_is_a_page_of_commands(tmp_path, cli):
    (tmp_path / "rows").mkdir()
    code, out, err = cli("report", tmp_path, "--scale", "cpu")
    assert code == 0, err
    text = html.unescape(Path(out.strip()).read_text())
    ours = sum(claim.startswith("E") for claim in CLAIMS)
    assert f"Of {len(CLAIMS) - ours} claims {len(CLAIMS) - ours} are not tested here." in text
    assert f"Of {ours} questions of our own {ours} are not tested here." in text
    for name in studies():
        assert f"antiphase study run {name} --scale cpu --ledger {tmp_path}" in text
    pair = [Grid.at("cpu").vit(0).key, Grid.at("cpu").diffvit(0).key]
    assert "antiphase look " + " ".join(f"{tmp_path}/runs/{key}" for key in pair) + " --scale cpu" in text


def test_a_failed_cell_and_a_damaged_row_are_named_and_smoke_gives_no_verdict(ledger, tmp_path):
    page = ledger_page(ledger, "smoke")
    text = html.unescape(write_page(page, tmp_path / "page").read_text())
    assert page.headline.startswith("No verdicts: the smoke scale is for tests")
    assert "the loss is not finite" in text
    assert "broken.json is damaged" in text


def test_a_verdict_of_the_ledger_keeps_the_contrasts_of_its_first_reading_in_their_units():
    common = {"reading": "asr_change", "right": 300, "n": 512, "seeds": 3, "surrogate": False, "unit": "points"}
    common["shown_only"] = None
    row = {
        "claim": "K1",
        "statement": "it is easier to fool",
        "reading": "asr_change",
        "verdict": "supported",
        "why": "a; b; c",
        "power": "a gap of 5 points would have been seen with probability 0.90",
        "contrasts": [
            {**common, "name": "gap at 1/255", "value": 0.12, "interval": [0.1, 0.15]},
            {**common, "name": "cosine", "value": 0.4, "interval": None, "unit": ""},
            {**common, "name": "gap at 1/255", "value": 0.5, "interval": None, "reading": "asr_correct"},
            {**common, "name": "gap at 2/255", "value": None, "interval": None},
        ],
    }
    verdict = verdict_of(row)
    assert [(c.value, c.unit, c.correct) for c in verdict.contrasts] == [(0.12, "points", 300), (0.4, "", 300)]
    assert sentence(verdict) == (
        "K1 is supported: +12.0 points [+10.0, +15.0] for gap at 1/255 (n = 512), and 1 other contrast; a, and 2 more. "
        "A gap of 5 points would have been seen with probability 0.90."
    )
