"""The page says what the rows say, and a browser shows it."""

import copy
import html
import re

import numpy as np
import pytest
from PIL import Image

from antiphase.config import Budget
from antiphase.report.findings import findings, interval_of, percent
from antiphase.report.page import write_report
from antiphase.studies.compare import compare, differences
from antiphase.studies.config import CompareConfig


@pytest.fixture(scope="module")
def comparison(pair, digits):
    eps = tuple(Budget(f"{e}/255") for e in (4, 12, 24, 48))
    return compare(
        pair,
        digits[1].subset(120),
        CompareConfig(eps=eps, steps=10, runs=2, draws=8, probes=8, measure_images=32, accuracy_floor=0.5),
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
        for test in (row["all"], row["both_right"]):
            test["only_first"], test["only_second"] = test["only_second"], test["only_first"]
            test["first"], test["second"] = test["second"], test["first"]
    return other


def decided(comparison, loser):
    """The same rows with one model fooled far more often at every budget."""
    rows = copy.deepcopy(comparison)
    more, less = {"first": 60, "only_first": 30}, {"second": 32, "only_second": 2}
    if loser == 1:
        more, less = {"second": 60, "only_second": 30}, {"first": 32, "only_first": 2}
    for row in rows["paired"]:
        row["both_right"].update(more, **less, p_holm=1e-5)
    return rows


def test_swapping_the_rows_changes_the_headline(comparison):
    before, after = findings(decided(comparison, 1))[0], findings(swapped(decided(comparison, 1)))[0]
    assert before.startswith("DiffViT is easier to fool than ViT")
    assert after.startswith("ViT is easier to fool than DiffViT")


def test_every_finding_follows_the_rows(comparison):
    before, after = findings(comparison), findings(swapped(comparison))
    assert len(before) == len(after)
    caveat = before.pop(), after.pop()
    assert caveat[0] == caveat[1]
    assert all(a != b for a, b in zip(before[1:], after[1:]))


def test_the_headline_admits_when_nothing_differs_or_the_sign_changes(comparison):
    even = copy.deepcopy(comparison)
    for row in even["paired"]:
        row["both_right"]["p_holm"] = 0.4
    assert findings(even)[0].startswith("no difference in robustness between ViT and DiffViT could be shown")
    mixed = decided(comparison, 1)
    mixed["paired"][0]["both_right"].update(only_first=30, only_second=2)
    assert findings(mixed)[0].startswith("neither is the more robust")


def test_no_verdict_is_given_on_weak_models_or_at_a_scale_without_verdicts(comparison):
    weak = decided(comparison, 1)
    weak["models"][0]["test_accuracy"] = 0.2
    assert findings(weak)[0].startswith("No verdict: ViT stayed below 50 % test accuracy")
    weak["config"]["accuracy_floor"] = None
    assert findings(weak)[0].startswith("No verdict is given at this scale")


def test_the_paired_test_is_about_images_that_both_classify_correctly(comparison):
    first, second = (side["attacks"] for side in comparison["models"])
    for row, a, b in zip(comparison["paired"], first, second):
        images = [cell["images"] for cell in (a, b)]
        n = sum(x == y == label for x, y, label in zip(images[0]["clean"], images[1]["clean"], images[0]["label"]))
        assert row["both_right"]["n"] == n < row["all"]["n"] == 120


def test_differences_between_the_runs_are_said(pair, digits, tmp_path):
    from antiphase.models import ViTConfig
    from antiphase.training import TrainConfig
    from antiphase.training.loop import train

    other = train(ViTConfig(patch=2, width=32, heads=4), TrainConfig(epochs=1), *digits, tmp_path / "other")
    assert differences(*pair) == []
    assert "epochs: 40 and 1" in differences(pair[0], other)
    assert "width: 64 and 32" in differences(pair[0], other)


def test_the_page_carries_every_number_with_its_interval(comparison, page):
    cells = re.findall(r"<td>(.*?)</td>", page.read_text())
    expected = [
        f"{percent(rate)}<small>{interval_of(rate)}</small>"
        for attacks in zip(*(side["attacks"] for side in comparison["models"]))
        for cell in attacks
        for rate in (cell["rates"][name] for name in ("robust_accuracy", "asr_change", "asr_correct"))
    ]
    assert [cell for cell in cells if "<small>" in cell] == expected
    for sentence in findings(comparison):
        assert html.escape(sentence, quote=False).replace('"', "&#34;").replace("'", "&#39;") in page.read_text()


def test_the_page_is_one_file_without_scripts_or_network(page):
    text = page.read_text()
    assert "<script" not in text
    assert not re.search(r'(src|href)="https?:', text)
    assert text.count("<svg") == 3


def test_the_same_rows_give_the_same_bytes(comparison, page, tmp_path):
    assert write_report(comparison, tmp_path).read_bytes() == page.read_bytes()


def test_a_comparison_without_a_commonly_lost_image_has_no_pictures(comparison, tmp_path):
    text = write_report(comparison | {"pictures": None}, tmp_path).read_text()
    assert text.count("<svg") == 2


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
