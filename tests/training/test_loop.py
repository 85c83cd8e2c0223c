"""One loop: deterministic, resumable to the bit, and honest when it fails."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch

from antiphase.config import InputError
from antiphase.measures.success import accuracy
from antiphase.models import Softmax, ViTConfig
from antiphase.models.clip import CLIP
from antiphase.models.run import Run, read_tensors
from antiphase.training import ContrastiveConfig, Penalty, TrainConfig
from antiphase.training.loop import Diverged, Learner, make_optimizer, train
from tests.training.small_clip import SMALL_CLIP
from tests.training.small_vit import SHORT, SMALL


def test_the_same_config_and_seed_give_the_same_bits(digits, tmp_path):
    a, b = (train(SMALL, SHORT, *digits, tmp_path / name) for name in "ab")
    assert a.weights_digest == b.weights_digest
    other = train(SMALL, TrainConfig(epochs=2, seed=1), *digits, tmp_path / "c")
    assert other.weights_digest != a.weights_digest


def test_bf16_learns_nearly_what_float32_learns(digits, tmp_path):
    plain, short = (
        train(SMALL, TrainConfig(epochs=4, lr=3e-3, precision=p), *digits, tmp_path / p) for p in ("fp32", "bf16")
    )
    assert short.weights_digest != plain.weights_digest
    assert short.log[-1]["loss"] == pytest.approx(plain.log[-1]["loss"], rel=0.1)
    assert short.log[-1]["test_accuracy"] == pytest.approx(plain.log[-1]["test_accuracy"], abs=0.05)


@pytest.mark.parametrize(
    "config",
    [
        SHORT,
        TrainConfig(epochs=2, augment="crop-flip", schedule="cosine", label_smoothing=0.1),
        TrainConfig(epochs=2, adv_eps="8/255", adv_steps=2, clean_share=0.25),
        TrainConfig(epochs=2, noise=0.1, penalty=Penalty(term="noise-change", share=0.25)),
        TrainConfig(epochs=2, penalty=Penalty(term="attack-change", share=0.1)),
    ],
    ids=["plain", "augmented", "adversarial", "noise", "attack"],
)
def test_a_run_cut_off_in_the_middle_of_an_epoch_ends_with_the_same_bits(digits, tmp_path, config, pull_the_plug):
    """Checkpoints after every step, the plug pulled after step 15 of 24 and after step 3 of what was left."""
    whole = train(SMALL, config, *digits, tmp_path / "whole")
    eager = TrainConfig(**{**vars(config), "checkpoint_seconds": 0.0})
    for left in (15, 3):
        pull_the_plug(lambda: train(SMALL, eager, *digits, tmp_path / "cut"), after=left)
    cut = train(SMALL, eager, *digits, tmp_path / "cut")
    assert cut.weights_digest == whole.weights_digest
    drop = lambda rows: [{k: v for k, v in row.items() if k != "seconds"} for row in rows]  # noqa: E731
    assert drop(cut.log) == drop(whole.log)


def kill_and_resume(folder, kills: int, seed: int) -> int:
    """`antiphase train` in a process of its own, killed with SIGKILL at random moments, then left to finish."""
    draw = random.Random(seed)
    argv = [sys.executable, "-m", "antiphase", "train", "--out", str(folder), "--attention", "differential"]
    argv += ["--epochs", "40", "--checkpoint-seconds", "0.05"]
    killed = 0
    for _ in range(kills):
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = (folder / "checkpoint.json").read_text() if (folder / "checkpoint.json").exists() else None
        while process.poll() is None:  # wait until this process has written something of its own
            if (folder / "checkpoint.json").exists() and (folder / "checkpoint.json").read_text() != before:
                break
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.6))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
    subprocess.run(argv, check=True, capture_output=True)
    return killed


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_with_the_bits_of_one_never_killed(tmp_path):
    assert kill_and_resume(tmp_path / "killed", kills=3, seed=0) == 3
    assert kill_and_resume(tmp_path / "whole", kills=0, seed=0) == 0
    assert Run(tmp_path / "killed").weights_digest == Run(tmp_path / "whole").weights_digest
    assert not list((tmp_path / "killed").glob(".*.partial"))


@pytest.mark.slow
def test_a_run_killed_ten_times_ends_with_the_same_bits(tmp_path):
    assert kill_and_resume(tmp_path / "killed", kills=10, seed=1) >= 5
    kill_and_resume(tmp_path / "whole", kills=0, seed=0)
    assert Run(tmp_path / "killed").weights_digest == Run(tmp_path / "whole").weights_digest


def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path, shell):
    argv = [sys.executable, "-m", "antiphase", "train", "--out", str(tmp_path / "run"), "--epochs", "60"]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while not (tmp_path / "run" / "checkpoint.json").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on" in errors
    assert "Traceback" not in errors
    done = shell(*argv[3:])
    assert done.returncode == 0
    assert len(Run(tmp_path / "run").log) == 60


def test_kept_epochs_are_runs_of_their_own_with_the_bits_of_a_training_that_ended_there(
    digits, tmp_path, pull_the_plug
):
    config = TrainConfig(epochs=3, keep_epochs=(1, 3), fit_images=50, checkpoint_seconds=0.0)
    folder = tmp_path / "long"
    pull_the_plug(lambda: train(SMALL, config, *digits, folder), after=20)  # within epoch 2
    assert not (folder / "epoch-3").exists()
    long = train(SMALL, config, *digits, folder)
    short = train(SMALL, TrainConfig(epochs=1), *digits, tmp_path / "short")
    first, last = (Run(folder / f"epoch-{epoch}") for epoch in (1, 3))
    assert first.weights_digest == short.weights_digest != long.weights_digest == last.weights_digest
    assert first.name == "long/epoch-1"
    assert [row["epoch"] for row in first.log] == [1]
    fitted = accuracy(long.classifier(), digits[0].at_most(50, config.seed))
    assert long.log[-1]["fit_accuracy"] == pytest.approx(fitted)
    assert "fit_accuracy" not in short.log[0]
    with pytest.raises(InputError, match="keep_epochs has 4, and the training has the epochs 1 to 3"):
        TrainConfig(epochs=3, keep_epochs=(4,))


def test_the_log_says_what_happened_each_epoch(digits, tmp_path):
    run = train(SMALL, SHORT, *digits, tmp_path / "run")
    assert [row["epoch"] for row in run.log] == [1, 2]
    assert set(run.log[0]) == {"epoch", "loss", "train_accuracy", "test_accuracy", "lambda", "seconds"}
    assert run.log[1]["loss"] < run.log[0]["loss"]
    assert list(run.log[0]["lambda"]) == ["model.blocks.0.attn"]
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["training"]["seed"] == 0
    assert about["data"]["train"] == {"images": 1437, "fingerprint": digits[0].fingerprint}
    assert {"torch", "timm", "antiphase"} <= set(about["environment"]["versions"])


def test_the_stored_model_is_the_trained_one(digits, tmp_path):
    from antiphase.measures.success import accuracy

    run = train(SMALL, SHORT, *digits, tmp_path / "run")
    assert accuracy(run.classifier(), digits[1]) == run.log[-1]["test_accuracy"]


def _explode(monkeypatch, layer_value):
    """In the fifth step of the second epoch something goes to infinity."""
    real, count = Learner.update, iter(range(100))

    def update(learner, *args, **kwargs):
        if next(count) == 16:
            with torch.no_grad():
                layer_value(learner.model)
        return real(learner, *args, **kwargs)

    monkeypatch.setattr(Learner, "update", update)


@pytest.mark.parametrize(
    ("sabotage", "named"),
    [
        (
            lambda m: [m.model.blocks[0].attn.get_parameter(f"lambda_{b}1").fill_(1e4) for b in "qk"],
            "lambda of layer .* is inf",
        ),
        (lambda m: m.model.blocks[0].attn.qkv.weight.fill_(1e30), "attention logits of layer model.blocks.0.attn"),
        (lambda m: m.model.head.bias.fill_(float("nan")), "weights model.head.bias"),
    ],
)
def test_a_nan_loss_stops_the_run_names_the_layer_and_keeps_the_last_good_checkpoint(
    digits, tmp_path, monkeypatch, sabotage, named
):
    _explode(monkeypatch, sabotage)
    with pytest.raises(Diverged, match=named):
        train(SMALL, SHORT, *digits, tmp_path / "run")
    progress = json.loads((tmp_path / "run" / "checkpoint.json").read_text())["progress"]
    assert (progress["epoch"], progress["complete"]) == (1, False)
    assert all(t.isfinite().all() for t in read_tensors(tmp_path / "run", "weights").values())
    monkeypatch.undo()
    whole = train(SMALL, SHORT, *digits, tmp_path / "whole")
    assert train(SMALL, SHORT, *digits, tmp_path / "run").weights_digest == whole.weights_digest


def test_a_loss_that_breaks_at_the_end_of_an_epoch_is_blamed_on_that_epoch(digits, tmp_path):
    """One batch an epoch: the weights break in its only step, before anything of the epoch is logged."""
    whole = TrainConfig(epochs=2, batch_size=1437, lr=1e20)
    with pytest.raises(Diverged, match="epoch 1"):
        train(SMALL, whole, *digits, tmp_path / "run")
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_a_softmax_vit_learns_real_cifar10(data_root, tmp_path):
    from antiphase.data import load

    train_set = load("cifar10", "train", root=data_root).subset(2000)
    test_set = load("cifar10", "test", root=data_root).subset(500)
    config = ViTConfig(patch=4, width=64, heads=4, attention=(Softmax(),))
    run = train(config, TrainConfig(epochs=4, batch_size=64), train_set, test_set, tmp_path / "run")
    assert run.log[-1]["test_accuracy"] > 0.25  # ten classes: chance is 0.10


def test_weight_decay_spares_vectors_biases_norms_and_the_temperature():
    clip = CLIP(SMALL_CLIP)
    decayed, spared = make_optimizer(clip, ContrastiveConfig()).param_groups
    names = {id(p): name for name, p in clip.named_parameters()}
    assert (decayed["weight_decay"], spared["weight_decay"], decayed["betas"]) == (0.5, 0.0, (0.9, 0.98))
    named = {names[id(p)] for p in spared["params"]}
    assert {"logit_scale", "text.norm.weight", "visual.model.vit.blocks.0.attn.lambda_q1"} <= named
    assert all(p.ndim >= 2 for p in decayed["params"])
    assert len(decayed["params"]) + len(spared["params"]) == len(names)
