"""The page says what the rows say; tests/report/test_lens_page.py looks at it in a browser."""

import copy
import csv
import html
import re
import shlex
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from antiphase.report.figures.models.figure1 import picture_figure
from antiphase.report.figures.models.models import success_figure
from antiphase.report.figures.models.render import svg_of
from antiphase.report.figures.models.study import axis_of, drawn_as, figure_of, split_label
from PIL import Image

from antiphase import files
from antiphase.attacks import PGD, Linf
from antiphase.config import InputError
from antiphase.paper.catalog import studies
from antiphase.paper.claims import CLAIMS
from antiphase.paper.grid import Setting
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import ordered
from antiphase.paper.study import Line
from antiphase.report import theme
from antiphase.report.numbers import interval_of, percent
from antiphase.report.page import write_page
from antiphase.report.page_parts import Contrast, Page, Section, Slot, Table, Verdict, study_table
from antiphase.report.pages.cards import needs_data
from antiphase.report.pages.comparison import comparison_page
from antiphase.report.pages.ledger import ledger_page, verdict_of
from antiphase.report.pages.runs import runs_page
from antiphase.report.sentences import STATUSES, findings, headline, sentence
from antiphase.results.branch_picture import branches
from antiphase.results.compare import differences


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
    for said in findings(comparison):
        assert html.escape(said, quote=False).replace('"', "&#34;").replace("'", "&#39;") in page.read_text()


def test_the_page_asks_nothing_of_the_network_and_is_small(page):
    text = page.read_text()
    assert not re.search(r'(src|href)="(https?:|//)', text)
    assert "default-src 'none'" in text
    assert text.count("<svg") == 4  # two panels a figure
    assert len(text) < 6e6


def test_the_same_rows_give_the_same_bytes(comparison, page, tmp_path):
    again = write_page(comparison_page(comparison), tmp_path)
    for path in (page.parent / "data").iterdir():
        assert (again.parent / "data" / path.name).read_bytes() == path.read_bytes(), path.name
    assert again.read_bytes() == page.read_bytes()


def test_every_figure_lies_beside_the_page_as_png_pdf_and_data(comparison, page):
    text, data = page.read_text(), page.parent / "data"
    linked = set(re.findall(r'href="data/([^"]+)"', text))
    assert linked == {path.name for path in data.iterdir()}
    assert {"attack-success.png", "attack-success.pdf", "sensitivity.png", "sensitivity.pdf"} <= linked
    assert Image.open(data / "attack-success.png").size[0] > 1000
    rows = list(csv.DictReader((data / "attack-success.csv").open()))
    first = comparison["models"][0]["attacks"][0]["rates"]["asr_change"]
    assert float(rows[0]["value"]) == first["value"]
    assert [float(rows[0]["low"]), float(rows[0]["high"])] == first["interval"]


def test_a_comparison_without_looks_says_how_to_get_them(comparison, tmp_path):
    old = {key: value for key, value in comparison.items() if key != "looks"}
    text = write_page(comparison_page(old), tmp_path).read_text()
    folders = " ".join(side["folder"] for side in old["models"])
    assert f"antiphase compare {folders} --out FOLDER" in text
    assert "DecompressionStream" not in text


# ------------------------------------------------------------------------------------------------- verdicts


def contrast(value, low, high, name="DiffViT − ViT"):
    return Contrast(name=name, value=value, interval=(low, high), n=512)


def test_the_words_of_a_verdict_name_its_status_its_weakest_contrast_and_n():
    both = (contrast(12.3, 8.1, 16.4, "at 1/255"), contrast(4.0, 1.0, 7.0, "at 4/255"))
    held = Verdict(claim="K1", text="easier to fool", status="supported", contrasts=both)
    assert sentence(held) == "K1 is supported: +4 points [+1, +7] for at 4/255 (n = 512), and 1 other contrast."
    against = replace(held, status="not supported", contrasts=(contrast(-3.0, -5.0, -1.0, "at 1/255"),))
    assert sentence(against) == "K1 is not supported: -3 points [-5, -1] for at 1/255 (n = 512)."
    missing = Verdict(claim="K9", text="", status="not tested here", because="no CLIP pair was given")
    assert sentence(missing) == "K9 is not tested here: no CLIP pair was given."
    undefined = replace(
        held, status="inconclusive", contrasts=(Contrast(name="gap", value=None, n=0),), because="n = 0"
    )
    assert sentence(undefined) == "K1 is inconclusive: n = 0."


