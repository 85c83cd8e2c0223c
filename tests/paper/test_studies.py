"""Studies by name: what they ask, and that a run is whole whatever happens to it."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import parquet

from antiphase import store
from antiphase.attacks import Linf, fgsm
from antiphase.clip_scales import CLIP_SCALES
from antiphase.config import InputError
from antiphase.console import duration
from antiphase.models import Differential
from antiphase.models.clip_config import VARIANTS, clip_of_sizes
from antiphase.paper import ledger as ledger_module
from antiphase.paper.catalog import chosen, groups, studies
from antiphase.paper.claims import CLAIMS, verdicts
from antiphase.paper.claims import plans as claim_plans
from antiphase.paper.cost import PROCESSOR_SECONDS, Prices, fit, operations
from antiphase.paper.grid import Grid
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Ask, Model, Train, UserClip
from antiphase.paper.study import Answers, Missing, Tick
from antiphase.report.figures.paper_figures import FIGURES
from antiphase.report.page import write_page
from antiphase.report.pages.ledger import IN_THE_PAPER, ledger_page
from antiphase.scales import SCALES
from tests.conftest import ROOT, violations

FOUR = ("fig2a", "fig3a", "fig5", "x1")  # attacks, depth, alignment, cancellation


@pytest.fixture(scope="module")
def ledger(tmp_path_factory, shell):
    """Four studies at smoke through the real command line."""
    folder = tmp_path_factory.mktemp("studies") / "ledger"
    done = shell("study", "run", *FOUR, "--ledger", folder)
    assert done.returncode == 0, done.stderr
    return folder, done


# ------------------------------------------------------------------------------------------------- the catalog


@pytest.mark.parametrize("scale", SCALES)
def test_a_study_runs_all_cells_that_its_predictions_need(scale):
    grid = Grid.at(scale)
    for study in studies().values():
        there = {cell.key for cell in study.cells(grid)}
        assert there, study.name
        for prediction in study.predictions(grid):
            needed = [*prediction.cells, *prediction.witnesses(grid)]
            assert {cell.key for cell in needed} <= there, (study.name, prediction.name)
            assert prediction.claim in study.claims
            assert prediction.claim in CLAIMS


def test_names_of_predictions_tell_them_apart_and_every_claim_of_a_study_has_one():
    grid = Grid.at("paper")
    names = [(p.claim, p.reading, p.part, p.name) for study in studies().values() for p in study.predictions(grid)]
    assert len(names) == len(set(names))
    for study in studies().values():
        assert set(study.claims) == {prediction.claim for prediction in study.predictions(grid)}, study.name


def test_the_depth_1_diffvit_is_one_cell_in_every_study_that_looks_at_it():
    grid = Grid.at("cpu")
    wanted = grid.diffvit(0).key
    for name in ("table1", "fig1", "fig2a", "fig2c", "fig3a", "fig5", "table3", "fig6", "x1", "x2", "x3"):
        (study,) = chosen([name])
        assert wanted in {cell.key for cell in study.cells(grid)}, name
    fig6 = {cell.key for cell in studies()["fig6"].cells(grid)}
    others = {c.key for name in ("fig2a", "fig3a") for c in studies()[name].cells(grid)}
    assert fig6 <= others  # restarts are read from the cells of other figures


def test_a_study_without_rows_has_lines_and_verdicts_that_say_so(tmp_path):
    grid, answers = Grid.at("cpu"), Answers(Ledger(tmp_path))
    for study in studies().values():
        assert all(line.value is None and not line.text for line in study.table(grid, answers)), study.name
    for verdict in verdicts(studies().values(), grid, answers):
        assert verdict["verdict"] == "not tested here"


def test_show_says_in_one_line_that_nothing_of_a_table_is_there_and_keeps_question_claims_and_plan(cli, tmp_path):
    code, out, _ = cli("study", "show", "fig5", "--scale", "cpu", "--ledger", tmp_path / "none")
    words = " ".join(out.split())
    assert code == 0
    assert "not run yet" not in words
    assert "nothing of this table is there yet: it has" in words
    assert "Do the input gradients of A1 and A2 oppose each other" in words
    assert "K8: 1 of 1 contrasts can decide it" in words


def test_run_wants_names_or_the_word_all_and_says_that_starting_costs_too(cli, tmp_path):
    code, out, err = cli("study", "run", "--ledger", tmp_path / "none")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "name studies (antiphase study list) or all" in err
    assert not (tmp_path / "none").exists()
    _, out, _ = cli("study", "run", "fig5", "--ledger", tmp_path / "none", "--dry-run")
    assert "  0 s  " not in out
    assert "the start of the command, the loading of data and the verdicts come on top" in " ".join(out.split())


def test_what_reads_a_ledger_refuses_a_folder_that_is_none_and_takes_an_empty_one(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    for action in ("status", "verdicts", "prices", "upgrade"):
        assert cli("study", action, "--ledger", tmp_path / "empty")[0] == 0
        for folder, why in (("other", "is no ledger"), ("none", "there is no folder")):
            code, out, err = cli("study", action, "--ledger", tmp_path / folder)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert why in err


def test_a_title_has_three_digits_of_lambda_init_and_the_key_all_of_them():
    exact, rounded = (
        replace(Grid.at("smoke").diffvit(0, 2).model, attention=(Differential(lambda_init=(first, 0.8)),))
        for first in (0.20000000000000007, 0.2)
    )
    cells = [replace(Grid.at("smoke").diffvit(0, 2), model=model) for model in (exact, rounded)]
    assert cells[0].title == cells[1].title
    assert "lambda_init 0.2/0.8" in cells[0].title
    assert cells[0].key != cells[1].key


def test_each_study_says_what_it_takes_by_the_price_list(cli):
    listed = {study["name"]: study for study in json.loads(cli("study", "list", "--json")[1])["studies"]}
    assert set(listed) == set(studies())
    assert listed["table2"]["claims"] == ["K18"]
    for name in ("table1", "fig2c", "map-correlation", "fragility-over-training"):
        priced = sum(map(Prices().seconds, studies()[name].cells(Grid.at("cpu")))) / 60
        assert listed[name]["minutes"] == pytest.approx(priced, rel=0.1), name
    assert "min at cpu" in cli("study", "list")[1]


def test_show_says_whether_a_claim_can_be_decided_at_a_scale(cli):
    shown = json.loads(cli("study", "show", "fig3a", "fig3b", "--scale", "cpu", "--json")[1])["studies"]
    plans = {plan["claim"]: plan for study in shown for plan in study["plans"]}
    assert plans["K3"]["informative"] == plans["K3"]["contrasts"] == 3
    assert plans["K3"]["seeds"] == [5, 10]
    assert (plans["K23"]["informative"], plans["K23"]["images"]) == (0, 64)
    text = " ".join(cli("study", "show", "fig3b", "fig2b", "fig4", "--scale", "cpu")[1].split())
    assert "K23: cannot be decided at this scale" in text
    assert "K9: cannot be decided, since small models stand in for the published ones" in text
    assert "K7: tested by permutation and cannot be decided at this scale: the smallest possible p is 0.042" in text
    assert "and 0.27 for the 2 points that some contrasts are about" in " ".join(
        cli("study", "show", "table2", "--scale", "desk")[1].split()
    )
    assert "none of them done: about" in text
    desk = [p for study in studies().values() for p in study.predictions(Grid.at("desk"))]
    outside = {"K9", "K10", "K13", "K14", "K15", "K19", "K24"}  # about published weights
    undecidable = [p["claim"] for p in claim_plans(desk) if not p["informative"] and p["claim"] not in outside]
    assert undecidable == []


def test_names_and_groups():
    assert [s.name for s in chosen(["fig3"])] == list(groups()["fig3"])
    assert chosen([]) == chosen(["all"]) == list(studies().values())
    assert [s.name for s in chosen(["TABLE1", "fig2a", "fig2"])][:2] == ["table1", "fig2a"]
    assert [s.name for s in chosen(["x1", "c2"])] == ["noise-vs-attack", "other-encoder"]  # their earlier names
    with pytest.raises(InputError, match="did you mean 'table1'"):
        chosen(["tabel1"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("study show table1 --ledger FILE", "FILE is a file: name a folder"),
        ("study run table1 --ledger FILE", "FILE is a file: name a folder"),
        ("study run table1 --data-root NOWHERE", "NOWHERE is no folder"),
        ("study export table1", "give --out"),
    ],
)
def test_paths_that_cannot_be_used_are_refused_in_one_sentence(words, sentence, cli, tmp_path):
    (tmp_path / "FILE").write_text("")
    places = {"FILE": str(tmp_path / "FILE"), "NOWHERE": str(tmp_path / "NOWHERE")}
    code, _, err = cli(*(places.get(word, word) for word in words.split()))
    assert code == 2
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_other_weights_in_the_place_of_a_models_are_refused(ledger, tmp_path):
    from antiphase.paper.execute import Workplace

    copy = tmp_path / "ledger"
    shutil.copytree(ledger[0], copy)
    grid = Grid.at("smoke")
    one, other = grid.vit(0), grid.diffvit(0)
    shutil.rmtree(copy / "runs" / one.key)
    shutil.copytree(copy / "runs" / other.key, copy / "runs" / one.key)
    with pytest.raises(InputError, match="holds other weights than ViT"):
        Workplace(Ledger(copy)).run(one)


def test_a_damaged_row_is_named_and_the_others_are_used(ledger, cli, tmp_path):
    copy = tmp_path / "ledger"
    shutil.copytree(ledger[0], copy)
    unrelated = copy / "rows" / "0123456789ab.json"
    unrelated.write_text("{")
    code, out, _ = cli("study", "export", "fig5", "--ledger", copy, "--out", tmp_path / "out")
    assert code == 0
    words = " ".join(out.split())
    assert "left out: " in words
    assert "0123456789ab.json is damaged" in words
    assert cli("study", "run", "fig5", "--ledger", copy, "--dry-run")[0] == 0


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("study run tabel1", "table1"),
        ("study run lambda-dynamic", "lambda-dynamics"),
        ("study runn table1", "run"),
        ("study run table1 --scale papr", "paper"),
        ("study run table1 --data cifar-10", "cifar10"),
    ],
)
def test_an_unknown_study_action_scale_or_data_set_suggests_the_nearest(words, meant, cli):
    code, _, err = cli(*words.split())
    assert code == 2
    assert f"did you mean {meant!r}?" in err


def test_cost_grows_with_depth_steps_and_images_and_learns_from_finished_cells():
    grid = Grid.at("cpu")
    shallow, deep = grid.diffvit(0), grid.diffvit(0, 4)
    assert operations(deep) > 4 * operations(shallow)  # of which the last block computes the class token alone
    small = grid.under_attack(shallow, grid.pgd(grid.middle))
    assert operations(replace(small, images=replace(small.images, n=256))) < operations(small)
    prices = Prices()
    listed = prices.seconds(small)
    assert listed == pytest.approx(PROCESSOR_SECONDS["PGD"] / 2 * operations(small))
    prices.learn("Train", operations(shallow), 10 * prices.seconds(shallow))
    assert prices.seconds(small) == pytest.approx(10 * listed)  # a machine on which training is so much slower
    prices.learn("PGD", 1e9, 2.0)
    assert prices.seconds(small) == pytest.approx(2e-9 * operations(small))
    assert [duration(s) for s in (40, 600, 7200, 1e6)] == ["40 s", "10 min", "2.0 h", "12 days"]


def measured_cells() -> list[dict]:
    """Cells that were finished at the cpu scale on one thread, as a ledger has them."""
    with (Path(__file__).parent / "measured_cells.csv").open() as file:
        return [
            {
                "group": row["group"],
                "operations": float(row["operations"]),
                "processor_seconds": float(row["processor_seconds"]),
                "environment": {"threads": 1},
            }
            for row in csv.DictReader(file)
        ]


def test_the_price_list_is_fitted_to_measured_cells():
    fitted = {group: price["per_operation"] for group, price in fit(measured_cells()).items()}
    assert fitted.keys() == PROCESSOR_SECONDS.keys()
    assert fitted == pytest.approx(PROCESSOR_SECONDS, rel=0.03)  # it is written with two digits


def test_by_the_price_list_measured_cells_cost_what_they_took():
    """On two cores that is half of the processor time: together within a factor of 1.5, each group within 3."""
    spent, listed = Counter(), Counter()
    for cell in measured_cells():
        spent[cell["group"]] += cell["processor_seconds"] / 2
        listed[cell["group"]] += Prices().listed(cell["group"]) * cell["operations"]
    assert 1 / 1.5 < listed.total() / spent.total() < 1.5
    for group in spent:
        assert 1 / 3 < listed[group] / spent[group] < 3, group


def test_cells_of_many_threads_or_a_gpu_are_no_part_of_the_list():
    cell = measured_cells()[0]
    assert fit([cell | {"environment": {"threads": 2}}, cell | {"machine": {"device": "cuda"}}]) == {}


def test_a_ledger_says_what_its_cells_took(ledger, cli, tmp_path):
    result = json.loads(cli("study", "prices", "--ledger", ledger[0], "--json")[1])
    single = {
        row["provenance"]["group"]
        for row in Ledger(ledger[0]).readable()
        if row["provenance"]["environment"]["threads"] == 1
    }
    assert result["prices"].keys() == single
    assert all(price["per_operation"] > 0 and price["cells"] > 0 for price in result["prices"].values())
    printed = cli("study", "prices", "--ledger", ledger[0])[1]
    assert "seconds per operation" in printed.splitlines()[0]
    assert eval("{" + printed + "}").keys() == single  # it can be pasted
    code, out, _ = cli("study", "prices", "--ledger", tmp_path)
    assert code == 0
    assert "OMP_NUM_THREADS=1" in out


def test_differences_of_another_encoder_are_in_points_with_n_and_seeds(tmp_path):
    grid, answers = Grid.at("cpu"), Answers(Ledger(tmp_path))
    study = studies()["other-encoder"]
    fate = {"clean": [0, 1, 2], "label": [0, 1, 1], "changed_in_run": [[1, 0, 1]]}
    answers.read |= {cell.key: {"attacks": [{"images": fate}] * 2} for cell in study.cells(grid)}
    apart = [row for row in study.table(grid, answers) if row.label.startswith("differential - softmax")]
    assert len(apart) == 5
    assert {(row.unit, row.n, row.seeds, row.value) for row in apart} == {("points", 3, 10, 0.0)}


# ------------------------------------------------------------------------------------------------- through the command line


def test_four_studies_run_at_smoke_and_give_no_verdict(ledger):
    _, done = ledger
    assert "No verdicts: the smoke scale is for tests." in done.stdout
    assert "not run yet" not in done.stdout
    assert "about" in done.stderr  # progress with the time left
    for title in ("Figure 2a", "Figure 3a", "Figure 5", "X1"):
        assert title in done.stdout


def test_a_second_run_computes_nothing(ledger, cli):
    folder, _ = ledger
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file() and "lock" not in p.name}
    code, out, err = cli("study", "run", *FOUR, "--ledger", folder, "--json")
    assert code == 0, err
    assert json.loads(out)["failed"] == []
    assert {p: p.stat().st_mtime_ns for p in before} == before
    rows = list(Ledger(folder).readable())
    assert len(rows) == len(before) - len([p for p in before if "rows" not in p.parts])


def test_every_row_says_where_it_comes_from(ledger):
    for row in Ledger(ledger[0]).readable():
        told = row["provenance"]
        assert row["scale"] == "smoke"
        assert {"torch", "antiphase"} <= set(told["environment"]["versions"])
        assert told["data"]
        assert told["seconds"] > 0
        assert told["machine"]["platform"]
        assert "training" in told["seeds"]


def test_status_show_and_verdicts_read_the_ledger(ledger, cli):
    folder, _ = ledger
    status = json.loads(cli("study", "status", "--ledger", folder, "--json")[1])
    done = {s["name"]: (s["done"], s["cells"]) for s in status["studies"]}
    assert all(done[study.name][0] == done[study.name][1] > 0 for study in chosen(FOUR))
    took = [row["provenance"]["seconds"] for row in Ledger(folder).readable()]
    assert status["seconds"] == pytest.approx(sum(took), abs=0.1)
    assert (
        max(s["seconds"] for s in status["studies"]) < status["seconds"] < sum(s["seconds"] for s in status["studies"])
    )
    shown = json.loads(cli("study", "show", "fig5", "--ledger", folder, "--json")[1])["studies"][0]
    assert shown["claims"] == ["K8"]
    assert all(line["value"] is not None for line in shown["lines"])
    assert "No verdicts" in cli("study", "verdicts", "--ledger", folder)[1]


def test_export_writes_rows_tables_and_leaderboard(ledger, cli, tmp_path):
    folder, _ = ledger
    assert cli("study", "run", "fig1", "--ledger", folder)[0] == 0
    picture = next(row["key"] for row in Ledger(folder).readable() if row["kind"] == "branch picture")
    assert cli("study", "export", *FOUR, "--ledger", folder, "--out", tmp_path)[0] == 0
    rows = list(csv.DictReader((tmp_path / "rows.csv").open()))
    assert len(rows) == len(list((folder / "rows").iterdir())) == parquet.read_table(tmp_path / "rows.parquet").num_rows
    attacked = [row for row in rows if row["kind"] == "attack"]
    assert all(0 <= float(row["answer.rates.asr_change.value"]) <= 1 for row in attacked)
    text = (tmp_path / "tables.md").read_text()
    assert "|  | reference | ours | interval | reading | n | seeds |" in text
    assert "figure only" in text
    latex = (tmp_path / "tables.tex").read_text()
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == len(FOUR)
    assert (tmp_path / f"fig1-{picture}.png").stat().st_size > 10_000
    assert {path.stem for path in tmp_path.glob("fig*.pdf")} == {"fig2", "fig3", "fig5", f"fig1-{picture}"}
    entries = json.loads((tmp_path / "leaderboard.json").read_text())
    assert {"clean_acc", "autoattack_acc", "eps", "dataset", "name"} <= set(entries[0])
    assert {(entry["architecture"], entry["name"].split(", ")[0]) for entry in entries} == {
        (f"{name}, depth {depth}", name) for name in ("ViT", "DiffViT") for depth in (1, 2)
    }
    assert len(entries) == len(attacked)


def test_a_page_reads_each_row_and_each_answer_once_and_an_altered_answer_is_named(ledger, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(ledger[0], tmp_path / "ledger"))
    Ledger(folder).summaries()  # the list of rows is known, as it is after `study status`
    read, read_entry = [], store.read_entry

    def counted(path, *digests, **options):
        read.append(path)
        return read_entry(path, *digests, **options)

    for module in (store, ledger_module):
        monkeypatch.setattr(module, "read_entry", counted)
    page = ledger_page(folder, "smoke")
    assert len(read) == len(set(read)) > 0
    assert not page.findings
    answer = next(path for path in read if path.parent.name == "attacks")
    answer.write_text(answer.read_text().replace('"label": [', '"label": [1, ', 1))
    assert answer.name in " ".join(ledger_page(folder, "smoke").findings)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_of_a_ledger_passes_axe_and_fits_with_its_contents_open_and_closed(
    ledger, visit, axe, tmp_path, width, scheme
):
    seen = visit(write_page(ledger_page(ledger[0], "smoke"), tmp_path), width=width, scheme=scheme)
    assert seen.locator("table").count() >= len(FOUR)
    assert violations(seen, axe) == []
    assert seen.evaluate("document.documentElement.scrollWidth") <= width
    links = seen.locator(".bar nav a")
    if not links.last.is_visible():
        seen.locator(".menu summary").click()
        assert violations(seen, axe) == []
    shown = [link.bounding_box() for link in links.all() if link.is_visible()]
    assert len(shown) == seen.locator("main > section[id]").count()
    assert [box for box in shown if box["x"] < 0 or box["x"] + box["width"] > width] == []
    seen.locator(".bar nav a:visible", has_text="Figure 5").click()
    seen.wait_for_function("location.hash == '#study-fig5'")
    assert not seen.locator(".menu div").is_visible()  # chosen, and out of the way


def test_the_page_of_a_ledger_has_what_was_run_in_the_papers_order_and_a_command_for_the_rest(ledger, visit, tmp_path):
    folder = ledger[0]
    seen = visit(write_page(ledger_page(folder, "smoke"), tmp_path))
    ids = [section.get_attribute("id") for section in seen.locator("main > section").all()]
    drawn = [name.removeprefix("study-") for name in ids if name.startswith("study-")]
    order = [*IN_THE_PAPER, *(name for name in studies() if name not in IN_THE_PAPER)]
    assert drawn == sorted(drawn, key=order.index)
    assert {"fig2", "fig3", "fig5", "fig6", "noise-vs-attack"} <= set(drawn)  # fig6 reads the cells of fig2a
    assert ids[-2:] == ["not-run", "made"]
    lines = seen.locator(".commands li").all_inner_texts()
    named = {name for name in studies() if any(f"antiphase study run {name} --scale smoke" in line for line in lines)}
    assert len(lines) == len(named) + 1  # and the lens
    assert named.isdisjoint({"fig2a", "fig3a", "fig5", "noise-vs-attack", *drawn})
    assert {"fig2b", "fig2d", "clip-quality", "focus"} <= named
    parts = {figure.name: set(figure.studies) for figure in FIGURES}
    assert named | set().union(*(parts.get(name, {name}) for name in drawn)) == set(studies())
    headings = " ".join(seen.locator("h2, figcaption, summary").all_inner_texts())
    panels = " ".join(seen.locator(".panels text").all_text_contents())
    for key in ("asr_change", "cifar10", "lambda", "control:", "noise-vs-attack", "eps "):
        assert key not in headings + panels, key


@pytest.mark.parametrize(
    "words", ["show fig5 --scale cpu", "show fig2a", "status", "list", "run fig3b --scale cpu --dry-run"]
)
def test_nothing_that_study_prints_is_wider_than_80_columns_or_cut_within_a_word(ledger, shell, words):
    done = shell(
        "study", *words.split(), "--ledger", "ledger", cwd=ledger[0].parent, env=os.environ | {"COLUMNS": "80"}
    )
    assert done.returncode == 0, done.stderr
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= 80
    wide = shell(
        "study", *words.split(), "--ledger", "ledger", cwd=ledger[0].parent, env=os.environ | {"COLUMNS": "400"}
    )
    whole = set(wide.stdout.split())
    assert [word for word in done.stdout.split() if word not in whole and set(word) != {"─"}] == []


def test_a_dry_run_of_the_paper_scale_prices_every_cell_and_does_nothing(cli, tmp_path):
    code, out, _ = cli("study", "run", "all", "--scale", "paper", "--ledger", tmp_path / "none", "--dry-run", "--json")
    plan = json.loads(out)
    assert code == 0
    assert len(plan["planned"]) > 500
    assert all(cell["seconds"] > 0 for cell in plan["planned"])
    assert plan["seconds"] == pytest.approx(sum(c["seconds"] for c in plan["planned"]), rel=0.01)
    assert not (tmp_path / "none").exists()
    assert (
        plan["seconds"] < 5 * 31_557_600
    )  # years of one GPU, nearly all of them for training CLIPs on 7.9 million pairs
    _, out, _ = cli("study", "run", "all", "--scale", "paper", "--ledger", tmp_path / "none", "--dry-run")
    assert "on one GPU that does 10 TFLOP/s, an assumption" in " ".join(out.split())


def test_data_that_are_not_here_leave_the_rest_to_run(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_DATA", str(tmp_path))
    code, out, _ = cli("study", "run", "fig2a", "--scale", "cpu", "--ledger", tmp_path / "ledger", "--json")
    result = json.loads(out)
    assert code == 0
    assert set(result["absent"]) == {"cifar10", "cifar100"}
    assert result["failed"] == []
    assert len(result["waiting"]) == len(studies()["fig2a"].cells(Grid.at("cpu"))) > 84


def test_a_cell_that_fails_is_named_and_its_dependents_wait(cli, tmp_path, monkeypatch):
    from antiphase.paper import execute

    def fails(cell, place):
        if cell.model.is_differential:
            raise RuntimeError("the loss became nan")
        return before(cell, place)

    before = execute.ANSWERS[Train]
    monkeypatch.setitem(execute.ANSWERS, Train, fails)
    code, out, err = cli("study", "run", "fig5", "--ledger", tmp_path, "--json")
    result = json.loads(out)
    assert code == 1
    assert [cell["error"] for cell in result["failed"]] == ["the loss became nan"] * 2  # at either depth
    assert len(result["waiting"]) == 3 * 2  # three readings at either depth
    assert "failed: DiffViT" in err
    assert "the loss became nan" in " ".join(cli("study", "status", "fig5", "--ledger", tmp_path)[1].split())
    assert Ledger(tmp_path).has(Grid.at("smoke").vit(0))


def test_one_clip_alone_is_refused(cli, tmp_path):
    code, _, err = cli("study", "run", "c1-clip", "--clip", tmp_path / "CLIP")
    assert code == 2
    assert "both --clip and --diffclip" in err


TRAIN_SURROGATES = {
    *("fig2b", "fig2d", "fig6-clip", "fig4-clip", "fig5-clip", "map-correlation-clip"),
    *("clip-fgsm-pgd", "clip-quality", "clip-ablation", "clip-tiles", "focus", "other-encoder"),
}


def test_below_the_paper_scale_studies_that_train_surrogates_are_part_of_all_only_if_asked_for(cli, tmp_path):
    words = ("study", "run", "--ledger", tmp_path, "--dry-run")

    def left_out(*more: object) -> set[str]:
        return set(json.loads(cli(*words, *more, "--json")[1])["left_out"])

    assert left_out("all", "--scale", "cpu") == left_out("all", "--scale", "desk") == TRAIN_SURROGATES
    assert left_out("all", "c3", "--scale", "cpu") == TRAIN_SURROGATES - {"clip-fgsm-pgd"}
    assert not left_out("fig2", "c2", "--scale", "cpu")
    assert not left_out("all", "--scale", "cpu", "--surrogates")
    assert not left_out("all")
    assert not left_out("all", "--scale", "paper")
    _, out, _ = cli(*words, "all", "--scale", "cpu")
    assert "surrogate CLIP" not in out
    first, _, _ = out.removeprefix("left out").partition("\n    ")  # what is to be done is set in further
    assert out.startswith("left out")
    assert "--surrogates" in first
    assert "clip-ablation" in first


def test_a_pair_of_ones_own_makes_the_studies_that_take_it_part_of_all(own_pair, cli, tmp_path):
    words = ("study", "run", "all", "--scale", "cpu", "--ledger", tmp_path, "--dry-run", "--json", *own_pair)
    assert set(json.loads(cli(*words)[1])["left_out"]) == {"clip-ablation", "other-encoder", "clip-tiles", "focus"}


@pytest.mark.parametrize("depths", [(1,), (4,), (1, 2)])
def test_depths_and_seeds_narrow_every_study(depths):
    """Depth 1 stays: other studies are about it, and it says whether a model was trained enough."""
    narrow = Grid.at("cpu", depths=depths, seeds=2)
    for study in studies().values():
        seeds = {cell.run_seed for cell in study.cells(narrow) if isinstance(cell, Model)}
        assert seeds <= {0, 1}, study.name
    for name in ("fig3a", "fig3b", "fig4", "fig6"):
        trained = [cell for cell in studies()[name].cells(narrow) if isinstance(cell, Train)]
        assert {cell.model.depth for cell in trained} <= {1, *depths}, name


def test_a_depth_or_number_of_seeds_that_a_scale_does_not_have_is_refused_in_one_sentence(cli, tmp_path):
    words = ("study", "run", "fig3a", "--ledger", tmp_path / "ledger", "--scale", "cpu")
    for flags, rule in (
        (("--depths", "1,3"), "no depth 3: --depths takes some of 1,2,4"),
        (("--depths", "deep"), "write them with commas, such as 1,2"),
        (("--seeds", 0), "--seeds takes 1 to 10"),
        (("--seeds", 11), "--seeds takes 1 to 10"),
    ):
        code, _, err = cli(*words, *flags)
        assert (code, err.count("\n")) == (2, 1)
        assert rule in err
    assert not (tmp_path / "ledger").exists()


def test_a_narrowed_table_has_the_lines_that_were_asked_for_and_claims_are_decided_on_all_depths(ledger, cli):
    words = ("--ledger", ledger[0], "--json")
    (table,) = json.loads(cli("study", "show", "fig3a", "--depths", 1, *words)[1])["studies"]
    at = {line["x"] for line in table["lines"]}
    assert at == {1, None}  # None: the crossover, which one depth cannot have
    assert all(line["n"] for line in table["lines"] if line["x"])
    assert {line["text"] for line in table["lines"] if not line["x"]} == {"none among these depths"}
    narrowed, whole = (json.loads(cli("study", "verdicts", "fig3a", *d, *words)[1]) for d in (("--depths", 1), ()))
    assert narrowed["verdicts"] == whole["verdicts"]


@pytest.fixture(scope="module")
def own_pair(tmp_path_factory):
    """A copy of the committed CLIP and DiffCLIP, which have learned the classes of CIFAR-10 at 32 x 32, as flags."""
    folder = tmp_path_factory.mktemp("own") / "pair"
    shutil.copytree(ROOT / "results" / "clip-pair", folder)
    return "--clip", folder / "CLIP", "--diffclip", folder / "DiffCLIP"


def _few(grid: Grid) -> dict:
    eps = grid.eps[0]
    return {Tick.eps(eps, "FGSM"): fgsm(Linf(eps)), Tick.eps(eps, "PGD"): grid.pgd(eps)}


def test_a_pair_of_ones_own_is_attacked_on_what_it_has_learned_or_on_the_data_named(
    own_pair, cli, tmp_path, data_root, monkeypatch
):
    """The scale's own data, digits, have neither its size nor its colours."""
    monkeypatch.setattr("antiphase.paper.catalog.clip_fgsm_pgd.attacks", _few)
    words = ("study", "run", "c3", *own_pair, "--ledger", tmp_path, "--data-root", data_root, "--json")
    for named in ((), ("--data", "cifar10")):  # the same cells
        code, out, err = cli(*words, *named)
        assert code == 0, err
        (table,) = json.loads(out)["studies"]
        assert table["surrogate"]
        assert table["lines"]
        for line in table["lines"]:
            assert line["value"] is not None
            assert (line["n"], line["seeds"]) == (SCALES["smoke"].eval_images, 1)
            assert ", cifar10, " in line["label"]
    assert len(list((tmp_path / "rows").glob("*.json"))) == 2 + 4  # two models, two attacks on each
    planned = json.loads(cli(*words, "--data", "tiny-imagenet", "--dry-run")[1])["planned"]
    assert [cell["title"].rpartition(": ")[2] for cell in planned] == ["64 tiny-imagenet test images"] * 4


