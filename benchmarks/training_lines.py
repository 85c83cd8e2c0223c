"""Training steps: against the softmax twin, against timm's layer, against the machine, in half the precision."""

from __future__ import annotations

import copy
from functools import partial
from typing import Literal

import torch
from timm.layers import DiffAttention
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from antiphase.config import Budget
from antiphase.data import load
from antiphase.data.imageset import Batch
from antiphase.models import Differential, Softmax, ViTConfig
from antiphase.models.fast_path import fast_path
from antiphase.models.vit import build
from antiphase.scales import SCALES
from antiphase.training import TrainConfig
from antiphase.training.loop import Learner
from antiphase.training.tasks import CrossEntropy, classification_objective
from benchmarks.timing import Line, Measured, Timed, interleaved, of_the_machine, timed


def _batch(n: int = 128) -> Batch:
    """Real CIFAR-10 images."""
    return load("cifar10", "train").subset(n).all


def _model(attention: Softmax | Differential, depth: int = 1) -> nn.Module:
    """Of the paper's size, but for its depth."""
    s = SCALES["paper"]
    config = ViTConfig(patch=s.patch, width=s.width, heads=s.heads, depth=depth, attention=(attention,))
    return build(config, shape=(3, 32, 32), classes=10)


def _training_step(model: nn.Module, batch: Batch, precision: Literal["fp32", "bf16"] = "fp32") -> Timed:
    """One step of the real loop: zero, forward, loss, backward, Adam."""
    learner = Learner(model.train(), TrainConfig(precision=precision), CrossEntropy())
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


def step_vs_softmax_twin(depth: int, n: int) -> Measured:
    batch = _batch()
    steps = (_training_step(_model(a, depth), batch) for a in (Differential(), Softmax()))
    return Measured([ours / twin for ours, twin in interleaved(*steps, n)])


def step_vs_timm(depth: int, n: int) -> Measured:
    batch, model = _batch(), _model(Differential(), depth)
    theirs = _training_step(_with_timms_attention(model), batch)
    return Measured([ours / peer for ours, peer in interleaved(_training_step(model, batch), theirs, n)])


def step_in_bf16(depth: int, n: int) -> Measured:
    """(a step in float32) / (one under bf16 autocast)"""
    batch, model = _batch(), _model(Differential(), depth)
    plain, short = (_training_step(copy.deepcopy(model), batch, precision) for precision in ("fp32", "bf16"))
    return Measured([a / b for a, b in interleaved(plain, short, n)])


def _operations(model: nn.Module, batch: Batch) -> int:
    """Of the matrix products of a forward and its backward."""
    with FlopCounterMode(display=False) as counter:
        nn.functional.cross_entropy(model(batch.pixels), batch.labels).backward()
    return int(counter.get_total_flops())


def step_gemm_fraction(n: int) -> Measured:
    """(operations that our step does / its seconds) / (operations of a 2048^3 float32 product / its seconds)."""
    batch, model = _batch(), _model(Differential())
    with fast_path(model):
        operations = _operations(model, batch)
    return Measured(of_the_machine(operations, _training_step(model, batch), n))


def step_saved_operations(n: int) -> Measured:
    """(operations of the plain model's step) / (those that our step does): counted, so that it does not vary."""
    batch, model = _batch(), _model(Differential())
    plain = _operations(model, batch)
    with fast_path(model):
        own = _operations(model, batch)
    return Measured(
        [plain / own] * n, {"operations of a step on one image, plain": f"{plain / len(batch.ids) / 1e6:.1f} million"}
    )


def adversarial_step_cost(n: int) -> Measured:
    """One step of PGD-7 training against eight clean steps."""
    batch, k = _batch(), 7
    config = TrainConfig(adv_eps=Budget("1/255"), adv_steps=k)
    adversarial = Learner(_model(Differential()).train(), config, classification_objective(config))
    clean = _training_step(_model(Differential()), batch)
    pairs = interleaved(timed(lambda: adversarial.update(batch, lr=5e-4)), clean, n, warm=2)
    return Measured([ours / ((k + 1) * one) for ours, one in pairs])


TWIN = "time of a DiffViT training step / that of its softmax ViT twin (paper scale, depth {}, batch 128, CIFAR-10)"
TIMM = "time of a DiffViT training step / the same model with timm's own differential attention (depth {})"
BF16 = "time of a DiffViT training step in float32 / with --precision bf16 (paper scale, depth {}, batch 128, CIFAR-10)"
TRAINING_LINES = {
    "train-step-vs-softmax-twin": Line(TWIN.format(1), "<= 1.10", partial(step_vs_softmax_twin, 1)),
    "train-step-vs-softmax-twin-depth-4": Line(TWIN.format(4), "<= 1.10", partial(step_vs_softmax_twin, 4)),
    "train-step-vs-softmax-twin-depth-12": Line(
        TWIN.format(12), "<= 1.10", partial(step_vs_softmax_twin, 12), long=True
    ),
    "train-step-vs-timm": Line(
        TIMM.format(1) + ", which computes every token of its only block where ours computes the class token",
        "<= 1.00",
        partial(step_vs_timm, 1),
    ),
    "train-step-vs-timm-depth-4": Line(TIMM.format(4), "<= 1.00", partial(step_vs_timm, 4)),
    "train-step-vs-timm-depth-12": Line(TIMM.format(12), "<= 1.00", partial(step_vs_timm, 12), long=True),
    "train-step-gemm-fraction": Line(
        "operations that a DiffViT training step of ours does a second / those of a 2048 x 2048 float32 matrix product",
        ">= 0.60",
        step_gemm_fraction,
    ),
    "train-step-operations-saved": Line(
        "operations of a plain DiffViT training step (depth 1) / those that ours does, which computes the class token only",
        ">= 1.00",
        step_saved_operations,
    ),
    "train-step-bf16": Line(BF16.format(1), ">= 1.00", partial(step_in_bf16, 1)),
    "train-step-bf16-depth-4": Line(BF16.format(4), ">= 1.00", partial(step_in_bf16, 4)),
    "train-step-bf16-depth-12": Line(BF16.format(12), ">= 1.00", partial(step_in_bf16, 12), long=True),
    "adversarial-step-cost": Line(
        "time of a PGD-7 adversarial training step / that of 8 clean steps",
        "<= 1.10",
        adversarial_step_cost,
    ),
}