def test_a_stand_in_is_never_counted_among_the_papers_claims():
    own = Verdict(claim="K1", text="", status="supported")
    stand_in = Verdict(claim="K9", text="", status="supported", surrogate=True)
    assert (
        headline([own, own, replace(own, status="inconclusive")])
        == "Of 3 claims 2 are supported and 1 is inconclusive."
    )
    assert "1 further claim was tested on a stand-in only" in headline([own, stand_in])
    assert headline([]) == "No claim has been put to the test yet."
    assert "decides nothing of the paper's own models" in sentence(stand_in)


def test_another_status_changes_the_sentence():
    one = Verdict(claim="K1", text="", status="supported", contrasts=(contrast(1.0, 0.5, 1.5),))
    said = {sentence(replace(one, status=status)) for status in STATUSES}
    assert len(said) == len(STATUSES)


# ------------------------------------------------------------------------------------------------- tables


def lines():
    told = Line(
        label="ViT, eps 1/255",
        reading="asr_change",
        value=0.4321,
        interval=(0.39, 0.47),
        n=512,
        seeds=3,
        reference=0.41,
    )
    return [asdict(told), asdict(replace(told, label="DiffViT, eps 1/255", value=None, note="not run yet"))]


def test_a_study_table_has_the_five_columns_and_names_what_failed(tmp_path):
    table = study_table("table1", "Table 1", lines(), failed=["DiffViT: out of memory <now>"])
    titles = [c.title for c in table.columns]
    assert titles == ["what", "reference", "ours", "reading", "n", "seeds", "95 % interval"]
    first, second = ([v.text for v in row] for row in table.rows)
    assert first == ["ViT, eps 1/255", "41.0 %", "43.2 %", "asr_change", "512", "3", "[39.0, 47.0]"]
    assert second[2] == "not run yet"
    page = Page(title="x", lede="", sections=(Section(name="t", title="T", parts=(table,)),))
    text = write_page(page, tmp_path).read_text()
    assert "Failed:</strong> DiffViT: out of memory &lt;now&gt;" in text
    rows = list(csv.DictReader((tmp_path / "data/table1.csv").open()))
    assert rows[0]["ours"] == "0.4321"
    assert rows[1]["ours"] == ""


def test_the_axis_of_a_studys_figure_is_what_its_labels_number():
    assert axis_of(["ViT, cifar10, eps 0.25/255", "DiffViT, cifar10, eps 1/255"]) == "eps"
    assert axis_of(["ViT, depth 1, eps 1/255", "ViT, depth 4, eps 1/255", "ViT, depth 12, eps 4/255"]) == "depth"
    assert axis_of(["DiffViT, layer 1", "control: pseudo"]) is None
    assert split_label("ViT, digits, patch 2 x 2", "patch") == ("ViT, digits", 2.0)
    assert split_label("lambda_init 0.85, gain fixed at 0.2", "lambda_init") == ("gain fixed at 0.2", 0.85)


def test_a_figure_of_a_study_draws_what_is_there_and_nothing_else():
    assert figure_of("x", "X", [lines()[1]], {}) is None
    figure = figure_of("x", "X", lines(), {"ViT": 0})
    assert figure.data["value"] == [0.4321]
    assert "ViT, eps 1/255: 43.2 %" in figure.alt
    assert "hollow mark is the paper's number" in figure.note
    assert "intervals over seeds and images." in figure.note
    assert "intervals over images." in figure_of("x", "X", [{**lines()[0], "seeds": 1}], {"ViT": 0}).note
    assert svg_of(figure.panels[0]).count("var(--m0)") >= 1


def test_a_page_without_rows_verdicts_or_models_says_so(tmp_path):
    empty = study_table("table1", "Table 1", [])
    slot = Slot(study="fig3", command="antiphase study run fig3 --scale cpu")
    page = Page(
        title="Nothing yet",
        lede="",
        headline=headline(()),
        sections=(Section(name="s", title="S", parts=(empty, slot)),),
    )
    text = write_page(page, tmp_path).read_text()
    assert "No claim has been put to the test yet." in text
    assert "There are no rows yet." in text
    assert "antiphase study run fig3 --scale cpu" in text


def test_figure_1_shows_the_models_own_maps_on_scales_that_are_named(pair, digits, tmp_path):
    few = digits[1].subset(16)
    seen = branches(pair[1].classifier_for(few), few, PGD(within=Linf("48/255"), steps=5), probes=4)
    figure = picture_figure("fig1", seen)
    page = Page(title="x", lede="", sections=(Section(name="s", title="S", parts=(figure,)),))
    text = write_page(page, tmp_path).read_text()
    assert len(figure.panels) == 2
    assert text.count("data:image/png") == 2  # the six pictures of each state
    assert f"A1 − {seen['states']['clean']['lambda']:.2f} A2" in text
    assert f"“{seen['states']['attacked']['prediction']}”" in text
    assert "A1, 0 to " in text
    rows = list(csv.DictReader((tmp_path / "data/fig1-figure.csv").open()))
    assert float(rows[1]["cos"]) == seen["states"]["attacked"]["cos"]


