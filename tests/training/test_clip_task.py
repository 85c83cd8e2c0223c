"""Contrastive training: the loss by hand, gradient caching, the temperature, and what is logged."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from antiphase.config import InputError
from antiphase.data.imageset import Resized
from antiphase.data.pair_catalog import load_pairs
from antiphase.models.clip_config import CLIPConfig, TextConfig, VisionConfig
from antiphase.models.run import Run
from antiphase.training import ContrastiveConfig
from antiphase.training.clip_task import ContrastiveObjective, ContrastiveTask, contrastive_loss, train_clip
from antiphase.training.distributed import World
from antiphase.training.loop import Diverged, Learner
from tests.conftest import HIGH_WATER
from tests.training.small_clip import SHORT_CLIP_TRAINING, SMALL_CLIP, TEMPLATES, digits_task


def by_hand(image, text, scale, captions) -> torch.Tensor:
    """The N x N matrix of pairs, all equal captions right in both directions, less the entropy of that target."""
    logits = scale * image @ text.T
    same = torch.tensor([[a == b for b in captions] for a in captions], dtype=logits.dtype)
    target = same / same.sum(dim=1, keepdim=True)
    entropy = torch.special.entr(target).sum(dim=1).mean()
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2 - entropy


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("captions", ["abcdefgh", "abacabad", "aaaaaaab"])
def test_the_loss_is_that_of_the_matrix_of_all_pairs_with_every_equal_caption_correct(captions, chunk):
    torch.manual_seed(0)
    kinds = sorted(set(captions))
    labels = torch.tensor([kinds.index(c) for c in captions])
    image = F.normalize(torch.randn(8, 5, dtype=torch.float64), dim=-1).requires_grad_()
    text = F.normalize(torch.randn(len(kinds), 5, dtype=torch.float64), dim=-1).requires_grad_()
    scale = torch.tensor(7.0, dtype=torch.float64, requires_grad=True)
    ours, right = contrastive_loss(image, text, labels, scale, chunk)
    theirs = by_hand(image, text[labels], scale, captions)
    assert torch.allclose(ours, theirs, atol=1e-12)
    for a, b in zip(*(torch.autograd.grad(loss, (image, text, scale)) for loss in (ours, theirs))):
        assert torch.allclose(a, b, atol=1e-12)
    assert torch.equal(right, (image @ text.T).argmax(dim=1) == labels)


def test_the_loss_of_different_captions_is_clips_and_its_minimum_is_zero():
    torch.manual_seed(0)
    image, text = (F.normalize(torch.randn(6, 4, dtype=torch.float64), dim=-1) for _ in range(2))
    logits, own = 10 * image @ text.T, torch.arange(6)
    clip = (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
    assert torch.allclose(contrastive_loss(image, text, own, torch.tensor(10.0))[0], clip)
    apart = torch.eye(3, dtype=torch.float64)
    assert (
        contrastive_loss(apart[[0, 1, 2, 0, 1, 2]], apart, torch.tensor([0, 1, 2] * 2), torch.tensor(100.0))[0] < 1e-12
    )


def gradients(pairs, digits, micro_batch, dtype=torch.float64, n=40) -> tuple[float, dict[str, torch.Tensor]]:
    whole = digits_task(pairs, digits, ContrastiveConfig(augment="none", micro_batch=micro_batch))
    clip = whole.model().to(dtype)
    batch = whole.batch(np.arange(n), World(), 0, torch.device("cpu"))
    task = whole.objective()
    loss, _ = task(task.module(clip, World()), batch._replace(pixels=batch.pixels.to(dtype)), epoch=0)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in clip.named_parameters()}


@pytest.mark.parametrize("micro_batch", [1, 7, 40])
def test_cached_gradients_are_those_of_the_whole_batch(pairs, digits, micro_batch):
    """float64, every weight of both towers and the temperature; 40 pairs in parts of 7 leave an uneven last part."""
    (loss, whole), (cached_loss, cached) = (gradients(pairs, digits, m) for m in (None, micro_batch))
    assert abs(loss - cached_loss) < 1e-12
    assert all(value is not None and value.abs().max() > 0 for value in whole.values())
    for name, value in whole.items():
        rounding = 1e-7 if "lambda" in name else 1e-9  # lambda itself is computed in float32, whatever the weights are
        assert (cached[name] - value).abs().max() < rounding, name


def test_cached_gradients_agree_to_rounding_in_float32(pairs, digits):
    whole, cached = (gradients(pairs, digits, m, torch.float32)[1] for m in (None, 16))
    joined = [torch.cat([g[name].flatten() for name in whole]) for g in (whole, cached)]
    assert (joined[0] - joined[1]).norm() < 1e-5 * joined[0].norm()


class Alive(TorchDispatchMode):
    """The most bytes that the tensors made inside were holding at once."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.storages[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes()
        self.storages = {k: v for k, v in self.storages.items() if not v[0].expired()}
        self.most = max(self.most, sum(size for _, size in self.storages.values()))
        return out


