"""Contrastive training: the loss by hand, gradient caching, several processes, resumption, and the signs of failure."""

import json
import math
import os
import re
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
from antiphase.data.pairs import of_classes
from antiphase.measures.retrieval import image_ranks, recall, text_ranks
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import VARIANTS, CLIPConfig, TextConfig, VisionConfig
from antiphase.models.prompts import fill_templates
from antiphase.models.run import Run, read_tensors
from antiphase.models.tokenizer import encode, tokenize
from antiphase.training import ContrastiveConfig
from antiphase.training.augment import resized_crop
from antiphase.training.clip_task import ContrastiveObjective, ContrastiveTask, contrastive_loss, train_clip
from antiphase.training.diagnose import embedding_spread, warning_signs
from antiphase.training.distributed import World
from antiphase.training.loop import Diverged, Learner, make_optimizer
from tests.conftest import HIGH_WATER

BYTES = TextConfig(width=32, heads=4, depth=1, context=32, vocabulary=259, tokenizer="bytes")
PLAIN = CLIPConfig(vision=VisionConfig(image=8, patch=2, width=32, heads=4, depth=1), text=BYTES, joint=32)
SMALL = PLAIN.with_attention(*VARIANTS["DiffCLIP"])
WORDS = ("the digit {}", "a handwritten {}", "{}, written by hand")
SHORT = ContrastiveConfig(epochs=2, batch_size=64, augment="crop-flip", lr=2e-3)


@pytest.fixture(scope="module")
def pairs(digits):
    return of_classes(digits[0], [fill_templates(name, WORDS) for name in digits[0].class_names])


def course(pairs, digits, config=SHORT, model=SMALL) -> ContrastiveTask:
    return ContrastiveTask(model, config, pairs, digits[1], WORDS)


# ------------------------------------------------------------------------------------------------- the loss


def by_hand(image, text, scale, captions) -> torch.Tensor:
    """The N x N matrix of pairs, all equal captions right in both directions, less the entropy of that target."""
    logits = scale * image @ text.T
    same = torch.tensor([[a == b for b in captions] for a in captions], dtype=logits.dtype)
    target = same / same.sum(dim=1, keepdim=True)
    entropy = torch.special.entr(target).sum(dim=1).mean()
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2 - entropy


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("captions", ["abcdefgh", "abacabad", "aaaaaaab"])
def test_the_loss_is_that_of_the_matrix_of_all_pairs_with_every_equal_caption_right(captions, chunk):
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


