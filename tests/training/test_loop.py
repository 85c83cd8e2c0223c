"""One loop: deterministic, resumable to the bit, and honest when it fails."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from antiphase.config import InputError
from antiphase.files import held
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.run import Run, read_tensors
from antiphase.models.vit import build
from antiphase.training import TrainConfig
from antiphase.training.augment import crop_flip
from antiphase.training.distributed import World
from antiphase.training.loop import Diverged, Learner, train
from antiphase.training.tasks import AdversarialCrossEntropy, CrossEntropy

SMALL = ViTConfig(patch=2, width=32, heads=4, attention=(Differential(),))
SHORT = TrainConfig(epochs=2)


def weights(run: Run) -> dict[str, torch.Tensor]:
    return read_tensors(run.folder, "weights")


def test_the_same_config_and_seed_give_the_same_bits(digits, tmp_path):
    a, b = (train(SMALL, SHORT, *digits, tmp_path / name) for name in "ab")
    assert a.weights_digest == b.weights_digest
    other = train(SMALL, TrainConfig(epochs=2, seed=1), *digits, tmp_path / "c")
    assert other.weights_digest != a.weights_digest


@pytest.mark.parametrize(
    "config",
    [
        SHORT,
        TrainConfig(epochs=2, augment="crop-flip", schedule="cosine", label_smoothing=0.1),
        TrainConfig(epochs=2, adv_eps="8/255", adv_steps=2, clean_share=0.25),
    ],
    ids=["plain", "augmented", "adversarial"],
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
def test_ten_more_kills_change_nothing(tmp_path):
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


def test_a_finished_run_is_returned_as_it_is(digits, tmp_path):
    first = train(SMALL, SHORT, *digits, tmp_path / "run")
    stamp = (tmp_path / "run" / "checkpoint.json").stat().st_mtime_ns
    assert train(SMALL, SHORT, *digits, tmp_path / "run").weights_digest == first.weights_digest
    assert (tmp_path / "run" / "checkpoint.json").stat().st_mtime_ns == stamp


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


# ------------------------------------------------------------------------------------------------- failure


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


@pytest.mark.parametrize("harm", ["truncate", "alter", "remove"])
def test_a_damaged_checkpoint_is_named_and_refused(digits, tmp_path, harm):
    run = train(SMALL, TrainConfig(epochs=1), *digits, tmp_path / "run")
    (path,) = run.folder.glob("weights-*.safetensors")
    raw = path.read_bytes()
    if harm == "truncate":
        path.write_bytes(raw[: len(raw) // 2])
    elif harm == "alter":
        path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    else:
        path.unlink()
    with pytest.raises(InputError, match=path.name):
        run.classifier()


def test_a_folder_with_another_run_or_other_things_is_refused(digits, tmp_path):
    train(SMALL, TrainConfig(epochs=1), *digits, tmp_path / "run")
    with pytest.raises(InputError, match=r"training\.epochs is 1 there, 2 here"):
        train(SMALL, SHORT, *digits, tmp_path / "run")
    with pytest.raises(InputError, match=r"model\.width"):
        train(ViTConfig(patch=2, width=64, heads=4), TrainConfig(epochs=1), *digits, tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(InputError, match="not empty and not a run"):
        train(SMALL, SHORT, *digits, tmp_path / "mine")


def test_what_a_killed_process_left_half_written_is_swept_up(digits, tmp_path):
    run = train(SMALL, TrainConfig(epochs=1), *digits, tmp_path / "run")
    left = run.folder / ".weights-0.7.safetensors.abc.partial"
    left.write_bytes(b"half")
    train(SMALL, TrainConfig(epochs=1), *digits, tmp_path / "run")
    assert not left.exists()


def test_two_processes_do_not_train_in_one_folder(digits, tmp_path):
    with held(tmp_path / "run"), pytest.raises(InputError, match="another process is at work"):
        train(SMALL, SHORT, *digits, tmp_path / "run")


def test_a_loss_that_breaks_at_the_end_of_an_epoch_is_blamed_on_that_epoch(digits, tmp_path):
    """One batch an epoch: the weights break in its only step, before anything of the epoch is logged."""
    whole = TrainConfig(epochs=2, batch_size=1437, lr=1e20)
    with pytest.raises(Diverged, match="epoch 1"):
        train(SMALL, whole, *digits, tmp_path / "run")
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_splits_are_not_mixed_up(digits, tmp_path):
    with pytest.raises(InputError, match="needs a train and a test split"):
        train(SMALL, SHORT, digits[1], digits[0], tmp_path / "run")


@pytest.mark.parametrize(
    "bad", [{"epochs": 0}, {"batch_size": 0}, {"lr": 0.0}, {"lr": float("nan")}, {"label_smoothing": 1.0}, {"seed": -1}]
)
def test_a_training_that_cannot_be_is_refused_by_name(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        TrainConfig(**bad)


# ------------------------------------------------------------------------------------------------- adversarial training


def test_adversarial_training_makes_a_model_harder_to_fool(pair, digits, tmp_path):
    """Fine-tuned from a run at 16/255: more robust there than the run it came from, at the price of clean accuracy or not."""
    from antiphase.attacks import PGD, Linf, engine

    config = TrainConfig(epochs=6, adv_eps="16/255", adv_steps=5, start_from=str(pair[1].folder))
    robust = train(pair[1].config, config, *digits, tmp_path / "robust")
    x, y, ids = digits[1].all
    attack = PGD(within=Linf("16/255"))
    broken = [engine.run(r.classifier(), x, y, attack, ids=ids).success.double().mean() for r in (pair[1], robust)]
    assert broken[1] < broken[0] - 0.1


def test_the_clean_share_of_a_batch_stays_clean(digits):
    from antiphase.attacks import PGD, Linf

    batch, seen = digits[0].batch(np.arange(8)), []
    model = build(SMALL, shape=(1, 8, 8), classes=10)

    class Spy(torch.nn.Module):
        def forward(self, x):
            seen.append(x.detach())
            return model(x)

    AdversarialCrossEntropy(PGD(within=Linf("16/255"), steps=3), clean_share=0.25)(Spy(), batch, epoch=0)
    moved = (seen[-1] != batch.pixels).flatten(1).any(dim=1)
    assert moved.tolist() == [False] * 2 + [True] * 6
    assert (seen[-1] - batch.pixels).abs().max() <= 16 / 255 + 1e-7
    assert len(seen) == 4  # three steps of the attack, one of the training


def test_another_architecture_cannot_be_fine_tuned(pair, digits, tmp_path):
    with pytest.raises(InputError, match="another architecture"):
        train(SMALL, TrainConfig(epochs=1, start_from=str(pair[1].folder)), *digits, tmp_path / "run")


# ------------------------------------------------------------------------------------------------- several processes


def test_shares_of_a_batch_add_up_to_its_gradient(digits):
    """Two processes and three images: one takes two, the other one; the average is the mean over three."""
    batch = digits[0].batch(np.arange(3))
    grads = []
    for world in (World(), World(0, 2), World(1, 2)):
        model = build(SMALL, shape=(1, 8, 8), classes=10).double()
        mine = digits[0].batch(world.share(np.arange(3)))
        loss, _ = CrossEntropy()(model, mine._replace(pixels=mine.pixels.double()), epoch=0)
        (loss * world.loss_weight(len(mine.labels), len(batch.labels))).backward()
        grads.append(model.model.head.weight.grad)
    assert torch.allclose((grads[1] + grads[2]) / 2, grads[0], atol=1e-12)


def test_two_processes_share_the_batches_and_learn_the_same(tmp_path):
    """torchrun on this machine (gloo): the averaged gradient is the gradient of the whole batch, uneven last batch included."""
    words = ["-m", "antiphase", "train", "--epochs", "2", "--attention", "differential", "--batch-size", "101"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    for launcher, name in ((torchrun, "two"), ([sys.executable], "one")):
        argv = [*launcher, *words, "--out", str(tmp_path / name)]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, env=environment, timeout=240)
        assert done.stdout.count("test accuracy") == 1  # one process speaks
    two, one = (Run(tmp_path / name) for name in ("two", "one"))
    assert [row["epoch"] for row in two.log] == [1, 2]
    assert two.log[-1]["loss"] == pytest.approx(one.log[-1]["loss"], abs=2e-3)
    for name, value in weights(one).items():
        assert torch.allclose(weights(two)[name], value, atol=2e-3), name


# ------------------------------------------------------------------------------------------------- augmentation and CIFAR


def test_augmentation_belongs_to_the_example():
    pixels = torch.rand(6, 3, 32, 32)
    ids = np.arange(100, 106)
    whole = crop_flip(pixels, ids, seed=0, epoch=3)
    alone = torch.cat([crop_flip(pixels[i : i + 1], ids[i : i + 1], seed=0, epoch=3) for i in range(6)])
    assert torch.equal(whole, alone)
    assert not torch.equal(whole, crop_flip(pixels, ids, seed=0, epoch=4))


def test_augmentation_shifts_and_mirrors_and_invents_nothing():
    image = torch.arange(1.0, 65.0).reshape(1, 1, 8, 8).repeat(400, 1, 1, 1)
    moved = crop_flip(image, np.arange(400), seed=0, epoch=0)
    kept = [set(m.unique().tolist()) - {0.0} for m in moved]
    assert all(k <= set(range(1, 65)) and len(k) >= 49 for k in kept)  # a shift of one loses at most a row and a column
    mirrored = sum(bool((m[0, 4, 3] > m[0, 4, 4]) and m[0, 4, 3] > 0) for m in moved)
    assert 150 < mirrored < 250


def test_a_softmax_vit_learns_real_cifar10(data_root, tmp_path):
    from antiphase.data import load

    train_set = load("cifar10", "train", root=data_root).subset(2000)
    test_set = load("cifar10", "test", root=data_root).subset(500)
    config = ViTConfig(patch=4, width=64, heads=4, attention=(Softmax(),))
    run = train(config, TrainConfig(epochs=4, batch_size=64), train_set, test_set, tmp_path / "run")
    assert run.log[-1]["test_accuracy"] > 0.25  # ten classes: chance is 0.10
