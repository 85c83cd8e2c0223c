"""Help, flags and exit codes: a refusal is one sentence and leaves nothing behind."""

import re
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args

import pytest

from antiphase.cli import COMMANDS, usage
from antiphase.cli.values import read_word, value_of
from antiphase.models.attention_syntax import KINDS
from antiphase.training.config import Penalty, PenaltyTerm


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
        words = re.sub(r"^--\S+(, --\S+)?( (\{[^}]*\}|[A-Z]+(\[\S*\])?)(\|\S+)?( \.\.\.)?)?", "", text).split()
        assert len(words) >= 2, f"{command} {flag} has no help: {option!r}"


def test_a_scale_shows_in_the_defaults(cli):
    _, out, _ = cli("train", "--scale", "cpu", "--help")
    assert "(default: 96)" in out
    assert "(default: cifar10)" in " ".join(out.split())
    assert "(default: 32)" in cli("train", "--help")[1]


def test_the_version_is_the_packages(cli):
    from importlib.metadata import version

    assert cli("--version")[1].strip() == f"antiphase {version('antiphase')}"


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
    (["attack", "nowhere"], "there is no folder nowhere"),
    (["attack", "RUN", "--steps", "1.5"], "--steps takes a whole number, got '1.5'"),
    (["attack", "RUN", "--images", "1e3"], "--images takes a whole number, got '1e3'"),
    (["attack", "RUN", "--step-size", "small"], "--step-size takes a number, got 'small'"),
    (["attack", "RUN", "--norm", "l1"], "--norm takes linf, l2 or patch, got 'l1'"),
    (["attack", "RUN", "--attack", "pdg"], "got 'pdg': did you mean 'pgd'?"),
    (["attack", "RUN", "--target", "any"], "--target takes least-likely, random or a whole number, got 'any'"),
    (["attack", "RUN", "--eps"], "--eps needs a value, and none follows it"),
    (["attack", "RUN", "--epsilon", "8/255"], "there is no flag --epsilon: did you mean --eps?"),
    (["attack", "RUN", "-eps", "8/255"], "there is no flag -eps: did you mean --eps?"),
    (["attack", "RUN", "--frobnicate"], "there is no flag --frobnicate: see antiphase attack --help"),
    (["attack", "RUN", "--save", "yes"], "--save takes no value, got 'yes'"),
    (["attack"], "attack takes one run, as in antiphase attack runs/diffvit"),
    (["attack", "RUN", "VIT"], "attack takes one run, and"),
    (["compare", "RUN"], "compare takes two runs, as in antiphase compare runs/vit runs/diffvit --out"),
    (["compare", "RUN", "VIT"], "compare needs --out: folder for comparison.json and report/"),
    (["compare", "RUN", "VIT", "third", "--out", "x"], "compare takes two runs, and 'third' is one more"),
    (["convert", "file.pt"], "convert takes a checkpoint and the folder of the run to write"),
    (["train", "runs/vit", "--out", "x"], "train takes flags alone, got 'runs/vit'"),
    (["train", "--outt", "x"], "there is no flag --outt: did you mean --out?"),
    (["train", "--out", "x", "--mean", "dark"], "'dark' is no list of numbers"),
    (["study", "run", "--scale", "paper"], "name studies (antiphase study list) or all"),
    (["study", "status", "--ledger", "nowhere"], "there is no folder nowhere: name a ledger"),
    (["study", "verdicts", "--ledger", "RUN"], "is no ledger, since it has files but no rows"),
    (["attack", "my_vit.pth"], "a model of your own becomes one by antiphase audit"),
    (["attack", "RUN", "--eps", "8"], "8/255"),
    (["attack", "RUN", "--eps", "4/0"], "'4/0'"),
    (["attack", "RUN", "--eps", "-1/255"], "-1/255"),
    (["attack", "RUN", "--eps", "nan"], "nan"),
    (["attack", "RUN", "--eps", ""], "''"),
    (["attack", "RUN", "--steps", "0"], "steps=0"),
    (["attack", "RUN", "--images", "0"], "images=0"),
    (["attack", "RUN", "--eps", "4/255", "--loss", "dlr", "--target", "3"], "dlr"),
    (["attack", "RUN", "--eps", "4/255", "--target", "12"], "target 12 is out of range"),
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
    (["attack", "RUN", "--attack", "cw", "--target", "12"], "target 12 is out of range"),
    (["attack", "RUN", "--eps", "4/255", "--out", "/dev/null"], "/dev/null is a file"),
    (["train", "--out", "x", "--adv-eps", "8"], "8/255"),
    (["train", "--out", "x", "--start-from", "nowhere"], "there is no folder nowhere"),
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
    (["theory", "RUN", "--base", "nowhere"], "there is no folder nowhere"),
    (["theory", "RUN", "--probes", "1"], "probes=1"),
    (["theory", "RUN", "--images", "0"], "images=0"),
    (["theory", "RUN", "--data", "cifar10"], "does not fit"),
    (["compare", "RUN", "RUN", "--out", "x"], "with itself"),
    (["compare", "RUN", "VIT", "--out", "/dev/null"], "/dev/null is a file"),
    (["compare", "RUN", "nowhere", "--out", "x"], "there is no folder nowhere"),
    (["certify"], "runs"),
    (["certify", "nowhere"], "there is no folder nowhere"),
    (["certify", "RUN", "nowhere"], "there is no folder nowhere"),
    (["certify", "RUN", "VIT", "RUN"], "one run or two, got 3"),
    (["certify", "RUN", "RUN"], "with itself"),
    (["certify", "RUN", "--sigma", "0"], "sigma=0 must be above 0"),
    (["certify", "RUN", "--sigma", "0.25,-1"], "sigma=-1"),
    (["certify", "RUN", "--sigma", "nan"], "sigma=nan"),
    (["certify", "RUN", "--sigma", "1e999"], "sigma=inf"),
    (["certify", "RUN", "--sigma", "64"], "pixels in [0,1]"),
    (["certify", "RUN", "--sigma", "small"], "'small'"),
    (["certify", "RUN", "--sigma", ""], "''"),
    (["certify", "RUN", "--alpha", "1"], "alpha=1"),
    (["certify", "RUN", "--alpha", "nan"], "alpha=nan"),
    (["certify", "RUN", "--samples", "0"], "samples=0"),
    (["certify", "RUN", "--samples", "9"], "at least 10"),
    (["certify", "RUN", "--samples", "9" * 400], "at most"),
    (["certify", "RUN", "--selection", "0"], "selection=0"),
    (["certify", "RUN", "--attack-images", "-1"], "attack_images=-1"),
    (["certify", "RUN", "--attack-draws", "0"], "attack_draws=0"),
    (["certify", "RUN", "--attack-steps", "0"], "steps=0"),
    (["certify", "RUN", "--images", "0"], "images=0"),
    (["certify", "RUN", "--seed", "-1"], "seed=-1"),
    (["certify", "RUN", "--data", "cifar10"], "does not fit"),
    (["report", "nowhere"], "nowhere holds nothing to report"),
    (["report", "RUN", "--data", "cifra10"], "did you mean"),
    (["report", "RUN", "--out", "/dev/null"], "/dev/null is a file"),
    (["look", "nowhere"], "there is no folder nowhere"),
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


