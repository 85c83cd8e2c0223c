"""The command line: quick to answer, forgiving about order, one sentence for what it cannot do."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import parquet

from antiphase.cli import COMMANDS, usage
from tests.conftest import HIGH_WATER


@pytest.fixture(scope="module")
def runs(pair):
    return [str(run.folder) for run in pair]


def test_help_is_a_static_table_answered_at_once():
    took = []
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "antiphase", "--help"], capture_output=True, text=True, check=True)
        took.append(time.perf_counter() - began)
    assert done.stdout.strip() == usage()
    assert min(took) < 0.7


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(command, cli):
    code, out, _ = cli(command, "--help")
    assert code == 0
    assert COMMANDS[command].split(":")[0] in " ".join(out.split())
    assert f"antiphase {command}" in out
    assert "--json" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_says_what_it_is_for(command, cli):
    """A comment that the formatter moved away from its field would vanish from the help."""
    _, out, _ = cli(command, "--help")
    options = re.split(r"\n  (?=--\w)", out)[1:]
    for option in options:
        flag = option.split()[0]
        text = re.sub(r"\(default:.*|\(required\)", "", " ".join(option.split()), flags=re.S)
        words = re.sub(r"^--\S+(, --\S+)?( \{[^}]*\}(\|\w+)?| \[.*\]\]?| [A-Z]+(\[,EPS\.\.\.\])?)?", "", text).split()
        assert len(words) >= 2, f"{command} {flag} has no help: {option!r}"


def test_a_scale_shows_in_the_defaults(cli):
    _, out, _ = cli("train", "--scale", "cpu", "--help")
    assert "(default: 96)" in out
    assert "(default: cifar10)" in " ".join(out.split())
    assert "(default: 32)" in cli("train", "--help")[1]


def test_the_version_is_the_packages(cli):
    from importlib.metadata import version

    assert cli("--version")[1].strip() == f"antiphase {version('antiphase')}"


# ------------------------------------------------------------------------------------------------- bad input

BAD = [
    (["trian"], "did you mean 'train'"),
    (["frobnicate"], "no command 'frobnicate'"),
    (["train"], "out"),
    (["train", "--out", "x", "--scale", "huge"], "'huge'"),
    (["train", "--out", "x", "--epochs", "many"], "many"),
    (["train", "--out", "x", "--epochs", "0"], "epochs=0"),
    (["train", "--out", "x", "--epcohs", "3"], "epcohs"),
    (["train", "--out", "x", "--data", "cifra10"], "'cifra10'"),
    (["train", "--out", "x", "--attention", "linear"], "'linear'"),
    (["train", "--out", "x", "--attention", "differential:lambda_init=1"], "exactly zero"),
    (["train", "--out", "x", "--attention", "differential:lamda=1"], "'lamda'"),
    (["train", "--out", "x", "--attention", "differential:learned=maybe"], "'maybe'"),
    (["train", "--out", "x", "--attention", "differential", "--heads", "3"], "heads=3 is odd"),
    (["train", "--out", "x", "--attention", "differential", "--diff-heads", "5"], "diff_heads=5"),
    (["train", "--out", "x", "--heads", "5"], "heads=5"),
    (["train", "--out", "x", "--patch", "3"], "patch=3"),
    (["train", "--out", "x", "--train-images", "0"], "train_images=0"),
    (["train", "--out", "x", "--lr", "inf"], "lr=inf"),
    (["train", "--out", "x", "--mlp-ratio", "nan"], "mlp_ratio=nan"),
    (["train", "--out", "x", "--attention", "differential:lambda_init=schedule/nan"], "a=nan"),
    (["train", "--out", "x", "--attention", "differential:lambda_init=schedule/.8/.6/-1000"], "c=-1000"),
    (["train", "--out", "/dev/null"], "/dev/null is a file"),
    (["train", "--out", "/dev/null/x"], "/dev/null is a file"),
    (["train", "--out", "x", "--device", "meta"], "'meta'"),
    (["demo", "--out", "/dev/null"], "/dev/null is a file"),
    (["demo", "--seed", "-1"], "seed=-1"),
    (["train", "--out", "x", "--image-size", "64"], "image_size=64"),
    (["train", "--out", "x", "--device", "tpu"], "'tpu'"),
    (["train", "--out", "x", "--config", "none.yaml"], "none.yaml"),
    (["attack", "nowhere"], "nowhere is not a run"),
    (["attack", "RUN", "--eps", "8"], "8/255"),
    (["attack", "RUN", "--eps", "4/0"], "'4/0'"),
    (["attack", "RUN", "--eps", "-1/255"], "-1/255"),
    (["attack", "RUN", "--eps", "nan"], "nan"),
    (["attack", "RUN", "--eps", ""], "''"),
    (["attack", "RUN", "--steps", "0"], "steps=0"),
    (["attack", "RUN", "--images", "0"], "images=0"),
    (["attack", "RUN", "--eps", "4/255", "--loss", "dlr", "--target", "3"], "dlr"),
    (["attack", "RUN", "--eps", "4/255", "--target", "12"], "label 12"),
    (["attack", "RUN", "--eps", "9", "--norm", "l2"], "sqrt(64)"),
    (["attack", "RUN", "--eps", "8", "--norm", "patch"], "8/255"),
    (["attack", "RUN", "--eps", "1", "--norm", "patch", "--width", "9"], "9 x 9"),
    (["attack", "RUN", "--eps", "1", "--norm", "l2", "--attack", "fgsm"], "fgsm"),
    (["attack", "RUN", "--eps", "4/255", "--attack", "fab", "--target", "3"], "--target is not for fab"),
    (["attack", "RUN", "--eps", "4/255", "--attack", "square", "--steps", "3"], "--steps is not for square"),
    (["attack", "RUN", "--eps", "4/255", "--attack", "apgd", "--loss", "cosine"], "cosine is not for APGD"),
    (["attack", "RUN", "--eps", "4/255", "--loss", "dlr-targeted"], "dlr-targeted is not for PGD"),
    (["attack", "RUN", "--eps", "1", "--norm", "patch", "--attack", "autoattack"], "use PGD within a patch"),
    (["attack", "RUN", "--eps", "1", "--norm", "patch", "--place", "middle"], "'middle'"),
    (["attack", "RUN", "--attack", "cw", "--eps", "4/255"], "--eps is not for cw"),
    (["attack", "RUN", "--attack", "fmn", "--norm", "linf"], "--norm linf is not for fmn"),
    (["attack", "RUN", "--attack", "minimal-l2", "--eight-bit"], "--eight-bit is not for minimal-l2"),
    (["attack", "RUN", "--attack", "ddn", "--protocol", "paper"], "--protocol paper is not for ddn"),
    (["attack", "RUN", "--attack", "ddn", "--restarts", "2"], "--restarts is not for ddn"),
    (["attack", "RUN", "--attack", "ddn", "--runs", "2"], "--restarts is not for ddn"),
    (["attack", "RUN", "--attack", "fmn", "--searches", "3"], "--searches is not for fmn"),
    (["attack", "RUN", "--attack", "minimal-l2", "--confidence", "1"], "--confidence is not for minimal-l2"),
    (["attack", "RUN", "--eps", "4/255", "--searches", "3"], "--searches is not for pgd"),
    (["attack", "RUN", "--eps", "4/255", "--attack", "autoattack", "--gamma", "0.1"], "--gamma is not for autoattack"),
    (["attack", "RUN", "--eps", "4/255", "--attack", "fab", "--queries", "10"], "--queries is not for fab"),
    (["attack", "RUN", "--attack", "cw", "--searches", "0"], "searches=0"),
    (["attack", "RUN", "--attack", "ddn", "--gamma", "2"], "gamma=2"),
    (["attack", "RUN", "--attack", "cw", "--target", "12"], "label 12"),
    (["attack", "RUN", "--eps", "4/255", "--out", "/dev/null"], "/dev/null is a file"),
    (["train", "--out", "x", "--adv-eps", "8"], "8/255"),
    (["train", "--out", "x", "--start-from", "nowhere"], "nowhere is not a run"),
    (["train", "--out", "x", "--clean-share", "1.5"], "clean_share=1.5"),
    (["attack", "RUN", "--data", "cifar10"], "does not fit"),
    (["measure", "RUN", "--measures", "vibes"], "'vibes'"),
    (["measure", "RUN", "--probes", "1"], "probes=1"),
    (["measure", "RUN", "--measures", "alignment", "--readings", "R9"], "'R9'"),
    (["measure", "RUN", "--measures", "alignment", "--readings", "D1"], "always sum to one"),
    (["measure", "RUN", "--measures", "alignment", "--readings", "D2"], "sign(lambda)"),
    (["measure", "RUN", "--perturbations", "vibes"], "'vibes'"),
    (["measure", "RUN", "--levels", "nose"], "'nose'"),
    (["measure", "RUN", "--estimators", "certified"], "'certified'"),
    (["measure", "RUN", "--max-probes", "2", "--probes", "4"], "--max-probes 2"),
    (["measure", "RUN", "--images", "0"], "images=0"),
    (["measure", "RUN", "--base", "nowhere"], "nowhere"),
    (["measure", "RUN", "--out", "/dev/null"], "/dev/null is a file"),
    (["measure", "VIT", "--measures", "lambda"], "no lambda"),
    (["measure", "VIT", "--measures", "alignment"], "two branches"),
    (["theory", "VIT"], "two branches"),
    (["theory", "RUN", "--base", "RUN"], "softmax model"),
    (["theory", "RUN", "--base", "nowhere"], "nowhere is not a run"),
    (["theory", "RUN", "--probes", "1"], "probes=1"),
    (["theory", "RUN", "--images", "0"], "images=0"),
    (["theory", "RUN", "--data", "cifar10"], "does not fit"),
    (["compare", "RUN", "RUN", "--out", "x"], "with itself"),
    (["compare", "RUN", "VIT", "--out", "/dev/null"], "/dev/null is a file"),
    (["compare", "RUN", "nowhere", "--out", "x"], "nowhere is not a run"),
    (["report", "nowhere"], "nowhere holds nothing to report"),
    (["report", "RUN", "--data", "cifra10"], "did you mean"),
    (["report", "RUN", "--out", "/dev/null"], "/dev/null is a file"),
    (["look", "nowhere"], "nowhere is not a run"),
    (["look", "RUN", "--eps", "0"], "clean image"),
    (["look", "RUN", "--images", "0"], "images=0"),
    (["look", "RUN", "--probes", "1"], "probes=1"),
]


@pytest.mark.parametrize(("words", "named"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_bad_input_gets_one_sentence_exit_code_2_and_leaves_nothing(
    words, named, cli, runs, tmp_path, monkeypatch, request
):
    if "cifar10" in words:
        request.getfixturevalue("data_root")
    monkeypatch.chdir(tmp_path)
    code, out, err = cli(*({"RUN": runs[1], "VIT": runs[0]}.get(w, w) for w in words))
    assert code == 2
    assert out == ""
    assert named in err
    assert err.startswith("antiphase")
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_the_same_holds_in_a_process_of_its_own(shell, tmp_path):
    done = shell("train", "--out", tmp_path / "x", "--attention", "differential:lambda_init=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("antiphase train: lambda_init=1 with out_scale=official")
    assert not (tmp_path / "x").exists()


def test_a_run_without_a_checkpoint_or_with_a_broken_one_is_refused(cli, runs, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(runs[1], broken)
    (broken / "checkpoint.json").write_text("{")
    code, _, err = cli("attack", broken)
    assert code == 2
    assert "checkpoint.json is not valid JSON" in err
    for damage in ("{}", "[]", "null"):
        (broken / "checkpoint.json").write_text(damage)
        code, _, err = cli("attack", broken)
        assert code == 2
        assert "checkpoint.json has no entry" in err
    (broken / "checkpoint.json").unlink()
    code, _, err = cli("measure", broken)
    assert code == 2
    assert "no checkpoint" in err


def test_a_run_json_that_was_altered_is_refused(cli, runs, tmp_path):
    altered = tmp_path / "altered"
    shutil.copytree(runs[1], altered)
    text = (altered / "run.json").read_text()
    (altered / "run.json").write_text(text.replace('"lambda_init": 0.8', '"lambda_init": -2'))
    code, _, err = cli("attack", altered, "--eps", "4/255")
    assert code == 2
    assert "run.json was altered" in err


def test_an_unfinished_run_is_refused(cli, digits, tmp_path, monkeypatch):
    from antiphase.models import ViTConfig
    from antiphase.training import TrainConfig, loop

    real = loop.save

    def once(*args):
        real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "save", once)
    with pytest.raises(KeyboardInterrupt):
        loop.train(ViTConfig(patch=2, width=32, heads=4), TrainConfig(epochs=5), *digits, tmp_path / "half")
    code, _, err = cli("attack", tmp_path / "half")
    assert code == 2
    assert "is not finished (epoch 1)" in err


def test_a_damaged_comparison_is_refused(cli, tmp_path):
    (tmp_path / "comparison.json").write_text("{}")
    code, _, err = cli("report", tmp_path)
    assert code == 2
    assert "comparison.json has no entry 'models'" in err


def test_a_reader_that_stops_early_is_no_error():
    argv = f"{sys.executable} -m antiphase train --help | head -1"
    done = subprocess.run(argv, shell=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_runs_of_one_name_are_told_apart(cli, runs, tmp_path):
    for folder, run in (("a", runs[0]), ("b", runs[1])):
        shutil.copytree(run, tmp_path / folder / "run")
    words = ("--images", "8", "--eps", "8/255,8/255", "--steps", "2", "--draws", "1", "--probes", "2", "--json")
    code, out, err = cli("compare", tmp_path / "a/run", tmp_path / "b/run", "--out", tmp_path / "c", *words)
    assert code == 0, err
    result = json.loads(out)
    assert [side["name"] for side in result["models"]] == [str(tmp_path / "a/run"), str(tmp_path / "b/run")]
    assert len(result["paired"]) == 1  # the same budget twice is one budget
    assert result["scale"] == "smoke"


def test_the_last_scale_counts(cli):
    assert "(default: 32)" in cli("train", "--scale", "cpu", "--scale", "smoke", "--help")[1]


def test_a_diverging_run_exits_with_1_and_a_sentence(cli, tmp_path):
    code, _, err = cli("train", "--out", tmp_path / "x", "--lr", "1e30", "--attention", "differential")
    assert code == 1
    assert "epoch 1" in err
    assert "checkpoint is kept" not in err  # there is none yet
    assert "Traceback" not in err


# ------------------------------------------------------------------------------------------------- the steps one by one


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
    assert compared == json.loads((tmp_path / "both" / "comparison.json").read_text())
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


def test_tables_are_for_people(cli, runs):
    code, out, _ = cli("attack", runs[1], "--eps", "8/255", "--images", "32")
    assert code == 0
    assert "8/255" in out
    assert "robust_accuracy" in out
    code, out, _ = cli("measure", runs[0])
    assert code == 0
    assert "lower bound" in out
    assert "branch alignment" not in out  # a softmax model has one branch
    assert "pseudo" in out  # its cancellation is that of pairs of heads


def test_a_softmax_model_of_one_head_is_measured_as_far_as_it_goes(cli, tmp_path):
    code, _, err = cli("train", "--out", tmp_path / "one", "--heads", "1", "--epochs", "1", "--json")
    assert code == 0, err
    code, out, err = cli("measure", tmp_path / "one", "--images", "4", "--json")
    assert code == 0, err
    assert "lipschitz" in json.loads(out)
    assert "cancellation" not in json.loads(out)


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


def test_flags_may_come_in_any_order(cli, runs):
    orders = (
        ("attack", runs[1], "--eps", "4/255,6/255", "--images", "32", "--json"),
        ("attack", "--images", "32", "--json", "--eps", "4/255,6/255", "--seed", "0", runs[1]),
        ("attack", "--json", runs[1], "--images=32", "--eps", "6/255,4/255"),
    )
    assert len({cli(*order)[1] for order in orders}) == 1


def test_mixed_layers_and_every_option_of_attention_reach_the_model(cli, tmp_path):
    words = (
        "--depth",
        "2",
        "--attention",
        "softmax",
        "differential:lambda_init=0.3/0.5,learned=false,head_norm=none,out_scale=none",
    )
    code, _, err = cli("train", *words, "--epochs", "1", "--out", tmp_path / "x")
    assert code == 0, err
    layers = json.loads((tmp_path / "x" / "run.json").read_text())["model"]["attention"]
    assert layers[0] == {"kind": "Softmax"}
    assert layers[1] == {
        "kind": "Differential", "lambda_init": [0.3, 0.5], "learned": False, "head_norm": "none", "out_scale": "none"
    }  # fmt: skip


def test_a_config_file_or_another_runs_json_sets_the_defaults_and_flags_override_it(cli, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "model: {width: 16, heads: 2, attention: [{kind: Differential, lambda_init: 0.5}]}\ntraining: {epochs: 1}\n"
    )
    code, _, err = cli("train", "--out", tmp_path / "a", "--config", recipe)
    assert code == 0, err
    about = json.loads((tmp_path / "a" / "run.json").read_text())
    assert (about["model"]["width"], about["model"]["patch"], about["training"]["epochs"]) == (16, 2, 1)
    code, _, err = cli("train", "--seed", "3", "--config", tmp_path / "a" / "run.json", "--out", tmp_path / "b")
    assert code == 0, err
    again = json.loads((tmp_path / "b" / "run.json").read_text())
    assert again["model"] == about["model"]
    assert again["training"] == about["training"] | {"seed": 3}
    recipe.write_text("modle: {}\n")
    code, _, err = cli("train", "--out", tmp_path / "c", "--config", recipe)
    assert code == 2
    assert "'modle'" in err


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
    assert json.loads((tmp_path / "both" / "comparison.json").read_text())["data"]["name"] == "cifar10"
    again = ("--config", tmp_path / "softmax" / "run.json", "--data-root", data_root, "--out", tmp_path / "again")
    assert cli("train", *again)[0] == 0  # the run's own data, size and recipe
    logs = [(tmp_path / name / "log.jsonl").read_text().split('"seconds"')[0] for name in ("again", "softmax")]
    assert logs[0] == logs[1]


# ------------------------------------------------------------------------------------------------- attacks in full


@pytest.mark.parametrize(
    "words",
    [
        ("--norm", "l2", "--eps", "0.5,1", "--restarts", "2", "--protocol", "paper"),
        ("--norm", "patch", "--eps", "1", "--width", "3", "--steps", "20", "--place", "attention"),
        ("--norm", "patch", "--eps", "1", "--width", "4", "--steps", "20", "--place", "2,3"),
        ("--attack", "fgsm", "--eps", "8/255", "--label", "predicted"),
        ("--attack", "apgd", "--eps", "4/255,24/255", "--steps", "10", "--loss", "dlr-targeted", "--targets", "3"),
        ("--attack", "fab", "--norm", "l2", "--eps", "0.5", "--steps", "10", "--runs", "2", "--protocol", "paper"),
        ("--attack", "square", "--eps", "24/255", "--queries", "50", "--eight-bit"),
        ("--attack", "autoattack", "--version", "rand", "--eps", "24/255,48/255", "--label", "predicted"),
        ("--eps", "32/255", "--target", "least-likely", "--loss", "margin"),
        ("--eps", "32/255", "--target", "4", "--step-size", "0.01"),
    ],
    ids=" ".join,
)
def test_every_kind_of_attack_is_a_flag_away(words, cli, runs):
    code, out, err = cli("attack", runs[1], "--images", "24", *words, "--json")
    assert code == 0, err
    for cell in json.loads(out)["cells"]:
        assert cell["rates"]["asr_change"]["n"] == 24 * (2 if "paper" in words else 1)
        assert max(cell["images"]["distance"]) <= cell["eps"] + 1e-7
        assert cell["flags"] == []


def test_fast_and_paper_protocol_agree_on_what_falls(cli, runs):
    words = ("attack", runs[1], "--images", "48", "--eps", "4/255,12/255,32/255", "--json")
    fast, paper = (json.loads(cli(*words, "--protocol", p)[1])["cells"] for p in ("fast", "paper"))
    for a, b in zip(fast, paper):
        flags = [[bool(v) for v in c["images"]["changed_in_run"][0]] for c in (a, b)]
        assert all(x or not y for x, y in zip(*flags))
    assert sum(c["forwards_per_image"] for c in fast) < sum(c["forwards_per_image"] for c in paper)


def test_saved_images_are_adversarial_when_read_again(cli, runs):
    from PIL import Image
    from safetensors.torch import load_file

    from antiphase.data import load
    from antiphase.models.run import Run

    run = Run(Path(runs[1]))
    model, test = run.classifier(), load("digits", "test")
    clean = dict(zip(test.ids.tolist(), model(test.all.pixels).argmax(dim=1).tolist()))
    words = ("attack", runs[1], "--images", "60", "--eps", "24/255", "--save", "--json")
    (cell,) = json.loads(cli(*words)[1])["cells"]
    folder = run.folder / "attacks" / cell["saved"]["folder"]
    stored = load_file(next(folder.glob("*.safetensors")))
    assert len(stored["ids"]) == cell["saved"]["images"] == sum(cell["images"]["changed_in_run"][0])
    now = model(stored["adversarial"]).argmax(dim=1).tolist()
    assert all(prediction != clean[i] for prediction, i in zip(now, stored["ids"].tolist()))
    (cell,) = json.loads(cli(*words, "--eight-bit")[1])["cells"]
    pngs = list((run.folder / "attacks" / cell["saved"]["folder"] / "png").glob("*.png"))
    assert len(pngs) == cell["saved"]["images"] > 10
    for png in pngs:
        pixels = torch.from_numpy(np.asarray(Image.open(png)).copy())[None, None].float() / 255
        assert int(model(pixels).argmax()) != clean[int(png.stem)]


def test_an_interrupted_evaluation_goes_on_where_it_was(pair, digits, tmp_path, monkeypatch):
    from antiphase.attacks import PGD, Linf
    from antiphase.models.run import Run
    from antiphase.results import attack

    shutil.copytree(pair[1].folder, tmp_path / "run", ignore=shutil.ignore_patterns("attacks", "measures"))
    monkeypatch.setattr(attack, "PART", 16)
    attacks, images = [PGD(within=Linf("12/255"), steps=5)], digits[1].subset(64)
    whole = attack.attack_cells(pair[1], images, attacks, protocol="fast")[0]
    real, calls = attack.engine.run, []

    def counted(*args, **kwargs):
        if len(calls) == 2:
            calls.append("pulled")
            raise KeyboardInterrupt
        calls.append(len(args[1]))
        return real(*args, **kwargs)

    monkeypatch.setattr(attack.engine, "run", counted)
    with pytest.raises(KeyboardInterrupt):
        attack.attack_cells(Run(tmp_path / "run"), images, attacks, protocol="fast")
    again = attack.attack_cells(Run(tmp_path / "run"), images, attacks, protocol="fast")[0]
    assert calls == [16, 16, "pulled", 16, 16, 32]  # what was left, and the look at a huge budget
    assert again["images"] == whole["images"]
    assert not list((tmp_path / "run" / "attacks").glob("*/"))  # nothing half-done is left


PEAK = f"""
import sys
from pathlib import Path
from antiphase.attacks import PGD, Linf
from antiphase.data import load
from antiphase.models.run import Run
from antiphase.results.attack import attack_cells
images = load("cifar10", "test").subset(int(sys.argv[2]))
attack_cells(Run(Path(sys.argv[1])), images, [PGD(within=Linf("8/255"), steps=2)], protocol="fast", save=True)
print({HIGH_WATER})
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_saved_set(cli, tmp_path, data_root):
    """500 and 5,000 images: 6 MB and 61 MB of pixels, were they held (with originals twice that)."""
    small = ("--scale", "cpu", "--train-images", "500", "--epochs", "1", "--width", "32", "--data-root", data_root)
    assert cli("train", *small, "--out", tmp_path / "run")[0] == 0
    peaks = []
    for n in (500, 5000):
        argv = [sys.executable, "-c", PEAK, str(tmp_path / "run"), str(n)]
        peaks.append(int(subprocess.run(argv, capture_output=True, text=True, check=True).stdout))
    assert peaks[1] < 1.10 * peaks[0]


def test_a_reader_who_has_seen_enough_is_no_error():
    command = [sys.executable, "-m", "antiphase", "study", "list", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 0
