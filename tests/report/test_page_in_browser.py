"""The page in a real browser: it opens without errors, the lens follows clicks, keys and links, and it is accessible."""

import copy
import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from antiphase.measures.stats import Contrast, Verdict
from antiphase.report.page import write_page
from antiphase.report.page_parts import Page, Section, Slot, study_table
from antiphase.report.pages.comparison import comparison_page
from antiphase.report.pages.key_numbers import key_numbers
from antiphase.report.sentences import headline
from antiphase.report.theme import MODELS
from tests.conftest import violations
from tests.packed_looks import read_look

DEVICES = [(1280, 900), (390, 844)]
LINK = "#lens?image={}&eps=24/255&layer=1&head=2&query=2.3&left=ViT&right=DiffViT"


def hash_of(tab):
    return dict(part.split("=") for part in tab.evaluate("location.hash").removeprefix("#lens?").split("&"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), DEVICES)
def test_the_page_opens_without_errors_fits_the_screen_and_passes_axe(
    visit, page, axe, tmp_path, width, height, scheme
):
    tab = visit(page, width=width, height=height, scheme=scheme)
    assert violations(tab, axe) == []
    assert tab.evaluate("document.documentElement.scrollWidth") == width  # nothing runs off the page
    shot = tmp_path / f"{width}-{scheme}.png"
    tab.screenshot(path=shot, full_page=True)
    image = Image.open(shot).convert("RGB")
    assert len(image.getcolors(maxcolors=10**6)) > 200
    corner = image.getpixel((2, 400))
    assert (max(corner) < 40) == (scheme == "dark")


def box(tab, selector):
    return tab.locator(selector).bounding_box()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_headline_figure_and_cards_are_the_first_screen_of_a_wide_window(visit, page, scheme):
    tab = visit(page, width=1280, height=800, scheme=scheme)
    headline, figure, cards = (box(tab, selector) for selector in ("#headline", "#attack-success", ".key-numbers"))
    assert headline["x"] + headline["width"] <= figure["x"]  # side by side
    assert figure["y"] <= headline["y"] < headline["y"] + headline["height"] <= figure["y"] + figure["height"]
    assert figure["y"] + figure["height"] <= cards["y"]
    assert cards["y"] + cards["height"] <= 800


def test_on_a_phone_headline_figure_and_cards_follow_each_other_and_nothing_scrolls_sideways(visit, page):
    tab = visit(page, width=390, height=844)
    places = [box(tab, selector) for selector in ("#headline", "#attack-success", ".key-numbers", ".cards", "#lens")]
    for above, below in itertools.pairwise(places):
        assert above["y"] + above["height"] <= below["y"]
    for selector in ("#headline", "#attack-success", ".key-number", ".bar", "#cosines .panels", "#sensitivity .panels"):
        for part in tab.locator(selector).all():
            place = part.bounding_box()
            assert place["x"] >= 0
            assert place["x"] + place["width"] <= 390
    for part in tab.locator(".bar :is(a, summary, button)").all():
        if part.is_visible():
            place = part.bounding_box()
            assert place["x"] + place["width"] <= 390
    assert tab.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("width", [1280, 390])
def test_three_cards_give_one_number_each(visit, page, comparison, width):
    tab = visit(page, width=width)
    cards = tab.locator(".key-number")
    assert cards.locator("h2").all_inner_texts() == ["Fooled", "Sensitive", "Opposed"]
    values = cards.locator(".value").all_inner_texts()
    assert len(values) == 3
    assert all(len(re.findall(r"[\d.]+", value)) == 1 for value in values)
    assert values == [card.value for card in key_numbers(comparison)]


def test_relative_sensitivity_is_seen_until_absolute_is_chosen_by_click_or_key(visit, page, comparison):
    tab = visit(page)
    first, second = (tab.locator("#sensitivity .panels > div").nth(i) for i in range(2))
    for side in comparison["models"]:
        (layer,) = side["lipschitz"]["layers"]
        assert f"mean {layer['relative_max']:.3g}" in first.text_content()
        assert f"mean {layer['max']:.3g}" in second.text_content()
    assert (first.is_visible(), second.is_visible()) == (True, False)
    tab.locator("#sensitivity").get_by_text("absolute", exact=True).click()
    assert (first.is_visible(), second.is_visible()) == (False, True)
    tab.keyboard.press("ArrowLeft")
    assert (first.is_visible(), second.is_visible()) == (True, False)


