"""antiphase train"""

import json

import pytest
import torch
from PIL import Image

from antiphase import runtime
from antiphase.data import load


def test_a_diverging_run_exits_with_1_and_a_sentence(cli, tmp_path):
    code, _, err = cli("train", "--out", tmp_path / "x", "--lr", "1e30", "--attention", "differential")
    assert code == 1
    assert "epoch 1" in err
    assert "checkpoint is kept" not in err  # there is none yet
    assert "Traceback" not in err
    assert "lower --lr (1e+30 here)" in err
    code, out, err = cli(
        "train", "--out", tmp_path / "x", "--epochs", 1, "--json"
    )  # nothing came of it: its folder is free
    assert code == 0, err
    assert json.loads(out)["log"][-1]["epoch"] == 1


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


@pytest.mark.parametrize(
    "words", [["train", "--width", 16, "--heads", 2], ["train-clip", "--variant", "CLIP", "--train-images", 64]]
)
def test_a_training_goes_on_with_the_number_of_threads_that_it_began_with(cli, tmp_path, monkeypatch, words):
    """Digits take one thread, and the last bits of weights depend on the number."""
    command = [*words, "--epochs", 1, "--out", tmp_path / "x"]
    monkeypatch.setattr(runtime, "_own_threads", lambda: 2)
    monkeypatch.setattr(runtime, "_begun_with", [])
    try:
        torch.set_num_threads(2)  # OMP_NUM_THREADS is set, so this stays
        assert cli(*command)[0] == 0
        torch.set_num_threads(1)
        assert "was begun with threads 2" in cli(*command)[2]
        monkeypatch.delenv("OMP_NUM_THREADS")
        code, _, err = cli(*command)
        assert (code, torch.get_num_threads()) == (0, 2)
        assert "threads" not in err
    finally:
        torch.set_num_threads(1)


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


def test_a_mean_and_std_per_channel_are_given_as_several_numbers(cli, tmp_path, data_root):
    words = ["--data", "cifar10", "--data-root", data_root, "--epochs", 1, "--train-images", 20, "--width", 16]
    words += ["--heads", 2, "--patch", 8, "--mean", 0.4, 0.5, 0.6, "--std", 0.2]
    code, _, err = cli("train", "--out", tmp_path / "run", *words)
    assert code == 0, err
    model = json.loads((tmp_path / "run" / "run.json").read_text())["model"]
    assert (model["mean"], model["std"]) == ([0.4, 0.5, 0.6], 0.2)
    code, _, err = cli("train", "--out", tmp_path / "digits", "--data", "digits", "--mean", 0.4, 0.5, 0.6)
    assert code == 2
    assert "3 values for images of 1 channels" in err


def test_a_folder_of_32_pixel_images_is_trained_on_and_attacked_as_it_is(shell, tmp_path, data_root):
    """Real CIFAR-10 images as PNG files, on the real command line."""
    images = load("cifar10", "test", root=data_root).subset(100)
    for pixels, label, i in zip(*images.all):
        folder = tmp_path / "own" / images.class_names[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((255 * pixels.permute(1, 2, 0)).round().byte().numpy()).save(folder / f"{i}.png")
    done = shell("train", "--data", "own", "--epochs", 1, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "brought to" not in done.stderr
    assert json.loads((tmp_path / "run/run.json").read_text())["data"]["shape"] == [3, 32, 32]
    for data in ((), ("--data", "own")):
        done = shell("attack", "run", *data, "--eps", "4/255", "--images", 8, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
