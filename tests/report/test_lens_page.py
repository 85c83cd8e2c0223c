"""The page in a real browser: it opens quietly, the lens answers hands, keys and links, and everybody can read it."""

import copy
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from antiphase.measures.stats import Contrast, Verdict
from antiphase.report.page import write_page
from antiphase.report.page_parts import Page, Section, Slot, study_table
from antiphase.report.pages.comparison import comparison_page
from antiphase.report.sentences import headline
from tests.conftest import violations
from tests.packed_looks import read_look

DEVICES = [(1280, 900), (390, 844)]
LINK = "#lens?image={}&eps=24/255&layer=1&head=2&query=2.3&left=ViT&right=DiffViT"


def hash_of(seen):
    return dict(part.split("=") for part in seen.evaluate("location.hash").removeprefix("#lens?").split("&"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), DEVICES)
def test_the_page_opens_quietly_fits_and_passes_axe(visit, page, axe, tmp_path, width, height, scheme):
    seen = visit(page, width=width, height=height, scheme=scheme)
    assert violations(seen, axe) == []
    assert seen.evaluate("document.documentElement.scrollWidth") == width  # nothing runs off the page
    shot = tmp_path / f"{width}-{scheme}.png"
    seen.screenshot(path=shot, full_page=True)
    image = Image.open(shot).convert("RGB")
    assert len(image.getcolors(maxcolors=10**6)) > 200
    corner = image.getpixel((2, 400))
    assert (max(corner) < 40) == (scheme == "dark")


def test_a_click_chooses_the_query_and_the_address_follows(visit, page):
    seen = visit(page)
    canvas = seen.locator('.look:nth-child(2) canvas[data-kind="A1"][data-state="clean"]')
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.6, "y": box["height"] * 0.3})  # 4 x 4 patches
    assert hash_of(seen)["query"] == "2.3"
    assert "row 2, column 3" in seen.locator(".state").inner_text()


def test_keys_move_the_query_and_choose_image_budget_and_head(visit, page):
    seen = visit(page)
    seen.locator('canvas[data-kind="pixels"][data-state="clean"]').first.focus()
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
        seen.keyboard.press(key)
        assert hash_of(seen)[name] == value, key
    before = hash_of(seen)
    seen.keyboard.press("n")
    seen.keyboard.press("b")
    after = hash_of(seen)
    assert after["image"] != before["image"]
    assert after["eps"] != before["eps"]
    seen.keyboard.press("p")
    seen.keyboard.press("Shift+b")
    assert hash_of(seen) == before


def test_a_link_restores_the_view_exactly_and_nonsense_is_ignored(visit, page, comparison):
    ids = comparison["looks"][0]["ids"]
    first = visit(page, LINK.format(ids[5]))
    told = first.locator("#lens-root").inner_text()
    assert hash_of(first)["query"] == "2.3"
    assert "row 2, column 3" in told
    assert "attacked within 24/255" in told
    again = visit(page, first.evaluate("location.hash"))
    assert again.locator("#lens-root").inner_text() == told
    assert again.evaluate("scrollY") > 200  # the lens is in view
    again.evaluate(f"location.hash = '{LINK.format(ids[2])}'")
    again.wait_for_function("document.querySelector('.state').textContent.startsWith('Image 3 of 8')")
    plain = visit(page).locator("#lens-root").inner_text()
    wrong = visit(page, "#lens?image=-1&eps=x&layer=99&head=99&query=9.9&left=<b>&right=")
    assert wrong.locator("#lens-root").inner_text() == plain


def test_hovering_names_the_patch_and_the_value_of_the_model_itself(visit, page, comparison):
    cell = comparison["looks"][1]
    ids = cell["ids"]
    seen = visit(page, LINK.format(ids[5]))
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
        canvas = seen.locator(f'.look:nth-child(2) canvas[data-kind="{kind}"][data-state="{shown}"]')
        box = canvas.bounding_box()
        canvas.hover(position={"x": box["width"] * 0.1, "y": box["height"] * 0.9})
        tip = seen.locator(".tip").inner_text()
        assert tip.startswith("row 4, column 1: ")
        number = float(re.search(r"([−\d.e]+) %$", tip)[1].replace("−", "-"))
        assert number == pytest.approx(100 * value, rel=0.06, abs=1e-4)


def test_the_cards_show_prediction_lambda_alignment_energy_and_angle(visit, page, comparison):
    cell = comparison["looks"][1]
    seen = visit(page, LINK.format(cell["ids"][5]))
    rows = cell["rows"]
    state = cell["eps"].index(24 / 255) + 1
    wanted = {"state": state, "of": "jacobians", "head": 1, "image": cell["ids"][5]}
    (at,) = [i for i in range(len(rows["cos"])) if all(rows[k][i] == v for k, v in wanted.items())]
    card = seen.locator(".look").nth(1)
    line = card.locator("tbody tr").nth(1).inner_text().replace("−", "-").split("\t")
    expected = [rows[name][at] for name in ("cos", "energy", "angle", "amplification")]
    assert [float(v) for v in line[1:]] == pytest.approx(expected, abs=0.006)
    assert f"λ = {cell['layers'][0]['lambda']:.3f}" in card.inner_text()
    guess, p = cell["predictions"][state][5][0]
    assert f"{cell['class_names'][guess]} at {100 * p:.0f}" in seen.locator(".state").inner_text()
    factor = card.locator('.view:has(canvas[data-kind="pixels"][data-state="change"]) p').inner_text()
    assert float(factor.removeprefix("× ")) == pytest.approx(0.5 / (24 / 255), rel=0.01)