def test_either_view_of_a_figure_shows_its_curves_in_the_colours_of_the_models(visit, page, tmp_path):
    """matplotlib names clip paths by their shape, so that views share names; what a hidden one clips would be hidden too."""
    tab, shot = visit(page), tmp_path / "figure.png"
    for view in ("correct images", "all images"):
        tab.locator("#attack-success").get_by_text(view, exact=True).click()
        tab.locator("#attack-success .panels").screenshot(path=shot)
        image = np.asarray(Image.open(shot).convert("RGB")).astype(int)
        for colour in MODELS[:2]:
            wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
            assert (np.abs(image - wanted).sum(axis=2) < 40).sum() > 500, (view, colour)  # a legend alone has some 100


def test_undecided_pairs_are_hatched_in_ink_of_the_theme(visit, page, comparison):
    undecided = comparison["models"][1]["alignment"]["layers"][0]["undecided"]["hits"]
    for scheme in ("light", "dark"):
        tab = visit(page, scheme=scheme)
        figure = tab.locator("#cosines")
        assert f"undecided ({undecided} pairs)" in figure.locator("svg").text_content()
        assert f"{undecided} are undecided" in figure.locator(".panels").get_attribute("aria-label")
        assert figure.locator("svg pattern").count() > 0
        assert "var(--soft)" in figure.locator("svg pattern path").first.get_attribute("style")


def test_a_click_chooses_the_query_and_the_address_follows(visit, page):
    tab = visit(page)
    canvas = tab.locator('.look:nth-child(2) canvas[data-kind="A1"][data-state="clean"]')
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.6, "y": box["height"] * 0.3})  # 4 x 4 patches
    assert hash_of(tab)["query"] == "2.3"
    assert "row 2, column 3" in tab.locator(".state").inner_text()


def test_keys_move_the_query_and_choose_image_budget_and_head(visit, page):
    tab = visit(page)
    tab.locator('canvas[data-kind="pixels"][data-state="clean"]').first.focus()
    for key, name, value in [
        ("ArrowDown", "query", "1.1"),
        ("ArrowRight", "query", "1.2"),
        ("ArrowDown", "query", "2.2"),
        ("ArrowLeft", "query", "2.1"),
        ("ArrowLeft", "query", "2.1"),
        ("ArrowUp", "query", "1.1"),
        ("c", "query", "class"),
        ("h", "head", "1"),
        ("Shift+h", "head", "mean"),
    ]:
        tab.keyboard.press(key)
        assert hash_of(tab)[name] == value, key
    before = hash_of(tab)
    tab.keyboard.press("n")
    tab.keyboard.press("b")
    after = hash_of(tab)
    assert after["image"] != before["image"]
    assert after["eps"] != before["eps"]
    tab.keyboard.press("p")
    tab.keyboard.press("Shift+b")
    assert hash_of(tab) == before


def test_a_link_restores_the_view_exactly_and_an_invalid_one_is_ignored(visit, page, comparison):
    ids = comparison["looks"][0]["ids"]
    first = visit(page, LINK.format(ids[5]))
    text = first.locator("#lens-root").inner_text()
    assert hash_of(first)["query"] == "2.3"
    assert "row 2, column 3" in text
    assert "attacked within 24/255" in text
    again = visit(page, first.evaluate("location.hash"))
    assert again.locator("#lens-root").inner_text() == text
    assert again.evaluate("scrollY") > 200  # the lens is in view
    again.evaluate(f"location.hash = '{LINK.format(ids[2])}'")
    again.wait_for_function("document.querySelector('.state').textContent.startsWith('Image 3 of 8')")
    plain = visit(page).locator("#lens-root").inner_text()
    wrong = visit(page, "#lens?image=-1&eps=x&layer=99&head=99&query=9.9&left=<b>&right=")
    assert wrong.locator("#lens-root").inner_text() == plain