# ------------------------------------------------------------------------------------------------- runs


def test_runs_become_a_page_from_their_folders_alone(pair, comparison, tmp_path):
    page = runs_page([run.folder for run in pair])
    text = write_page(page, tmp_path).read_text()
    tables = [p for p in page.sections[0].parts if isinstance(p, Table)]  # one an attack that these runs have met
    first = comparison["models"][0]["attacks"][0]["rates"]["robust_accuracy"]
    assert [model.name for model in runs_page([run.folder for run in reversed(pair)]).models] == ["ViT", "DiffViT"]
    rows = [(row[2].text, row[6].text) for table in tables for row in table.rows if len(row) > 6]
    assert (percent(first), interval_of(first)) in rows
    assert "lens-packed-1" in text


def test_one_run_without_results_is_a_page_of_slots_and_a_broken_cell_is_named(pair, tmp_path):
    alone = tmp_path / "alone"
    shutil.copytree(pair[1].folder, alone, ignore=shutil.ignore_patterns("attacks", "measures", "looks", "evals"))
    commands = [part.command for section in runs_page([alone]).sections for part in section.parts]
    assert [c.split()[1] for c in commands] == ["attack", "measure", "eval"]
    assert runs_page([alone]).no_lens.command == f"antiphase look {alone}"
    (alone / "attacks").mkdir()
    (alone / "attacks" / "x.json").write_text("{")
    text = write_page(runs_page([alone]), tmp_path / "page").read_text()
    assert "A stored result could not be read" in text
    assert "x.json is not valid JSON" in text


def test_other_prompts_are_another_question_and_of_one_question_the_latest_answer_is_shown(pair, comparison, tmp_path):
    run = tmp_path / "it's a$\\x$"
    shutil.copytree(pair[1].folder, run, ignore=shutil.ignore_patterns("attacks", "measures", "looks", "evals"))
    commands = [part.command for section in runs_page([run]).sections for part in section.parts]
    assert all(shlex.split(c)[2] == str(run) for c in commands)
    attack, measured = comparison["models"][1]["attacks"][0], comparison["models"][1]["lipschitz"]
    for prompts in ("paper", "a"):
        files.write_json(run / "attacks" / f"{prompts}.json", {**attack, "prompts": prompts})
        files.write_json(run / "measures" / f"{prompts}.json", {**measured, "prompts": prompts})
        files.write_json(run / "measures" / f"{prompts}-again.json", {**measured, "prompts": prompts})
    rows = [{"name": "top-1", "value": 0.5, "n": 100, "interval": [0.4, 0.6], "of": "images", "chance": 0.1}]
    files.write_json(run / "evals" / "x.json", {"rows": rows, "data": {**attack["data"], "name": "pets"}, "seed": 0})
    page = runs_page([run])
    attacks, inside, evals = (section.parts for section in page.sections)
    assert sorted(re.search("prompts (\\w+)", table.note)[1] for table in attacks) == ["a", "paper"]
    assert [len(figure.data["value"]) for figure in inside] == [len(measured["rows"]["max"])] * 2
    assert [v.text for v in evals[0].rows[0]][2:] == ["50.0 %", "top-1", "100", "1", "[40.0, 60.0]"]
    assert (evals[0].data["low"], evals[0].data["high"]) == ([0.4], [0.6])
    n = pair[1].about["data"]["test"]["images"]
    assert dict(page.models[0].facts)["test accuracy"].small.endswith(f"], n = {n}")
    write_page(page, tmp_path / "page")


def test_a_converted_clip_is_told_to_name_images():
    assert needs_data({"data": {}})
    assert not needs_data({"data": {"class_names": ["cat"]}})


def test_names_in_a_figure_stand_as_they_are_written(comparison):
    names = ("a$\\x$", "_clip")
    cells = [side["attacks"] for side in comparison["models"]]
    figure = success_figure("x", "X", [(name, i, cells[i]) for i, name in enumerate(names)])
    text = svg_of(figure.panels[0])
    assert all(name in text for name in names)