def test_the_loss_of_different_captions_is_clips_and_zero_is_its_best():
    torch.manual_seed(0)
    image, text = (F.normalize(torch.randn(6, 4, dtype=torch.float64), dim=-1) for _ in range(2))
    logits, own = 10 * image @ text.T, torch.arange(6)
    clip = (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
    assert torch.allclose(contrastive_loss(image, text, own, torch.tensor(10.0))[0], clip)
    apart = torch.eye(3, dtype=torch.float64)
    assert (
        contrastive_loss(apart[[0, 1, 2, 0, 1, 2]], apart, torch.tensor([0, 1, 2] * 2), torch.tensor(100.0))[0] < 1e-12
    )


# ------------------------------------------------------------------------------------------------- gradient caching


def gradients(pairs, digits, micro_batch, dtype=torch.float64, n=40) -> tuple[float, dict[str, torch.Tensor]]:
    whole = course(pairs, digits, ContrastiveConfig(augment="none", micro_batch=micro_batch))
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
    whole = course(pairs, digits, ContrastiveConfig(augment="none", micro_batch=micro_batch))
    clip, task = whole.model(), whole.objective()
    batch = whole.batch(np.arange(n), World(), 0, torch.device("cpu"))
    with Alive() as alive:
        loss, _ = task(task.module(clip, World()), batch, epoch=0)
        loss.backward()
    return alive.most


def test_what_is_in_memory_at_once_is_flat_in_the_batch_size(pairs, digits):
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
course = ContrastiveTask(model, ContrastiveConfig(augment="none", micro_batch=micro), pairs, test, ("{{}}",))
learner = Learner(course.model(), course.config, course.objective())
learner.update(course.batch(np.arange(16), World(), 0, torch.device("cpu")), lr=0.0)
before = {HIGH_WATER}
learner.update(course.batch(np.arange(n), World(), 0, torch.device("cpu")), lr=0.0)
print({HIGH_WATER} - before)
"""


@pytest.mark.slow
def test_the_peak_memory_of_the_process_is_flat_in_the_batch_size():
    def peak(n: int, micro: int) -> int:
        argv = [sys.executable, "-c", PEAK, str(n), str(micro)]
        return int(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300).stdout)

    assert peak(1024, 0) > 3 * peak(256, 0)
    assert peak(1024, 64) < 1.5 * peak(256, 64)


# ------------------------------------------------------------------------------------------------- the recipe


def test_weight_decay_spares_vectors_biases_norms_and_the_temperature():
    clip = CLIP(SMALL)
    decayed, spared = make_optimizer(clip, ContrastiveConfig()).param_groups
    names = {id(p): name for name, p in clip.named_parameters()}
    assert (decayed["weight_decay"], spared["weight_decay"], decayed["betas"]) == (0.5, 0.0, (0.9, 0.98))
    named = {names[id(p)] for p in spared["params"]}
    assert {"logit_scale", "text.norm.weight", "visual.model.vit.blocks.0.attn.lambda_q1"} <= named
    assert all(p.ndim >= 2 for p in decayed["params"])
    assert len(decayed["params"]) + len(spared["params"]) == len(names)


def test_the_rate_rises_in_a_line_and_falls_by_a_cosine():
    config = ContrastiveConfig(epochs=11, warmup_epochs=1)
    assert config.lr_at(0) == pytest.approx(1e-5)
    assert config.lr_at(0.5 / 11) == pytest.approx((1e-5 + 5e-4) / 2)
    assert config.lr_at(1 / 11) == pytest.approx(5e-4)
    assert config.lr_at(6 / 11) == pytest.approx((1e-5 + 5e-4) / 2)
    assert config.lr_at(1) == pytest.approx(1e-5)


def test_the_temperature_stays_within_its_bounds(pairs, digits):
    whole = course(pairs, digits)
    clip = whole.model()
    learner = Learner(clip, SHORT, ContrastiveObjective(max_scale=20.0))
    for wanted, bound in ((5.0, math.log(20.0)), (-3.0, 0.0)):
        with torch.no_grad():
            clip.logit_scale.fill_(wanted)
        learner.update(whole.batch(np.arange(32), World(), 0, torch.device("cpu")), lr=1e-6)
        assert clip.logit_scale.item() == pytest.approx(bound, abs=1e-6)


def test_a_resized_crop_belongs_to_the_example_and_invents_nothing():
    pixels, ids = torch.rand(64, 3, 16, 16), np.arange(64)
    cropped = resized_crop(pixels, ids, seed=0, epoch=1)
    alone = torch.cat([resized_crop(pixels[i : i + 1], ids[i : i + 1], seed=0, epoch=1) for i in range(64)])
    assert torch.equal(cropped, alone)
    assert not torch.equal(cropped, resized_crop(pixels, ids, seed=0, epoch=2))
    assert cropped.min() >= 0
    assert cropped.max() <= 1
    slope = torch.linspace(0, 1, 33).repeat(400, 1, 33, 1)
    seen = resized_crop(slope, np.arange(400), seed=0, epoch=0)
    width = seen[:, 0, 16, -1] - seen[:, 0, 16, 0]
    assert width.min() > 0.58  # sqrt(0.5 * 3 / 4) of the side is the narrowest
    assert width.max() <= 1.0


def test_bf16_learns_nearly_the_same(pairs, digits):
    """Autocast, where the device has it; embeddings are compared in float32. The CPU has bf16 too."""
    seen = []
    for precision in ("fp32", "bf16"):
        whole = course(pairs, digits, ContrastiveConfig(augment="none", micro_batch=16, precision=precision))
        learner = Learner(whole.model(), whole.config, whole.objective())
        batch = whole.batch(np.arange(64), World(), 0, torch.device("cpu"))
        seen.append([learner.update(batch, lr=1e-3)[0] for _ in range(5)])
    assert np.allclose(seen[0], seen[1], rtol=0.05)
    assert seen[0][0] != seen[1][0]
    assert seen[1][-1] < seen[1][0]


def test_twins_share_every_weight_they_have_in_common():
    from dataclasses import replace

    matched = replace(SMALL, vision=replace(SMALL.vision, init="matched"))
    plain, twin = CLIP(PLAIN, seed=3).state_dict(), CLIP(matched, seed=3).state_dict()
    assert set(plain) < set(twin)
    assert all(torch.equal(value, twin[name]) for name, value in plain.items())


# ------------------------------------------------------------------------------------------------- the tokenizer of bytes


def test_bytes_are_tokens_and_the_end_is_the_largest():
    ids = encode("Zoë", by="bytes")
    assert ids == [257, 1 + 0x5A, 1 + 0x6F, 1 + 0xC3, 1 + 0xAB, 258]
    rows = tokenize(["cat", "a much longer text"], context=8, by="bytes")
    assert rows.argmax(dim=1).tolist() == [4, 7]
    assert rows[0].tolist()[5:] == [0, 0, 0]
    with pytest.raises(InputError, match="has 20 tokens, and the model reads 8"):
        tokenize(["a much longer text"], context=8, by="bytes", truncate="never")
    with pytest.raises(InputError, match="259"):
        TextConfig(tokenizer="bytes")


def test_texts_of_different_lengths_are_encoded_alike_together_and_alone():
    clip = CLIP(SMALL).eval()
    some = ["one", "the digit seven", "x"]
    together = clip.encode_text(clip.tokenize(some))
    alone = torch.cat([clip.encode_text(clip.tokenize([text])) for text in some])
    assert torch.allclose(together, alone, atol=1e-6)


# ------------------------------------------------------------------------------------------------- training


@pytest.fixture(scope="module")
def trained(pairs, digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    config = ContrastiveConfig(epochs=12, batch_size=64, augment="none", lr=3e-3, weight_decay=0.1)
    return train_clip(SMALL, config, pairs, digits[1], folder / "run", templates=WORDS)


def test_a_small_diffclip_learns_digits_from_captions(trained, digits):
    from antiphase.measures.success import accuracy

    log = trained.log
    assert log[-1]["zero_shot_accuracy"] > 0.6  # chance is 0.1
    assert log[-1]["loss"] < log[0]["loss"]
    assert accuracy(trained.classifier_for(digits[1]), digits[1]) == log[-1]["zero_shot_accuracy"]
    assert list(log[0]["lambda"]) == ["visual.model.vit.blocks.0.attn", "text.blocks.0.attn"]
    assert {"logit_scale", "batch_accuracy", "mean_cosine", "effective_rank", "signs", "seconds"} <= set(log[0])
    about = trained.about["data"]
    assert about["templates"] == list(WORDS)
    assert about["train"]["captions"] == 3 * 1437
    assert trained.wording == "own"


def test_a_run_cut_off_in_the_middle_of_an_epoch_ends_with_the_same_bits(pairs, digits, tmp_path, pull_the_plug):
    recipe = {"epochs": 2, "batch_size": 200, "micro_batch": 64, "augment": "resized-crop"}
    whole = train_clip(SMALL, ContrastiveConfig(**recipe), pairs, digits[1], tmp_path / "whole", templates=WORDS)
    eager = ContrastiveConfig(**recipe, checkpoint_seconds=0.0)
    for left in (10, 3):
        pull_the_plug(lambda: train_clip(SMALL, eager, pairs, digits[1], tmp_path / "cut", templates=WORDS), after=left)
    cut = train_clip(SMALL, eager, pairs, digits[1], tmp_path / "cut", templates=WORDS)
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
    for name, value in read_tensors(one.folder, "weights").items():
        assert torch.allclose(read_tensors(two.folder, "weights")[name], value, atol=1e-3), name


def test_retrieval_judges_pairs_without_classes(data_root, tmp_path):
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


def test_ranks_by_hand():
    """Three images, five captions; the second text is nearer to a foreign image."""
    images = torch.eye(3)
    captions = torch.tensor([[1.0, 0, 0], [0.1, 0.9, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.7, 0.2]])
    owner = torch.tensor([0, 0, 1, 2, 2])
    assert image_ranks(images, captions, owner).tolist() == [0, 1, 0, 0, 2]
    assert text_ranks(images, captions, owner).tolist() == [0, 0, 0]
    assert recall(torch.tensor([0, 1, 0, 0, 2]), 1) == pytest.approx(0.6)
    assert text_ranks(torch.ones(2, 3), torch.ones(2, 3), torch.arange(2)).tolist() == [1, 1]  # a tie is no hit


# ------------------------------------------------------------------------------------------------- when it goes wrong


def test_the_signs_of_failure_are_named():
    torch.manual_seed(0)
    healthy = F.normalize(torch.randn(200, 16), dim=-1)
    point = F.normalize(torch.ones(200, 16) + 0.01 * torch.randn(200, 16), dim=-1)
    line = F.normalize(torch.randn(200, 1) * torch.ones(1, 16), dim=-1)
    assert embedding_spread(healthy)[1] > 12
    assert warning_signs({"a": 0.8, "b": 0.03, "c": 1.0}, *embedding_spread(healthy)) == []
    assert "mean cosine" in warning_signs({}, *embedding_spread(point))[0]
    assert "dimensions" in warning_signs({}, *embedding_spread(line))[0]
    found = warning_signs({"low": 0.02, "high": 1.01, "lost": float("nan")}, *embedding_spread(healthy))
    assert [sentence.split()[2] for sentence in found] == ["low", "high", "lost"]


def test_a_collapse_is_said_and_written_into_the_log(pairs, digits, tmp_path, capsys):
    class Dull(ContrastiveTask):
        def model(self):
            clip = super().model()
            with torch.no_grad():
                clip.visual.model.projection.zero_()
                clip.visual.model.projection[:, 0] = 1e-3
            return clip

    from antiphase.training.loop import train_task

    dull = Dull(SMALL, ContrastiveConfig(epochs=1, batch_size=1437, lr=1e-9, end_lr=0.0), pairs, digits[1], WORDS)
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
        train_clip(SMALL, config, pairs, digits[1], tmp_path / "run", templates=WORDS)
    assert json.loads((tmp_path / "run" / "checkpoint.json").read_text())["progress"]["epoch"] == 1


def test_images_of_another_side_are_refused(pairs, digits):
    from dataclasses import replace

    larger = replace(pairs, source=Resized(pairs.source, 16))
    with pytest.raises(InputError, match="set image=16"):
        ContrastiveTask(SMALL, SHORT, larger, digits[1], WORDS)
    with pytest.raises(InputError, match="need words"):
        ContrastiveTask(SMALL, SHORT, pairs, digits[1])


@pytest.mark.parametrize(
    "bad", [{"batch_size": 1}, {"micro_batch": 0}, {"lr": 0.0}, {"beta2": 1.0}, {"max_scale": 0.5}, {"end_lr": -1.0}]
)
def test_a_recipe_that_cannot_be_is_refused_by_name(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        ContrastiveConfig(**bad)


# ------------------------------------------------------------------------------------------------- the command line


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


def test_train_clip_on_the_command_line(cli, tmp_path):
    words = ["--epochs", 1, "--train-images", 200, "--batch-size", 50]
    code, out, err = cli("train-clip", "--out", tmp_path / "a", "--variant", "DiffCLIP-dagger", *words)
    assert code == 0, err
    assert "DiffCLIP-dagger in" in out
    assert re.search(r"zero-shot test accuracy [\d.]+ % \[[\d.]+, [\d.]+\] \(n = 360 test images\)", out)
    again = [
        "train-clip",
        "--out",
        tmp_path / "b",
        "--config",
        tmp_path / "a" / "run.json",
        "--variant",
        "CLIP",
        "--json",
    ]
    code, out, err = cli(*again)
    assert code == 0, err
    assert json.loads(out)["title"] == "CLIP"
    first, second = (Run(tmp_path / name).about for name in "ab")
    assert first["training"] == second["training"]
    assert first["data"] == second["data"]
    code, _, err = cli("train-clip", "--out", tmp_path / "a", "--variant", "DiffCLIP", *words)
    assert code == 2
    assert "holds another run" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pairs", "flickr9k"], "no data set or folder 'flickr9k'"),
        (["--allow", "lies"], "'lies' is not known: it takes missing, empty, broken, long"),
        (["--patch", "3"], "patch=3 does not tile"),
        (["--scale", "paper"], "no pairs are named"),
        (["--prompts", "poems"], "prompts 'poems' are not known"),
        (["--micro-batch", "0"], "micro_batch=0"),
        (["--image", "16"], "looks at 16 x 16: set image=8"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_sentence(cli, tmp_path, words, said):
    code, out, err = cli("train-clip", "--out", tmp_path / "run", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_counts_of_what_was_left_out_are_printed_and_kept(cli, tmp_path):
    from tests.data.test_pairs import sample, write_shard

    write_shard(tmp_path / "s" / "0.tar", [sample(i, **({"txt": b""} if i == 3 else {})) for i in range(30)])
    words = ["train-clip", "--out", tmp_path / "run", "--pairs", tmp_path / "s", "--epochs", 1, "--batch-size", 8]
    code, _, err = cli(*words)
    assert code == 2
    assert "sample 00003, has no caption" in err
    code, out, err = cli(*words, "--allow", "empty")
    assert code == 0, err
    assert "1 captions without a word" in out
    assert Run(tmp_path / "run").about["data"]["train"]["skipped"] == {"empty": 1}