def test_hovering_names_the_patch_and_the_value_of_the_model_itself(visit, page, comparison):
    cell = comparison["looks"][1]
    ids = cell["ids"]
    tab = visit(page, LINK.format(ids[5]))
    maps = next(iter(read_look(cell)[2].values()))  # (states, n, branches, h, N, N)
    state, query, key = (
        cell["eps"].index(24 / 255) + 1,
        1 + 1 * 4 + 2,
        1 + 3 * 4 + 0,
    )  # from row 2, column 3 to row 4, column 1
    lam = cell["layers"][0]["lambda"]
    both = maps[:, 5, :, 1, query, key]  # head 2: (states, branches)
    values = {
        ("A1", "clean"): both[0, 0],
        ("A2", "attacked"): both[state, 1],
        ("DA", "attacked"): both[state, 0] - lam * both[state, 1],
    }
    for (kind, shown), value in values.items():
        canvas = tab.locator(f'.look:nth-child(2) canvas[data-kind="{kind}"][data-state="{shown}"]')
        box = canvas.bounding_box()
        canvas.hover(position={"x": box["width"] * 0.1, "y": box["height"] * 0.9})
        tip = tab.locator(".tip").inner_text()
        assert tip.startswith("row 4, column 1: ")
        number = float(re.search(r"([−\d.e]+) %$", tip)[1].replace("−", "-"))
        assert number == pytest.approx(100 * value, rel=0.06, abs=1e-4)


def test_the_cards_show_prediction_lambda_alignment_energy_and_angle(visit, page, comparison):
    cell = comparison["looks"][1]
    tab = visit(page, LINK.format(cell["ids"][5]))
    rows = cell["rows"]
    state = cell["eps"].index(24 / 255) + 1
    wanted = {"state": state, "of": "jacobians", "head": 1, "image": cell["ids"][5]}
    (at,) = [i for i in range(len(rows["cos"])) if all(rows[k][i] == v for k, v in wanted.items())]
    card = tab.locator(".look").nth(1)
    line = card.locator("tbody tr").nth(1).inner_text().replace("−", "-").split("\t")
    expected = [rows[name][at] for name in ("cos", "energy", "angle", "amplification")]
    assert [float(v) for v in line[1:]] == pytest.approx(expected, abs=0.006)
    assert f"λ = {cell['layers'][0]['lambda']:.3f}" in card.inner_text()
    guess, p = cell["predictions"][state][5][0]
    assert f"{cell['class_names'][guess]} at {100 * p:.0f}" in tab.locator(".state").inner_text()
    factor = card.locator('.view:has(canvas[data-kind="pixels"][data-state="change"]) p').inner_text()
    assert float(factor.removeprefix("× ")) == pytest.approx(0.5 / (24 / 255), rel=0.01)


def test_every_picture_has_a_text_that_describes_it(visit, page):
    tab = visit(page)
    for label in tab.eval_on_selector_all(".view canvas", "all => all.map(c => c.getAttribute('aria-label'))"):
        assert len(label) > 20
    before = tab.locator('canvas[data-kind="A1"]').first.get_attribute("aria-label")
    assert "seen from the class token: strongest at row" in before
    tab.locator('select[data-choice="query"]').select_option("3")
    after = tab.locator('canvas[data-kind="A1"]').first.get_attribute("aria-label")
    assert "seen from the patch in row 1, column 3" in after
    assert all(tab.locator(".panels").nth(i).get_attribute("aria-label") for i in range(2))
    assert tab.locator(".state").get_attribute("aria-live") == "polite"


def test_the_theme_can_be_switched_and_reduced_motion_is_respected(visit, page):
    tab = visit(page, reduced_motion="reduce")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(ground)
    tab.locator("#theme").click()
    assert tab.evaluate(ground) != light
    assert "Light" in tab.locator("#theme").inner_text()
    assert tab.evaluate("getComputedStyle(document.querySelector('.guess i')).transitionDuration") == "0s"
    assert tab.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_a_printed_page_shows_the_chosen_view_without_the_controls_of_the_lens(visit, page, tmp_path):
    tab = visit(page, scheme="dark")
    tab.emulate_media(media="print")
    assert not tab.locator(".lens-controls").is_visible()
    assert tab.locator(".state").is_visible()
    assert tab.locator(".view canvas").first.is_visible()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 20_000


def test_without_javascript_only_the_lens_is_missing(page, chromium):
    context = chromium.new_context(java_script_enabled=False, color_scheme="dark")
    tab = context.new_page()
    tab.goto(page.resolve().as_uri())
    assert tab.locator("#headline").is_visible()
    assert "needs JavaScript" in tab.locator("#lens").inner_text()
    context.close()