def most_alive(pairs, digits, n: int, micro_batch: int | None) -> int:
    whole = digits_task(pairs, digits, ContrastiveConfig(augment="none", micro_batch=micro_batch))
    clip, task = whole.model(), whole.objective()
    batch = whole.batch(np.arange(n), World(), 0, torch.device("cpu"))
    with Alive() as alive:
        loss, _ = task(task.module(clip, World()), batch, epoch=0)
        loss.backward()
    return alive.most


def test_peak_tensor_memory_is_flat_in_the_batch_size_with_gradient_caching(pairs, digits):
    """Eight times the images and the same captions: over five times the memory without caching, a few embeddings more with it."""
    assert most_alive(pairs, digits, 1024, None) > 5 * most_alive(pairs, digits, 128, None)
    assert most_alive(pairs, digits, 1024, 64) < 1.25 * most_alive(pairs, digits, 128, 64)


PEAK = f"""
import sys
import numpy as np, torch
from antiphase.data import load
from antiphase.data.pairs import of_classes
from antiphase.models.clip_config import CLIPConfig, TextConfig, VisionConfig
from antiphase.training import ContrastiveConfig
from antiphase.training.clip_task import ContrastiveTask
from antiphase.training.loop import Learner
from antiphase.training.distributed import World
train, test = load("digits", "train"), load("digits", "test")
pairs = of_classes(train, [[name] for name in train.class_names])
model = CLIPConfig(vision=VisionConfig(image=8, patch=1, width=64, heads=4, depth=4),
                   text=TextConfig(width=32, heads=4, depth=1, context=32, vocabulary=259, tokenizer="bytes"), joint=32)
n, micro = int(sys.argv[1]), int(sys.argv[2]) or None
task = ContrastiveTask(model, ContrastiveConfig(augment="none", micro_batch=micro), pairs, test, ("{{}}",))
learner = Learner(task.model(), task.config, task.objective())
learner.update(task.batch(np.arange(16), World(), 0, torch.device("cpu")), lr=0.0)
before = {HIGH_WATER}
learner.update(task.batch(np.arange(n), World(), 0, torch.device("cpu")), lr=0.0)
print({HIGH_WATER} - before)
"""


@pytest.mark.slow
def test_the_peak_memory_of_the_process_is_flat_in_the_batch_size():
    def peak(n: int, micro: int) -> int:
        argv = [sys.executable, "-c", PEAK, str(n), str(micro)]
        return int(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300).stdout)

    assert peak(1024, 0) > 3 * peak(256, 0)
    small, large = (min(peak(n, 64) for _ in range(2)) for n in (256, 1024))  # a busy machine can only add to a peak
    assert large < 1.5 * small


def test_the_temperature_stays_within_its_bounds(pairs, digits):
    whole = digits_task(pairs, digits)
    clip = whole.model()
    learner = Learner(clip, SHORT_CLIP_TRAINING, ContrastiveObjective(max_scale=20.0))
    for wanted, bound in ((5.0, math.log(20.0)), (-3.0, 0.0)):
        with torch.no_grad():
            clip.logit_scale.fill_(wanted)
        learner.update(whole.batch(np.arange(32), World(), 0, torch.device("cpu")), lr=1e-6)
        assert clip.logit_scale.item() == pytest.approx(bound, abs=1e-6)


