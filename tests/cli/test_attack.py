"""antiphase attack"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

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
        ("--attack", "fgsm", "--eps", "8/255"): "FGSM",
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
        assert "".join(f"{run}: {heading} on 8 digits test images".split()) in "".join(out.split())  # wrapped anywhere
    (cell,) = json.loads(cli("attack", run, "--images", 8, *patch, "3", "--place", "2,1", "--json")[1])["cells"]
    assert cell["attack"]["within"] == {"kind": "Patch", "eps": 1.0, "width": 3, "place": [2, 1]}
    tables = runs_page([run]).sections[0].parts
    assert sorted(table.title for table in tables) == sorted(
        f"{text} on 8 digits test images" for text in headings.values()
    )


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