def test_names_that_look_like_markup_show_as_text(visit, comparison, tmp_path):
    evil = "<script>alert('x')</script>"
    rows = copy.deepcopy(comparison)
    rows["models"][1]["name"] = f"<b>{evil}"
    for cell in rows["looks"]:
        cell["class_names"] = [f"{evil}{i}" for i in range(10)]
    tab = visit(write_page(comparison_page(rows), tmp_path))
    assert f"<b>{evil}" in tab.locator("h1").inner_text()
    assert evil in tab.locator(".state").inner_text()
    assert evil in tab.locator(".thumb").first.inner_text()
    assert tab.locator(".look h3").nth(1).inner_text() == f"<b>{evil}"
    assert tab.locator("#lens script, h1 script, .card b").count() == 0


def test_the_lens_shows_one_model_alone_and_models_with_different_numbers_of_heads(visit, comparison, tmp_path):
    (first, second), base = comparison["looks"], Page(title="one", lede="")
    alone = visit(write_page(Page(title="one", lede="", looks=(("DiffViT", second),)), tmp_path / "a"))
    assert alone.locator(".look").count() == 1
    assert "right" not in hash_of_after_key(alone)
    both = Page(title="two", lede=base.lede, looks=(("ViT", first), ("DiffViT", second), ("again", first)))
    tab = visit(write_page(both, tmp_path / "b"))
    tab.locator('select[data-choice="head"]').select_option("4")
    assert "head 4 of 4" in tab.locator(".look").nth(0).inner_text()
    assert "head 2 of 2 (it has no head 4)" in tab.locator(".look").nth(1).inner_text()
    tab.locator('select[data-choice="right"]').select_option(label="again")
    assert tab.locator(".look h3").nth(1).inner_text() == "again"


def hash_of_after_key(tab):
    tab.locator('canvas[data-kind="pixels"]').first.focus()
    tab.keyboard.press("n")
    return hash_of(tab)


def test_verdicts_come_first_with_their_intervals_and_empty_places_name_a_command(visit, axe, tmp_path):
    points = tuple(
        Contrast(name=f"DiffViT − ViT at {e}/255", value=v, interval=(v - 0.03, v + 0.03), n=512)
        for e, v in ((1, 0.09), (4, 0.02))
    )
    stand_in = replace(points[0], surrogate=True)
    verdicts = (
        Verdict(claim="K1", statement="DiffViT is easier to fool.", outcome="supported", why="", contrasts=points[:1]),
        Verdict(claim="K2", statement="It rises, then falls.", outcome="inconclusive", why="", contrasts=points),
        Verdict(claim="K3", statement="It falls with depth.", outcome="not supported", why="", contrasts=points[1:]),
        Verdict(claim="K9", statement="The same for CLIP.", outcome="not tested here", why="no CLIP pair was given"),
        Verdict(claim="K10", statement="And on ImageNet.", outcome="inconclusive", why="", contrasts=(stand_in,)),
    )
    parts = (
        study_table("table1", "Table 1", [], failed=["the disk is full"]),
        Slot(study="fig3", command="antiphase study run fig3"),
    )
    page = Page(
        title="Ledger",
        lede="Everything that was run.",
        headline=headline(verdicts),
        verdicts=verdicts,
        no_lens=Slot(study="lens", command="antiphase look A B"),
        sections=(Section(name="tables", title="Tables", parts=parts),),
    )
    for scheme in ("light", "dark"):
        tab = visit(write_page(page, tmp_path), scheme=scheme, width=390)
        assert violations(tab, axe) == []
    order = [tab.locator(s).first.bounding_box()["y"] for s in ("#headline", ".verdict", "#lens", "#tables")]
    assert order == sorted(order)
    assert tab.locator(".verdict").count() == 4
    assert tab.locator(".untested dt").count() == 1
    assert (
        "+9.0 points [+6.0, +12.0] for DiffViT − ViT at 1/255 (n = 512)" in tab.locator(".verdict").first.inner_text()
    )
    assert "the disk is full" in tab.locator("#tables").inner_text()
    assert "antiphase study run fig3" in tab.locator("#tables").inner_text()
    assert np.isclose(tab.evaluate("document.documentElement.scrollWidth"), 390)