def test_every_picture_has_a_text_that_says_what_it_shows(visit, page):
    seen = visit(page)
    for label in seen.eval_on_selector_all(".view canvas", "all => all.map(c => c.getAttribute('aria-label'))"):
        assert len(label) > 20
    before = seen.locator('canvas[data-kind="A1"]').first.get_attribute("aria-label")
    assert "seen from the class token: strongest at row" in before
    seen.locator('select[data-choice="query"]').select_option("3")
    after = seen.locator('canvas[data-kind="A1"]').first.get_attribute("aria-label")
    assert "seen from the patch in row 1, column 3" in after
    assert all(seen.locator(".panels").nth(i).get_attribute("aria-label") for i in range(2))
    assert seen.locator(".state").get_attribute("aria-live") == "polite"


def test_the_theme_can_be_turned_and_motion_is_left_out_where_it_is_not_wanted(visit, page):
    seen = visit(page, reduced_motion="reduce")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = seen.evaluate(ground)
    seen.locator("#theme").click()
    assert seen.evaluate(ground) != light
    assert "Light" in seen.locator("#theme").inner_text()
    assert seen.evaluate("getComputedStyle(document.querySelector('.guess i')).transitionDuration") == "0s"
    assert seen.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_on_paper_the_lens_shows_what_was_chosen_without_its_controls(visit, page, tmp_path):
    seen = visit(page, scheme="dark")
    seen.emulate_media(media="print")
    assert not seen.locator(".lens-controls").is_visible()
    assert seen.locator(".state").is_visible()
    assert seen.locator(".view canvas").first.is_visible()
    assert seen.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    seen.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 20_000


def test_without_scripts_everything_but_the_lens_is_there(page, chromium):
    context = chromium.new_context(java_script_enabled=False, color_scheme="dark")
    seen = context.new_page()
    seen.goto(page.resolve().as_uri())
    assert seen.locator("#headline").is_visible()
    assert "needs JavaScript" in seen.locator("#lens").inner_text()
    context.close()


def test_names_that_look_like_markup_show_as_text(visit, comparison, tmp_path):
    evil = "<script>alert('x')</script>"
    rows = copy.deepcopy(comparison)
    rows["models"][1]["name"] = f"<b>{evil}"
    for cell in rows["looks"]:
        cell["class_names"] = [f"{evil}{i}" for i in range(10)]
    seen = visit(write_page(comparison_page(rows), tmp_path))
    assert f"<b>{evil}" in seen.locator("h1").inner_text()
    assert evil in seen.locator(".state").inner_text()
    assert evil in seen.locator(".thumb").first.inner_text()
    assert seen.locator(".look h3").nth(1).inner_text() == f"<b>{evil}"
    assert seen.locator("#lens script, h1 script, .card b").count() == 0


def test_one_model_alone_and_layers_or_heads_that_one_of_two_lacks(visit, comparison, tmp_path):
    (first, second), base = comparison["looks"], Page(title="one", lede="")
    alone = visit(write_page(Page(title="one", lede="", looks=(("DiffViT", second),)), tmp_path / "a"))
    assert alone.locator(".look").count() == 1
    assert "right" not in hash_of_after_key(alone)
    both = Page(title="two", lede=base.lede, looks=(("ViT", first), ("DiffViT", second), ("again", first)))
    seen = visit(write_page(both, tmp_path / "b"))
    seen.locator('select[data-choice="head"]').select_option("4")
    assert "head 4 of 4" in seen.locator(".look").nth(0).inner_text()
    assert "head 2 of 2 (it has no head 4)" in seen.locator(".look").nth(1).inner_text()
    seen.locator('select[data-choice="right"]').select_option(label="again")
    assert seen.locator(".look h3").nth(1).inner_text() == "again"


def hash_of_after_key(seen):
    seen.locator('canvas[data-kind="pixels"]').first.focus()
    seen.keyboard.press("n")
    return hash_of(seen)


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
        seen = visit(write_page(page, tmp_path), scheme=scheme, width=390)
        assert violations(seen, axe) == []
    order = [seen.locator(s).first.bounding_box()["y"] for s in ("#headline", ".verdict", "#lens", "#tables")]
    assert order == sorted(order)
    assert seen.locator(".verdict").count() == 4
    assert seen.locator(".untested dt").count() == 1
    assert (
        "+9.0 points [+6.0, +12.0] for DiffViT − ViT at 1/255 (n = 512)" in seen.locator(".verdict").first.inner_text()
    )
    assert "the disk is full" in seen.locator("#tables").inner_text()
    assert "antiphase study run fig3" in seen.locator("#tables").inner_text()
    assert np.isclose(seen.evaluate("document.documentElement.scrollWidth"), 390)