def test_images_are_brought_to_the_size_that_a_model_takes_where_they_can_be():
    grid = Grid.at("cpu")
    sides = {"cifar10": None, "tiny-imagenet": 32, "digits": None}  # of a model that takes 32 x 32
    assert {data: grid.clip_images(grid.clip(0), data).size for data in sides} == sides


def test_images_that_a_pair_cannot_take_are_refused_before_anything_is_computed(own_pair, cli, tmp_path):
    code, _, err = cli("study", "run", "c3", *own_pair, "--data", "digits", "--ledger", tmp_path / "ledger")
    assert code == 2
    assert err.count("\n") == 1
    assert "takes colour images of 32 x 32, and those of digits are 8 x 8" in err
    assert "--data" in err
    assert not (tmp_path / "ledger").exists()


def test_a_pair_of_the_published_shape_decides_claims_about_the_papers_data_on_no_other():
    shape = CLIP_SCALES["paper"]
    models = [clip_of_sizes(shape, *((kind,) for kind in VARIANTS[name])) for name in ("CLIP", "DiffCLIP")]
    pair = tuple(UserClip(model=model, weights=model.title) for model in models)
    for data, claims in ((None, {"K9", "K10", "K19"}), ("coco", {"K9"}), ("imagenet", {"K10"}), ("cifar10", set())):
        grid = Grid.at("cpu", pair=pair, pair_data=data)
        listed = [*studies()["fig2b"].predictions(grid), *studies()["fig2d"].predictions(grid)]
        assert {prediction.claim for prediction in listed} == claims
        assert bool(studies()["fig5-clip"].predictions(grid)) == (data in (None, "imagenet"))
        looked_at = {
            ask.images.data
            for study in ("fig2b", "clip-quality")
            for ask in studies()[study].cells(grid)
            if isinstance(ask, Ask)
        }
        assert looked_at == ({data} if data else {"coco", "imagenet"})