def test_a_pipe_closed_early_is_no_error():
    argv = f"{sys.executable} -m antiphase train --help | head -1"
    done = subprocess.run(argv, shell=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_the_last_of_several_scales_counts(cli):
    assert "(default: 32)" in cli("train", "--scale", "cpu", "--scale", "smoke", "--help")[1]


def test_flags_may_come_in_any_order(cli, runs):
    orders = (
        ("attack", runs[1], "--eps", "4/255,6/255", "--images", "32", "--json"),
        ("attack", "--images", "32", "--json", "--eps", "4/255,6/255", "--seed", "0", runs[1]),
        ("attack", "--json", runs[1], "--images=32", "--eps", "6/255,4/255"),
    )
    assert len({cli(*order)[1] for order in orders}) == 1


def test_a_pipe_closed_before_the_first_line_is_no_error():
    command = [sys.executable, "-m", "antiphase", "study", "list", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 0


def test_a_mistyped_run_suggests_its_sibling_and_a_folder_of_runs_lists_them(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("D", "V", *(f"seed-{i}" for i in range(5))):
        Path("r", name).mkdir(parents=True)
        Path("r", name, "run.json").touch()
    Path("empty").mkdir()
    said = {
        "r/Dd": "there is no folder r/Dd: did you mean r/D?",
        "r/other": "there is no folder r/other",
        "s/D": "there is no folder s/D",
        "r": "r is not a run but holds runs: name one of them (r/D, r/V, r/seed-0, r/seed-1, r/seed-2 and 2 more)",
        ".": ". is not a run: it has no run.json",
        "empty": "empty is not a run: it has no run.json (make one with antiphase train --out empty)",
    }
    for folder, sentence in said.items():
        assert cli("attack", folder) == (2, "", f"antiphase attack: {sentence}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_no_brackets_of_types_and_no_flag_that_is_denied_twice(command, cli):
    _, out, _ = cli(command, "--help")
    assert "{None" not in out
    assert "[[" not in out
    assert "--no-no-" not in out


def test_help_of_training_lists_every_attention_and_penalty_with_their_keys(cli):
    _, out, _ = cli("train", "--help")
    first = {line.split()[0] for line in out.splitlines() if line.startswith("  ") and line.strip()}
    keys = {field.name for kind in KINDS.values() for field in fields(kind)} | {field.name for field in fields(Penalty)}
    assert {*KINDS, *get_args(PenaltyTerm), *keys} - {"term"} <= first
    assert set(KINDS) <= {line.split()[0] for line in cli("train-clip", "--help")[1].splitlines() if line.strip()}


def test_none_is_still_a_word_for_a_flag_that_may_be_left_out():
    assert read_word(value_of(int | None), "None") is None
    assert read_word(value_of(Literal["a"] | int | None), "3") == 3
