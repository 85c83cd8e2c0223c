"""Several processes learn what one does."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from antiphase.models.run import Run, read_tensors
from antiphase.models.vit import build
from antiphase.training.distributed import World
from antiphase.training.tasks import CrossEntropy
from tests.training.small_vit import SMALL


def test_two_processes_contrast_over_the_whole_batch_and_learn_the_same(tmp_path):
    """torchrun on this machine (gloo), an uneven last batch and gradient caching included."""
    words = ["-m", "antiphase", "train-clip", "--epochs", "2", "--variant", "DiffCLIP", "--batch-size", "101"]
    words += ["--micro-batch", "32", "--train-images", "500", "--lr", "1e-3"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    for launcher, name in ((torchrun, "two"), ([sys.executable], "one")):
        argv = [*launcher, *words, "--out", str(tmp_path / name)]
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=240)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("zero-shot test accuracy") == 1  # one process speaks
    two, one = (Run(tmp_path / name) for name in ("two", "one"))
    assert two.log[-1]["loss"] == pytest.approx(one.log[-1]["loss"], abs=1e-3)
    learned = read_tensors(two.folder, "weights")
    for name, value in read_tensors(one.folder, "weights").items():
        counts = torch.ones_like(value, dtype=torch.bool)
        if name.endswith(
            "qkv.bias"
        ):  # softmax does not see a bias of the keys: its gradient is rounding, which Adam enlarges
            counts[len(value) // 3 : 2 * len(value) // 3] = False
        assert torch.allclose(learned[name][counts], value[counts], atol=1e-3), name


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
    for name, value in read_tensors(one.folder, "weights").items():
        assert torch.allclose(read_tensors(two.folder, "weights")[name], value, atol=2e-3), name