def answers(folder) -> dict:
    return {row["key"]: row["answer"] for row in Ledger(folder).readable()}


def test_kill_9_in_the_middle_loses_no_row_and_a_rerun_ends_as_if_nothing_happened(ledger, tmp_path, shell):
    words = [sys.executable, "-m", "antiphase", "study", "run", "fig2a", "--ledger", str(tmp_path / "killed")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and len(list((tmp_path / "killed").glob("rows/*.json"))) < 3:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = answers(tmp_path / "killed")
    cells = len(studies()["fig2a"].cells(Grid.at("smoke")))
    assert 3 <= len(kept) < cells
    again = shell("study", "run", "fig2a", "--ledger", tmp_path / "killed")
    assert again.returncode == 0
    whole, found = answers(ledger[0]), answers(tmp_path / "killed")
    assert len(found) == cells
    assert {key: whole[key] for key in found} == found
    assert kept.items() <= found.items()


# ------------------------------------------------------------------------------------------------- slow


@pytest.mark.slow
def test_a_pair_of_ones_own_takes_the_place_of_surrogates(cli, tmp_path, data_root):
    for name in ("CLIP", "DiffCLIP"):
        assert cli("train-clip", "--out", tmp_path / name, "--variant", name, "--epochs", 1)[0] == 0
    pair = ("--clip", tmp_path / "CLIP", "--diffclip", tmp_path / "DiffCLIP")
    words = ("study", "run", "c1-clip", "--ledger", tmp_path / "ledger", "--data-root", data_root)
    table = json.loads(cli(*words, *pair, "--json")[1])["studies"][0]
    assert table["surrogate"]  # small ones stand in, whoever trained them
    assert all(line["value"] is not None and line["seeds"] == 1 for line in table["lines"])
    assert {row["kind"] for row in Ledger(tmp_path / "ledger").readable()} == {"UserClip", "correlation"}
    code, out, _ = cli(*words, "--json")
    assert code == 0
    assert json.loads(out)["studies"][0]["surrogate"]
    assert "SURROGATES" in cli(*words)[1]
    assert cli(*words, "--clip", tmp_path / "CLIP", "--diffclip", tmp_path / "CLIP")[0] == 2


@pytest.mark.slow
@pytest.mark.alone
def test_every_study_runs_at_smoke_within_twelve_minutes(shell, tmp_path):
    done = shell("study", "run", "all", "--workers", 2, "--ledger", tmp_path / "ledger", timeout=12 * 60)
    assert done.returncode == 0, done.stderr
    assert "not run yet" not in done.stdout
    assert "failed" not in done.stderr


@pytest.mark.slow
def test_two_runs_at_once_on_one_ledger_agree_and_do_nothing_twice(tmp_path, ledger):
    words = [sys.executable, "-m", "antiphase", "study", "run", *FOUR, "--ledger", str(tmp_path / "shared"), "--json"]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    (first, said), (second, told) = (process.communicate(timeout=600) for process in both)
    assert json.loads(first) == json.loads(second)
    finished = [line for line in (said + told).splitlines() if line.startswith("[")]
    elsewhere = [line for line in finished if "(by another process)" in line]
    cells = len(answers(tmp_path / "shared"))
    assert (len(finished), len(elsewhere)) == (2 * cells, cells)  # each tells of all; one of them did it
    assert answers(tmp_path / "shared") == answers(ledger[0])


@pytest.mark.slow
def test_a_full_size_cell_of_the_paper_scale_takes_two_steps_and_one_attack_step(data_root, tmp_path):
    from antiphase.paper.execute import Workplace, run

    grid = Grid.at("paper")
    deepest = grid.diffvit(0, 12)
    assert deepest in [c for c in studies()["fig3a"].cells(grid) if isinstance(c, Train)]
    short = replace(deepest, training=replace(deepest.training, epochs=1), images=2 * deepest.training.batch_size)
    attacked = grid.under_attack(short, replace(grid.pgd(grid.middle), steps=1, restarts=1), n=8)
    place = Workplace(Ledger(tmp_path), data_root, scale="paper")
    images = place.split("cifar10", "test").at_most(256)
    place.loaded["cifar10", "test", None] = images  # accuracy on all 10,000 would be most of the time
    assert len(run([attacked], place).computed) == 2
    answer = place.ledger.answer(place.ledger.row(attacked))
    assert answer["forwards_per_image"] <= 6  # the look, start and step, and the judgement


def test_missing_cells_are_named():
    with pytest.raises(Missing, match="DiffViT"):
        Answers(Ledger("/nonexistent"))(Grid.at("smoke").diffvit(0))
