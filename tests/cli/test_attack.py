"""antiphase attack"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import antiphase as ap
from antiphase.attacks.question import AttackAnswer
from antiphase.config import to_plain
from antiphase.report.numbers import attack_with_settings
from antiphase.store import read_entry
from tests.conftest import HIGH_WATER


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
def test_every_kind_of_attack_can_be_chosen_by_a_flag(words, cli, runs):
    code, out, err = cli("attack", runs[1], "--images", "24", *words, "--json")
    assert code == 0, err
    for cell in json.loads(out)["cells"]:
        if "--target" in words:
            assert cell["rates"].keys() == {"clean_accuracy", "target_reached", "target_reached_correct"}
        else:
            assert cell["rates"]["asr_change"]["n"] == 24 * (2 if "paper" in words else 1)
        assert max(cell["images"]["distance"]) <= cell["eps"] + 1e-7
        assert cell["flags"] == []


def test_fgsm_is_called_fgsm_and_a_patch_is_shown_with_its_width_and_place(cli, runs, tmp_path):
    """In the terminal, as JSON and on the page of the run."""
    from antiphase.report.pages.runs import runs_page

    run = tmp_path / "DiffViT"
    shutil.copytree(runs[1], run, ignore=shutil.ignore_patterns("attacks", "measures", "looks", "evals"))
    patch = ("--norm", "patch", "--eps", "1", "--steps", "2", "--width")
    headings = {
        ("--attack", "fgsm", "--eps", "8/255"): "FGSM within Linf",
        (*patch, "2"): "PGD within a patch of 2 x 2 pixels at a random place",
        (*patch, "3", "--place", "2,1"): "PGD within a patch of 3 x 3 pixels at top 2, left 1",
        (
            *patch,
            "3",
            "--place",
            "attention",
        ): "PGD within a patch of 3 x 3 pixels at the place that the model attends to most",
    }
    for words, heading in headings.items():
        code, out, err = cli("attack", run, "--images", 8, *words)
        assert code == 0, err
        settings = "" if "fgsm" in words else ", 2 steps, 1 restart"
        title = f"{run}: {heading}{settings}, on 8 digits test images"
        assert "".join(title.split()) in "".join(out.split())  # wrapped anywhere
    (cell,) = json.loads(cli("attack", run, "--images", 8, *patch, "3", "--place", "2,1", "--json")[1])["cells"]
    assert cell["attack"]["within"] == {"kind": "Patch", "eps": 1.0, "width": 3, "place": [2, 1]}
    tables = runs_page([run]).sections[0].parts
    assert sorted(table.title for table in tables) == sorted(
        f"{text} on 8 digits test images".replace("FGSM within Linf", "FGSM") for text in headings.values()
    )


def test_the_header_says_what_was_asked(cli, runs):
    """The threat model, steps and restarts always, and what is not as by default; no line is longer than 80 characters."""
    asked = {
        ("--eps", "8/255", "--images", "8"): "PGD within Linf, 10 steps, 1 restart, on",
        ("--norm", "l2", "--eps", "0.5,128/255", "--loss", "margin", "--restarts", "3", "--protocol", "paper"): (
            "PGD within L2, 10 steps, 3 restarts, loss margin, protocol paper, on"
        ),
        ("--attack", "fgsm", "--label", "predicted", "--eight-bit", "--seed", "2"): (
            "FGSM within Linf, away from the predicted label, pixels on the grid of 255ths, seed 2, on"
        ),
        ("--attack", "apgd", "--steps", "3", "--loss", "dlr-targeted", "--targets", "4"): (
            "APGD within Linf, 3 steps, 1 restart, loss dlr-targeted, 4 target classes, on"
        ),
        ("--attack", "square", "--queries", "7"): "Square within Linf, 7 queries, 1 restart, on",
        ("--attack", "cw", "--searches", "1", "--steps", "5", "--confidence", "1"): (
            "CW, 1 search, 5 steps, confidence 1, on"
        ),
        ("--attack", "minimal-l2", "--searches", "1", "--steps", "2"): (
            "MinimalL2, FMN (2 steps), DDN (2 steps), CW (1 search, 2 steps), on"
        ),
    }
    for words, header in asked.items():
        code, out, err = cli("attack", runs[1], "--images", 8, *words)
        assert code == 0, err
        assert "".join(header.split()) in "".join(out.split())
        assert max(map(len, out.splitlines())) <= 80
        if "128/255" in words[3]:
            assert {"0.5", "128/255"} <= set(out.split())  # the budgets as they were written
    rand = ap.AutoAttack(within=ap.L2(1), version="rand", label="predicted")
    assert attack_with_settings(to_plain(rand)) == (
        "AutoAttack within L2, version rand, 100 steps, 5000 queries, away from the predicted label"
    )


def test_an_attack_with_a_target_names_it_and_counts_what_reaches_it(cli, runs):
    """Of images that were not predicted as the target already; no rate of it calls an image robust that changed elsewhere."""
    from antiphase.data import load
    from antiphase.models.run import Run

    for target, words in (
        ("least-likely", "the least likely class"),
        ("random", "a random other class"),
        ("3", "class 3"),
    ):
        asked = ("attack", runs[1], "--images", 48, "--eps", "32/255,64/255", "--target", target)
        code, out, err = cli(*asked)
        assert code == 0, err
        assert f"PGD within Linf towards {words}, 10 steps, 1 restart," in " ".join(out.split())
        assert "target_reached" in out
        assert "robust" not in out
        assert "asr" not in out
        cell = json.loads(cli(*asked, "--json")[1])["cells"][-1]
        images, rate = cell["images"], cell["rates"]["target_reached"]
        at_target = [target == "3" and clean == 3 for clean in images["clean"]]
        assert rate["n"] == 48 - sum(at_target)
        assert rate["hits"] == sum(images["changed_in_run"][0]) > 0
        assert f"target_reached, n = {rate['n']}" in out
    assert sum(at_target) > 0
    x, y, ids = load("digits", "test").subset(48).all
    result = ap.attack(
        Run(Path(runs[1])).classifier(), x, y, ap.PGD(within=ap.Linf("64/255"), steps=10, target=3), ids=ids
    )
    assert ap.success_rates(result)["target_reached"] == rate
    assert result.summary()["target_reached"]["of"].startswith("target predicted")
    for shown in (
        str(result),
        repr(result),
        str(ap.sweep(Run(Path(runs[1])).classifier(), x, y, [ap.PGD(within=ap.Linf(0), target=3)])),
    ):
        assert "towards class 3" in shown
        assert "robust" not in shown
        assert "fooled" not in shown
    assert set(result.to_pandas().target) == {3}


def test_a_targeted_answer_of_an_earlier_version_is_read_with_the_rates_of_its_target(cli, runs, tmp_path):
    from antiphase.measures.attack_rates import rates_of
    from antiphase.report.pages.runs import runs_page
    from antiphase.store import Store, entries_in

    run = tmp_path / "DiffViT"
    shutil.copytree(runs[1], run, ignore=shutil.ignore_patterns("attacks", "measures", "looks", "evals"))
    for words in (("--eps", "64/255"), ("--attack", "fmn", "--steps", "5")):
        asked = ("attack", run, "--images", 32, *words, "--target", "3", "--json")
        now = json.loads(cli(*asked)[1])
        (path,) = (
            p for p in entries_in(run / "attacks") if read_entry(p, bare=True).content["eps"] == now["cells"][0]["eps"]
        )
        answer = AttackAnswer(read_entry(path, bare=True).content)
        before = answer.content | {"rates": rates_of(answer.correct, answer.changed)}
        Store(run / "attacks", bare=True).put(path.name.split(".")[0], before)
        assert json.loads(cli(*asked)[1]) == now
    parts = runs_page([run]).sections[0].parts
    assert {part.title.split(" on ")[0] for part in parts} == {"PGD towards class 3", "FMN towards class 3"}


def test_the_figure_and_the_page_of_a_targeted_attack_draw_its_rates(cli, runs, tmp_path):
    from antiphase.report.pages.runs import runs_page

    run = tmp_path / "DiffViT"
    shutil.copytree(runs[1], run, ignore=shutil.ignore_patterns("attacks", "measures", "looks", "evals"))
    words = ("--images", 16, "--eps", "32/255,64/255", "--target", "random", "--out", tmp_path / "out")
    code, _, err = cli("attack", run, *words)
    assert code == 0, err
    figure = next(part for part in runs_page([run]).sections[0].parts if hasattr(part, "panels"))
    assert set(figure.data["rate"]) == {"target_reached", "target_reached_correct"}
    assert "reach the target" in figure.alt


def test_fast_and_paper_protocol_fool_the_same_images(cli, runs):
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


def test_where_saved_images_lie_is_printed_and_that_none_was_saved(cli, runs, tmp_path):
    words = ("attack", runs[1], "--images", 24, "--save")
    for more, pattern in (((), "*.safetensors"), (("--eight-bit",), "*.png")):
        code, out, err = cli(*words, *more, "--eps", "16/255,48/255", "--out", tmp_path / "out")
        assert code == 0, err
        places = [line.split(" in ")[1] for line in out.splitlines() if " adversarial image" in line]
        assert len(places) == 2
        for place in places:
            assert Path(place).name == pattern
            assert list(Path(place).parent.glob(pattern))
        assert json.loads((tmp_path / "out/attacks.json").read_text())["saved_in"] == places
    assert "saved at 0: nothing, since no image was fooled" in cli(*words, "--eps", "0")[1]
    assert "nothing, since other budgets had fooled" in cli(*words, "--eps", "48/255,48.001/255")[1]
    assert "saved" not in cli(*words[:-1], "--eps", "16/255")[1]


PEAK = f"""
import sys
from pathlib import Path
from antiphase.attacks import PGD, Linf
from antiphase.data import load
from antiphase.models.run import Run
from antiphase.results.attack import attack_answers
images = load("cifar10", "test").subset(int(sys.argv[2]))
attack_answers(Run(Path(sys.argv[1])), images, [PGD(within=Linf("8/255"), steps=2)], protocol="fast", save=True)
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