def test_a_page_too_large_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("antiphase.report.page.LARGEST", 1000)
    with pytest.raises(InputError, match="fewer images in antiphase look"):
        write_page(Page(title="x", lede=""), tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_what_is_no_model_never_has_the_look_of_one():
    places = {"ViT": 0, "DiffViT": 1}
    models = [drawn_as(f"{name}, digits", places, 5) for name in places]
    others = [drawn_as("control: pseudo", places, i) for i in range(6)]
    assert [m["color"] for m in models] == list(theme.MODELS[:2])
    assert not {o["color"] for o in others} & set(theme.MODELS)
    assert not {o["marker"] for o in others} & set(theme.MARKERS)


# ------------------------------------------------------------------------------------------------- a ledger


@pytest.fixture
def ledger(tmp_path):
    """A ledger with a failed cell and a damaged row, as the runner leaves them."""
    setting = Setting.at("smoke")
    cell = next(c for c in ordered(studies()["fig2a"].cells(setting)))
    made = Ledger(tmp_path / "ledger")
    made.fail(cell, {"key": cell.key, "title": cell.title, "error": "the loss is not finite"})
    made.row_path("broken").parent.mkdir(parents=True)
    made.row_path("broken").write_text("{")
    return made.folder


def test_an_empty_ledger_is_a_page_of_commands(tmp_path, cli):
    (tmp_path / "rows").mkdir()
    code, out, err = cli("report", tmp_path, "--scale", "cpu")
    assert code == 0, err
    text = html.unescape(Path(out.strip()).read_text())
    assert f"Of {len(CLAIMS)} claims {len(CLAIMS)} are not tested here." in text
    for name in studies():
        assert f"antiphase study run {name} --scale cpu --ledger {tmp_path}" in text
    pair = [Setting.at("cpu").vit(0).key, Setting.at("cpu").diffvit(0).key]
    assert "antiphase look " + " ".join(f"{tmp_path}/runs/{key}" for key in pair) + " --scale cpu" in text


def test_a_failed_cell_and_a_damaged_row_are_said_and_smoke_gives_no_verdict(ledger, tmp_path):
    page = ledger_page(ledger, "smoke")
    text = html.unescape(write_page(page, tmp_path / "page").read_text())
    assert page.headline.startswith("No verdicts: the smoke scale is for tests")
    assert "the loss is not finite" in text
    assert "broken.json is damaged" in text


def test_a_verdict_of_the_ledger_becomes_one_of_the_page_in_points():
    common = {"reading": "asr_change", "right": 300, "n": 512, "surrogate": False, "name": "gap at 1/255"}
    row = {
        "claim": "K1",
        "statement": "it is easier to fool",
        "reading": "asr_change",
        "verdict": "supported",
        "why": "a; b; c",
        "contrasts": [
            {**common, "value": 0.12, "interval": [0.1, 0.15]},
            {**common, "value": 0.5, "interval": None, "reading": "asr_correct"},
            {**common, "value": None, "interval": None},
        ],
    }
    verdict = verdict_of(row)
    assert [c.value for c in verdict.contrasts] == [12.0]
    assert verdict.contrasts[0].interval == pytest.approx((10, 15))
    assert sentence(verdict) == "K1 is supported: +12 points [+10, +15] for gap at 1/255 (n = 512); a, and 2 more."


# ------------------------------------------------------------------------------------------------- colours


def luminance(colour):
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


LUMA = np.array([0.2126, 0.7152, 0.0722])
BLINDNESS = {  # Machado, Oliveira and Fernandes 2009, complete
    "none": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
}


@pytest.mark.parametrize("kind", BLINDNESS)
@pytest.mark.parametrize(("colours", "ground"), [(theme.MODELS, "#ffffff"), (theme.MODELS_DARK, "#101419")])
def test_models_are_told_apart_by_colour_blind_readers_and_stand_out(colours, ground, kind):
    seen = [np.clip(BLINDNESS[kind] @ luminance(c), 0, 1) ** (1 / 2.2) for c in colours]
    apart = min(np.linalg.norm(a - b) for i, a in enumerate(seen[:2]) for b in seen[:i])
    assert apart > 0.3  # the two of a comparison; more models also differ by mark and line
    back = luminance(ground) @ LUMA
    for colour in colours:
        light, dark = sorted((luminance(colour) @ LUMA, back), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 4.5


def test_a_model_has_one_colour_in_card_table_figure_and_lens(page):
    text = page.read_text()
    assert re.search(r'<article class="card m1">\s*<h2>DiffViT', text)
    assert re.search(r'class="group m1"><span class="dot"></span>DiffViT', text)
    assert '"name":"DiffViT","place":1' in text
    assert text.count("var(--m1)") > 4
    assert theme.MODELS[1] not in text.replace(f"--m1: {theme.MODELS[1]}", "")
