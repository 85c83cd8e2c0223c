"""The page of runs shows what their folders hold, and the commands for what they lack."""

import re
import shlex
import shutil

from antiphase.report.page import write_page
from antiphase.report.page_parts import Table
from antiphase.report.pages.cards import needs_data
from antiphase.report.pages.runs import runs_page
from antiphase.store import Store
from antiphase.tables import interval_of, percent

ANSWERS = ("attacks", "certificates", "measures", "looks", "evals")  # folders of a run


def test_the_page_of_runs_needs_only_their_folders(pair, comparison, tmp_path):
    page = runs_page([run.folder for run in pair])
    text = write_page(page, tmp_path).read_text()
    tables = [p for p in page.sections[0].parts if isinstance(p, Table)]  # one an attack that these runs have met
    first = comparison["models"][0]["attacks"][0]["rates"]["robust_accuracy"]
    assert [model.name for model in runs_page([run.folder for run in reversed(pair)]).models] == ["ViT", "DiffViT"]
    rows = [(row[2].text, row[6].text) for table in tables for row in table.rows if len(row) > 6]
    assert (percent(first), interval_of(first)) in rows
    assert "lens-packed-1" in text


def test_a_run_without_results_gives_a_page_of_commands_and_a_damaged_result_is_named(pair, tmp_path):
    alone = tmp_path / "alone"
    shutil.copytree(pair[1].folder, alone, ignore=shutil.ignore_patterns(*ANSWERS))
    commands = [part.command for section in runs_page([alone]).sections for part in section.parts]
    assert [c.split()[1] for c in commands] == ["attack", "certify", "measure", "eval"]
    assert runs_page([alone]).no_lens.command == f"antiphase look {alone}"
    (alone / "attacks").mkdir()
    (alone / "attacks" / "x.json").write_text("{")
    text = write_page(runs_page([alone]), tmp_path / "page").read_text()
    assert "A stored result could not be read" in text
    assert "x.json is damaged" in text


def _radius(size):
    return "-" if size is None else f"{size:.3g}"


def test_certificates_are_drawn_and_listed_by_noise_and_a_sandwich_beside_them_is_no_damaged_result(
    pair, digits, tmp_path
):
    from antiphase.models.run import Run
    from antiphase.results.certify import certify
    from antiphase.results.questions import CertifyConfig

    runs = []
    for run in pair:
        shutil.copytree(run.folder, tmp_path / run.name, ignore=shutil.ignore_patterns(*ANSWERS))
        runs.append(Run(tmp_path / run.name))
    config = CertifyConfig(sigma=(0.25, 0.5), samples=50, attack_images=4, attack_draws=2, attack_steps=2)
    result = certify(runs, digits[1].subset(8), config)
    page = runs_page([run.folder for run in runs])
    assert page.findings == ()
    (section,) = (section for section in page.sections if section.name == "certified")
    figure, table = section.parts[:2]
    assert "sigma 0.25" in figure.title
    sandwiches = {part.title: part for part in section.parts if "≤" in getattr(part, "title", "")}
    assert len(section.parts) == 4 + len(sandwiches) > 4
    for run in result["runs"]:
        for own in run["certificates"]:
            shown = sandwiches.get(f"{run['name']} at sigma {own['sigma']:g}: certified ≤ true radius ≤ attacked")
            attacked = [row for row in own["sandwich"] if row["predicted"] is not None]
            texts = [[cell.text for cell in row] for row in shown.rows] if shown else []
            assert texts == [
                [str(row["id"]), str(row["label"]), *(_radius(row[key]) for key in ("certified", "attacked"))]
                for row in attacked
            ]
            assert not attacked or f"0 of {len(attacked)} certificates" in shown.note
    assert figure.data["value"] == sorted(figure.data["value"][:33], reverse=True) + sorted(
        figure.data["value"][33:], reverse=True
    )
    expected = [percent(rate) for run in result["runs"] for rate in run["certificates"][0]["rates"]]
    assert [row[2].text for row in table.rows] == expected
    assert "the largest possible radius is 0.283" in table.note
    assert "certified-1" in write_page(page, tmp_path / "page").read_text()


def test_a_theory_audit_beside_the_measures_is_no_damaged_result(pair, cli, tmp_path):
    folders = []
    for run in pair:
        folders.append(tmp_path / run.name)
        shutil.copytree(run.folder, folders[-1], ignore=shutil.ignore_patterns(*ANSWERS))
    sizes = ("--images", 2, "--probes", 2, "--draws", 2)
    assert cli("theory", folders[1], "--base", folders[0], *sizes)[0] == 0
    assert len(list((folders[1] / "measures").glob("*.json"))) == 1
    assert runs_page(folders).findings == ()


def test_other_prompts_are_another_question_and_the_latest_answer_to_each_question_is_shown(pair, comparison, tmp_path):
    run = tmp_path / "it's a$\\x$"
    shutil.copytree(pair[1].folder, run, ignore=shutil.ignore_patterns(*ANSWERS))
    commands = [part.command for section in runs_page([run]).sections for part in section.parts]
    assert all(shlex.split(c)[2] == str(run) for c in commands)
    attack, measured = comparison["models"][1]["attacks"][0], comparison["models"][1]["lipschitz"]
    for prompts in ("paper", "a"):
        Store(run / "attacks").put(prompts, {**attack, "prompts": prompts})
        Store(run / "measures").put(prompts, {**measured, "prompts": prompts})
        Store(run / "measures").put(f"{prompts}-again", {**measured, "prompts": prompts})
    rows = [{"name": "top-1", "value": 0.5, "n": 100, "interval": [0.4, 0.6], "of": "images", "chance": 0.1}]
    Store(run / "evals").put("x", {"rows": rows, "data": {**attack["data"], "name": "pets"}, "seed": 0})
    page = runs_page([run])
    attacks, _, inside, evals = (section.parts for section in page.sections)
    assert sorted(re.search("prompts (\\w+)", table.note)[1] for table in attacks) == ["a", "paper"]
    assert [figure.data["measure"].count("relative") for figure in inside] == [len(measured["rows"]["max"])] * 2
    assert [v.text for v in evals[0].rows[0]][2:] == ["50.0 %", "top-1", "100", "1", "[40.0, 60.0]"]
    assert (evals[0].data["low"], evals[0].data["high"]) == ([0.4], [0.6])
    n = pair[1].about["data"]["test"]["images"]
    assert dict(page.models[0].facts)["test accuracy"].small.endswith(f"], n = {n}")
    write_page(page, tmp_path / "page")


def test_only_a_clip_without_classes_of_its_own_needs_data_to_be_named():
    assert needs_data({"data": {}})
    assert not needs_data({"data": {"class_names": ["cat"]}})
