"""Training steps: against the softmax twin, against timm's layer, against the machine."""

from __future__ import annotations

import copy

import torch
from timm.layers import DiffAttention
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from antiphase.config import Budget
from antiphase.data import load
from antiphase.data.imageset import Batch
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.vit import build
from antiphase.scales import SCALES
from antiphase.training import TrainConfig
from antiphase.training.loop import Learner
from antiphase.training.tasks import CrossEntropy, classification_objective
from benchmarks.timing import Line, Measured, Timed, interleaved, timed


def _batch(n: int = 128) -> Batch:
    """Real CIFAR-10 images."""
    return load("cifar10", "train").subset(n).all


def _config(scale: str, attention: Softmax | Differential) -> ViTConfig:
    s = SCALES[scale]  # type: ignore[index]
    return ViTConfig(patch=s.patch, width=s.width, heads=s.heads, depth=1, attention=(attention,))


def _model(scale: str, attention: Softmax | Differential) -> nn.Module:
    return build(_config(scale, attention), shape=(3, 32, 32), classes=10)


def _training_step(model: nn.Module, batch: Batch) -> Timed:
    """One step of the real loop: zero, forward, loss, backward, Adam."""
    learner = Learner(model.train(), TrainConfig(), CrossEntropy())
    return timed(lambda: learner.update(batch, lr=5e-4))


def _with_timms_attention(model: nn.Module) -> nn.Module:
    """The same model, the same weights, timm's own differential attention in every block."""
    other = copy.deepcopy(model)
    for block in other.model.blocks:
        theirs = DiffAttention(block.attn.qkv.in_features, num_heads=block.attn.num_heads, qkv_bias=True)
        theirs.load_state_dict(block.attn.state_dict())
        theirs.lambda_init = block.attn.lambda_init
        block.attn = theirs
    batch = _batch(8)
    assert torch.allclose(other(batch.pixels), model(batch.pixels), atol=1e-5)
    return other


def step_vs_softmax_twin(n: int) -> Measured:
    batch = _batch()
    steps = (_training_step(_model("paper", a), batch) for a in (Differential(), Softmax()))
    return Measured([ours / twin for ours, twin in interleaved(*steps, n)])


def step_vs_timm(n: int) -> Measured:
    batch, model = _batch(), _model("paper", Differential())
    theirs = _training_step(_with_timms_attention(model), batch)
    return Measured([ours / peer for ours, peer in interleaved(_training_step(model, batch), theirs, n)])


def step_gemm_fraction(n: int) -> Measured:
    """(operations of the plain model's step / our seconds) / (operations of a 2048^3 float32 product / its seconds).

    Our step does without some of these operations (models/fast_path.py).
    """
    side, batch = 2048, _batch()
    model = _model("paper", Differential())
    with FlopCounterMode(display=False) as counter:
        nn.functional.cross_entropy(model(batch.pixels), batch.labels).backward()
    a, b = torch.rand(side, side), torch.rand(side, side)
    operations = counter.get_total_flops() / (2 * side**3)
    gemm = timed(lambda: a @ b)
    pairs = interleaved(_training_step(model, batch), gemm, n)
    return Measured([operations * product / step for step, product in pairs])


def adversarial_step_cost(n: int) -> Measured:
    """One step of PGD-7 training against eight clean steps."""
    batch, k = _batch(), 7
    config = TrainConfig(adv_eps=Budget("1/255"), adv_steps=k)
    adversarial = Learner(_model("paper", Differential()).train(), config, classification_objective(config))
    clean = _training_step(_model("paper", Differential()), batch)
    pairs = interleaved(timed(lambda: adversarial.update(batch, lr=5e-4)), clean, n, warm=2)
    return Measured([ours / ((k + 1) * one) for ours, one in pairs])


TRAINING_LINES = {
    "train-step-vs-softmax-twin": Line(
        "time of a DiffViT training step / that of its softmax ViT twin (paper scale, depth 1, batch 128, CIFAR-10)",
        "<= 1.10",
        step_vs_softmax_twin,
    ),
    "train-step-vs-timm": Line(
        "time of a DiffViT training step / the same model with timm's own differential attention, which computes every token of "
        "its only block where ours computes the class token",
        "<= 1.00",
        step_vs_timm,
    ),
    "train-step-gemm-fraction": Line(
        "operations of a plain DiffViT training step a second of ours / those of a 2048 x 2048 float32 matrix product",
        ">= 0.60",
        step_gemm_fraction,
    ),
    "adversarial-step-cost": Line(
        "time of a PGD-7 adversarial training step / that of 8 clean steps",
        "<= 1.10",
        adversarial_step_cost,
    ),
}
