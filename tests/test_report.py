"""The page says what the rows say, and a browser shows it."""

import copy
import re

import numpy as np
import pytest
from PIL import Image

from antiphase.config import Budget
from antiphase.report.findings import findings
from antiphase.report.page import write_report
from antiphase.studies.compare import compare
from antiphase.studies.config import CompareConfig


@pytest.fixture(scope="module")
def comparison(pair, digits):
    eps = tuple(Budget(f"{e}/255") for e in (4, 12, 24, 48))
    return compare(
        pair, digits[1].subset(120), CompareConfig(eps=eps, steps=10, runs=2, draws=8, probes=8, measure_images=32)
    )


@pytest.fixture(scope="module")
def page(comparison, tmp_path_factory):
    return write_report(comparison, tmp_path_factory.mktemp("page"))


def swapped(comparison):
    """The two models' rows change places; their names stay."""
    other = copy.deepcopy(comparison)
    names = [side["name"] for side in other["models"]]
    other["models"].reverse()
    for side, name in zip(other["models"], names):
        side["name"] = name
    for row in other["paired"]:
        row["only_first"], row["only_second"] = row["only_second"], row["only_first"]
    return other


def decided(comparison, loser):
    """The same rows with one model fooled far more often at every budget."""
    rows = copy.deepcopy(comparison)
    for row in rows["paired"]:
        row["only_first"], row["only_second"] = (30, 2) if loser == 0 else (2, 30)
        row["p_holm"] = 1e-5
    return rows


def test_swapping_the_rows_changes_the_headline(comparison):
    before, after = findings(decided(comparison, 1))[0], findings(swapped(decided(comparison, 1)))[0]
    assert before.startswith("DiffViT is easier to fool than ViT")
    assert after.startswith("ViT is easier to fool than DiffViT")


def test_the_other_findings_follow_the_rows_too(comparison):
    assert findings(comparison)[1:] != findings(swapped(comparison))[1:]


def test_the_headline_admits_when_nothing_differs_or_the_sign_changes(comparison):
    even = copy.deepcopy(comparison)
    for row in even["paired"]:
        row["p_holm"] = 0.4
    assert "about equally often" in findings(even)[0]
    mixed = decided(comparison, 1)
    mixed["paired"][0].update(only_first=30, only_second=2)
    assert findings(mixed)[0].startswith("Neither model is the more robust one")


def test_the_page_carries_every_number_with_its_interval(comparison, page):
    html = page.read_text()
    for side in comparison["models"]:
        for cell in side["attacks"]:
            rate = cell["rates"]["asr_change"]
            low, high = (100 * v for v in rate["interval"])
            assert f"{100 * rate['value']:.1f} %" in html
            assert f"[{low:.1f}, {high:.1f}]" in html
    assert findings(comparison)[1] in html
    assert f"n = {comparison['models'][0]['lipschitz']['data']['n']}" in html


def test_the_page_is_one_file_without_scripts_or_network(page):
    html = page.read_text()
    assert "<script" not in html
    assert not re.search(r'(src|href)="https?:', html)
    assert html.count("<svg") == 3


def test_the_same_rows_give_the_same_bytes(comparison, page, tmp_path):
    assert write_report(comparison, tmp_path).read_bytes() == page.read_bytes()


def test_a_comparison_without_a_commonly_lost_image_has_no_pictures(comparison, tmp_path):
    html = write_report(comparison | {"pictures": None}, tmp_path).read_text()
    assert html.count("<svg") == 2


def test_maps_of_the_picture_are_the_models_own(comparison):
    clean = comparison["pictures"]["models"][1]["clean"]
    a1, a2, both = (np.array(clean[key]) for key in ("A1", "A2", "combined"))
    assert both == pytest.approx(a1 - clean["lambda"] * a2, abs=1e-6)
    assert clean["prediction"] == comparison["pictures"]["label"]
    assert comparison["pictures"]["models"][1]["attacked"]["prediction"] != clean["prediction"]


@pytest.mark.parametrize("width", [1100, 420])
def test_a_browser_shows_the_page_whole(page, browser, tmp_path, width):
    """Nothing but the table may be wider than the window, on a desk or in a hand; the picture is not blank."""
    shot = tmp_path / "page.png"
    browser(page, f"--window-size={width},2600", "--hide-scrollbars", f"--screenshot={shot}", profile=tmp_path / "a")
    image = Image.open(shot).convert("L")
    assert image.size[0] == width
    colours = image.getcolors(maxcolors=256)
    assert colours is not None
    assert len(colours) > 50
    right_edge = image.crop((width - 4, 0, width, 2600))
    assert right_edge.getextrema() == (255, 255)  # nothing runs off the page
    dom = browser(page, "--dump-dom", profile=tmp_path / "b")
    assert 'id="headline"' in dom
