"""Train, attack, measure, compare and report, one command after the other."""

import json
import time
from pathlib import Path

import pytest
from pyarrow import parquet

from antiphase import files


def test_train_attack_measure_compare_report_one_by_one(cli, tmp_path):
    for name, attention in (("vit", "softmax"), ("diffvit", "differential")):
        code, out, err = cli("train", "--out", tmp_path / name, "--attention", attention, "--epochs", "3", "--json")
        assert code == 0, err
        assert len(json.loads(out)["log"]) == 3
    code, out, _ = cli("attack", tmp_path / "vit", "--eps", "8/255,0.1", "--images", "40", "--json")
    cells = json.loads(out)["cells"]
    assert code == 0
    assert [cell["eps"] for cell in cells] == [8 / 255, 0.1]
    assert cells[0]["rates"]["asr_change"]["n"] == 40
    code, out, _ = cli("measure", tmp_path / "diffvit", "--images", "16", "--json")
    measured = json.loads(out)
    assert code == 0
    assert {"lipschitz", "alignment", "cancellation", "depth", "lambda", "correlation"} <= set(measured)
    code, out, _ = cli("compare", tmp_path / "vit", tmp_path / "diffvit", "--out", tmp_path / "both", "--json")
    assert code == 0
    page = tmp_path / "both" / "report" / "index.html"
    compared = json.loads(out)
    assert compared.pop("page") == str(page)
    assert compared == files.read_json(tmp_path / "both" / "comparison.json")
    assert page.read_text().count("lens-packed-") >= 2
    code, out, _ = cli("report", tmp_path / "both", "--out", tmp_path / "again")
    assert code == 0
    assert Path(out.strip()) == tmp_path / "again" / "index.html"
    assert "<svg" in (tmp_path / "again" / "index.html").read_text()
    code, out, _ = cli(
        "look", tmp_path / "vit", tmp_path / "diffvit", "--images", "4", "--eps", "8/255,16/255", "--json"
    )
    assert code == 0
    assert [look["data"]["n"] for look in json.loads(out)["looks"]] == [4, 4]
    code, out, _ = cli("report", tmp_path / "vit", tmp_path / "diffvit")
    assert code == 0
    assert Path(out.strip()) == tmp_path / "report" / "index.html"


def test_tables_name_the_rates_and_measures_that_a_model_has(cli, runs):
    code, out, _ = cli("attack", runs[1], "--eps", "8/255", "--images", "32")
    assert code == 0
    assert "8/255" in out
    assert "robust_accuracy" in out
    code, out, _ = cli("measure", runs[0])
    assert code == 0
    assert "lower bound" in out
    assert "branch alignment" not in out  # a softmax model has one branch
    assert "pseudo" in out  # its cancellation is that of pairs of heads


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_raw_rows_and_figures_go_to_a_folder(cli, runs, tmp_path, form):
    words = ("--images", "6", "--readings", "R1,R3", "--base", runs[0], "--estimators", "sample,power,ascent")
    code, out, err = cli("measure", runs[1], *words, "--out", tmp_path / "lens", "--rows", form, "--json")
    assert code == 0, err
    result = json.loads(out)
    names = ("lipschitz", "alignment", "cancellation", "depth", "correlation")
    files = {f"{name}.{kind}" for name in names for kind in (form, "png", "pdf")}
    assert {p.name for p in (tmp_path / "lens").iterdir()} == files | {"lambda.png", "lambda.pdf", "measures.json"}
    if form == "parquet":
        rows = parquet.read_table(tmp_path / "lens" / "alignment.parquet").to_pylist()
    else:
        rows = [json.loads(line) for line in (tmp_path / "lens" / "alignment.jsonl").read_text().splitlines()]
    own = [row for row in rows if row["pairs"] == "own" and row["reading"] == "R1"]
    assert len(own) == 6 * 2  # images x heads
    assert {row["pairs"] for row in rows} == {"own", "untrained", "shuffled", "pseudo"}
    mean = sum(row["cos"] for row in own) / len(own)
    assert mean == pytest.approx(result["alignment"][0]["layers"][0]["cos"])
    assert "rows" not in json.loads((tmp_path / "lens" / "measures.json").read_text())["alignment"][0]


def test_an_answer_that_is_on_disk_is_not_computed_again(cli, runs):
    words = ("attack", runs[1], "--eps", "6/255", "--images", "32", "--json")
    first = cli(*words)[1]
    began = time.perf_counter()
    assert cli(*words)[1] == first  # with its seconds and all
    assert time.perf_counter() - began < 5


def test_real_cifar10_goes_through_every_step(cli, tmp_path, data_root):
    cifar = ("--scale", "cpu", "--data-root", data_root)
    for attention in ("softmax", "differential"):
        small = ("--train-images", "500", "--epochs", "1", "--width", "32")
        code, _, err = cli("train", *cifar, *small, "--attention", attention, "--out", tmp_path / attention)
        assert code == 0, err
    quick = ("--images", "16", "--eps", "1/255", "--steps", "3", "--runs", "1", "--draws", "2", "--probes", "2")
    code, _, err = cli(
        "compare", tmp_path / "softmax", tmp_path / "differential", "--out", tmp_path / "both", *cifar, *quick
    )
    assert code == 0, err
    assert cli("report", tmp_path / "both")[0] == 0
    assert files.read_json(tmp_path / "both" / "comparison.json")["data"]["name"] == "cifar10"
    again = ("--config", tmp_path / "softmax" / "run.json", "--data-root", data_root, "--out", tmp_path / "again")
    assert cli("train", *again)[0] == 0  # the run's own data, size and recipe
    logs = [(tmp_path / name / "log.jsonl").read_text().split('"seconds"')[0] for name in ("again", "softmax")]
    assert logs[0] == logs[1]