def test_bf16_learns_nearly_the_same(pairs, digits):
    """Autocast, where the device has it; embeddings are compared in float32. The CPU has bf16 too."""
    seen = []
    for precision in ("fp32", "bf16"):
        whole = digits_task(pairs, digits, ContrastiveConfig(augment="none", micro_batch=16, precision=precision))
        learner = Learner(whole.model(), whole.config, whole.objective())
        batch = whole.batch(np.arange(64), World(), 0, torch.device("cpu"))
        seen.append([learner.update(batch, lr=1e-3)[0] for _ in range(5)])
    assert np.allclose(seen[0], seen[1], rtol=0.05)
    assert seen[0][0] != seen[1][0]
    assert seen[1][-1] < seen[1][0]


def test_a_small_diffclip_learns_digits_from_captions(trained, digits):
    from antiphase.measures.success import accuracy

    log = trained.log
    assert log[-1]["zero_shot_accuracy"] > 0.6  # chance is 0.1
    assert log[-1]["loss"] < log[0]["loss"]
    assert accuracy(trained.classifier_for(digits[1]), digits[1]) == log[-1]["zero_shot_accuracy"]
    assert list(log[0]["lambda"]) == ["visual.model.vit.blocks.0.attn", "text.blocks.0.attn"]
    assert {"logit_scale", "batch_accuracy", "mean_cosine", "effective_rank", "signs", "seconds"} <= set(log[0])
    about = trained.about["data"]
    assert about["templates"] == list(TEMPLATES)
    assert about["train"]["captions"] == 3 * 1437
    assert trained.wording == "own"


def test_a_run_cut_off_in_the_middle_of_an_epoch_ends_with_the_same_bits(pairs, digits, tmp_path, pull_the_plug):
    recipe = {"epochs": 2, "batch_size": 200, "micro_batch": 64, "augment": "resized-crop"}
    whole = train_clip(
        SMALL_CLIP, ContrastiveConfig(**recipe), pairs, digits[1], tmp_path / "whole", templates=TEMPLATES
    )
    eager = ContrastiveConfig(**recipe, checkpoint_seconds=0.0)
    for left in (10, 3):
        pull_the_plug(
            lambda: train_clip(SMALL_CLIP, eager, pairs, digits[1], tmp_path / "cut", templates=TEMPLATES), after=left
        )
    cut = train_clip(SMALL_CLIP, eager, pairs, digits[1], tmp_path / "cut", templates=TEMPLATES)
    assert cut.weights_digest == whole.weights_digest
    drop = lambda rows: [{k: v for k, v in row.items() if k != "seconds"} for row in rows]  # noqa: E731
    assert drop(cut.log) == drop(whole.log)


@pytest.mark.slow
def test_a_run_killed_with_sigkill_ends_with_the_bits_of_one_never_killed(tmp_path):
    words = ["--variant", "DiffCLIP", "--epochs", "12", "--augment", "crop-flip", "--checkpoint-seconds", "0.05"]
    argv = [sys.executable, "-m", "antiphase", "train-clip", *words, "--out"]
    for _ in range(3):
        process = subprocess.Popen([*argv, str(tmp_path / "killed")], stdout=subprocess.DEVNULL)
        mark = tmp_path / "killed" / "checkpoint.json"
        before = mark.read_text() if mark.exists() else None
        while process.poll() is None and (not mark.exists() or mark.read_text() == before):
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    for name in ("killed", "whole"):
        subprocess.run([*argv, str(tmp_path / name)], check=True, capture_output=True)
    assert Run(tmp_path / "killed").weights_digest == Run(tmp_path / "whole").weights_digest


def test_pairs_without_classes_are_evaluated_by_retrieval(data_root, tmp_path):
    train, test = (load_pairs("flickr8k", split, root=data_root, image_size=16) for split in ("train", "test"))
    model = CLIPConfig(
        vision=VisionConfig(image=16, patch=8, width=32, heads=4, depth=1),
        text=TextConfig(width=32, heads=4, depth=1, context=200, vocabulary=259, tokenizer="bytes"),
        joint=32,
    )
    config = ContrastiveConfig(epochs=1, batch_size=64)
    run = train_clip(model, config, train.subset(64), test.subset(40), tmp_path / "run")
    assert {"text_recall_at_1", "image_recall_at_1"} <= set(run.log[0])
    assert "class_names" not in run.about["data"]
    short = CLIPConfig(vision=model.vision, text=TextConfig(**{**vars(model.text), "context": 40}), joint=32)
    with pytest.raises(InputError, match=r"tokens, and the model reads 40 \(--allow long"):
        train_clip(short, config, train.subset(64), test.subset(40), tmp_path / "short")
    assert not (tmp_path / "short").exists()
    cut = train_clip(short, config, train.subset(64), test.subset(40), tmp_path / "short", allow=("long",))
    assert cut.about["data"]["train"]["skipped"]["long captions cut"] > 100


def test_a_collapse_of_the_embeddings_is_printed_and_logged(pairs, digits, tmp_path, capsys):
    class Dull(ContrastiveTask):
        def model(self):
            clip = super().model()
            with torch.no_grad():
                clip.visual.model.projection.zero_()
                clip.visual.model.projection[:, 0] = 1e-3
            return clip

    from antiphase.training.loop import train_task

    dull = Dull(
        SMALL_CLIP, ContrastiveConfig(epochs=1, batch_size=1437, lr=1e-9, end_lr=0.0), pairs, digits[1], TEMPLATES
    )
    run = train_task(dull, tmp_path / "run")
    assert any("collapse" in sign for sign in run.log[0]["signs"])
    assert "warning: epoch 1: the embeddings collapse" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sabotage", "named"),
    [
        (lambda m: m.text.blocks[0].attn.lambda_q1.fill_(float("inf")), r"lambda of layer text\.blocks\.0\.attn is"),
        (lambda m: m.text.projection.fill_(float("nan")), "weights text.projection"),
        (lambda m: m.visual.model.vit.blocks[0].attn.qkv.weight.fill_(1e30), r"logits of layer visual\.model\.vit"),
    ],
)
def test_a_nan_loss_stops_the_run_and_names_the_layer(pairs, digits, tmp_path, monkeypatch, sabotage, named):
    real, count = Learner.update, iter(range(100))

    def update(learner, *args, **kwargs):
        if next(count) == 4:
            with torch.no_grad():
                sabotage(learner.model)
        return real(learner, *args, **kwargs)

    monkeypatch.setattr(Learner, "update", update)
    config = ContrastiveConfig(epochs=2, batch_size=500)
    with pytest.raises(Diverged, match=rf"epoch 2, step 2: .*{named}.*the last good checkpoint is kept"):
        train_clip(SMALL_CLIP, config, pairs, digits[1], tmp_path / "run", templates=TEMPLATES)
    assert json.loads((tmp_path / "run" / "checkpoint.json").read_text())["progress"]["epoch"] == 1


def test_images_of_another_side_are_refused(pairs, digits):
    from dataclasses import replace

    larger = replace(pairs, source=Resized(pairs.source, 16))
    with pytest.raises(InputError, match="set image=16"):
        ContrastiveTask(SMALL_CLIP, SHORT_CLIP_TRAINING, larger, digits[1], TEMPLATES)
    with pytest.raises(InputError, match="need words"):
        ContrastiveTask(SMALL_CLIP, SHORT_CLIP_TRAINING, pairs, digits[1])


def test_a_trained_run_is_attacked_and_measured_by_one_command_each(trained, cli):
    """Without --data and --prompts: the images and the words it was trained with."""
    code, out, err = cli("attack", trained.folder, "--eps", "32/255", "--steps", 5, "--images", 40, "--json")
    assert code == 0, err
    (cell,) = json.loads(out)["cells"]
    assert (cell["data"]["name"], cell["prompts"]) == ("digits", "own")
    assert cell["rates"]["robust_accuracy"]["value"] < cell["rates"]["clean_accuracy"]["value"]
    code, out, err = cli("measure", trained.folder, "--images", 8, "--measures", "lambda,lipschitz", "--json")
    assert code == 0, err
    assert [row["layer"] for row in json.loads(out)["lambda"]] == list(trained.log[-1]["lambda"])
