"""Attacks on the committed pair, real CIFAR-10 test images: a sweep over budgets against other people's PGD, and a PGD step."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from antiphase.attacks import PGD, Linf, engine
from antiphase.data import load
from antiphase.models.fast_path import fast_path
from antiphase.models.run import Run
from antiphase.runtime import frozen
from benchmarks.peers import PEERS
from benchmarks.timing import Line, Measured, interleaved, timed

PAIR = Path(__file__).parents[1] / "results" / "pair"
GRID = [PGD(within=Linf(f"{e}/255"), steps=20) for e in (0.25, 0.5, 1, 2, 4)]


class Counted(nn.Module):
    """A model that counts the images it is shown."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.images = model, 0

    def forward(self, x: Tensor) -> Tensor:
        self.images += len(x)
        logits: Tensor = self.model(x)
        return logits


def sweep_vs_peer(name: str, run: str, images: int, part: int, pairs: int) -> Measured:
    """Both attack the same part of the images at every budget, in turn; parts follow one another until all pairs are done."""
    model = Run(PAIR / run).classifier()
    x, y, ids = load("cifar10", "test").subset(images).all
    parts = [slice(i, i + part) for i in range(0, images, part)]
    ours, theirs = Counted(model).eval(), Counted(model).eval()
    fooled: dict[str, dict[tuple[int, int], int]] = {"ours": {}, name: {}}
    seen = {"ours": 0, name: 0}
    ratios = []
    for i in range(pairs + 1):
        here = parts[i % len(parts)]
        took = {}
        for side in ("ours", name) if i % 2 else (name, "ours"):
            began = time.perf_counter()
            if side == "ours":
                wins = [r.success for r in engine.sweep(ours, x[here], y[here], GRID, ids=ids[here])]
            else:
                wins = _peer_sweep(theirs, x[here], y[here], name)
            took[side] = time.perf_counter() - began
            seen[side] += part
            for budget, won in enumerate(wins):
                fooled[side][here.start, budget] = int(won.sum())
        if i:
            ratios.append(took[name] / took["ours"])
    return Measured(
        ratios, _notes(fooled, {"ours": ours.images / seen["ours"], name: theirs.images / seen[name]}, images)
    )


def _peer_sweep(model: nn.Module, x: Tensor, y: Tensor, name: str) -> list[Tensor]:
    """A peer knows nothing of other budgets: each is attacked anew, and judged by the changed prediction as ours is."""
    with torch.no_grad():
        clean = model(x).argmax(dim=1)
    wins = []
    for attack in GRID:
        adversarial = PEERS[name](attack)(model, x, y)
        with torch.no_grad():
            wins.append(model(adversarial).argmax(dim=1) != clean)
    return wins


def _notes(fooled: dict[str, dict[tuple[int, int], int]], forwards: dict[str, float], images: int) -> dict[str, str]:
    notes = {}
    for side, found in fooled.items():
        rates = [sum(v for (_, b), v in found.items() if b == budget) / images for budget in range(len(GRID))]
        notes[f"success, {side}"] = " ".join(f"{100 * r:.1f}" for r in rates) + f" % of {images}"
        notes[f"forwards an image, {side}"] = f"{forwards[side]:.1f}"
    return notes


# ------------------------------------------------------------------------------------------------- a PGD step and its products


class Products(TorchDispatchMode):
    """Notes every matrix product and convolution that runs, as something that can be run again."""

    NAMES = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution", "aten::convolution_backward")

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], object]] = []

    def run(self) -> None:
        with torch.no_grad():
            for call in self.calls:
                call()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in self.NAMES:
            held = [a.detach().clone(memory_format=torch.preserve_format) if isinstance(a, Tensor) else a for a in args]
            self.calls.append(partial(func, *held, **(kwargs or {})))
        return func(*args, **(kwargs or {}))


def pgd_step_gemm_fraction(n: int) -> Measured:
    """(seconds of the bare matrix products of the plain model's step, run on their own) / (seconds of our step).

    Our step does without some of these products (models/fast_path.py), so that the fraction may exceed 1.
    """
    model = Run(PAIR / "DiffViT").classifier()
    x, y, _ = load("cifar10", "test").subset(64).all

    def step() -> Tensor:
        leaf = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(nn.functional.cross_entropy(model(leaf), y, reduction="sum"), leaf)
        return GRID[2].within.project(leaf.detach() + grad.sign() / 255, x).clamp(0, 1)

    def operations() -> str:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(x)
        return f"{counter.get_total_flops() / len(x) / 1e6:.1f} million"

    with frozen(model):
        with Products() as plain:
            step()
        notes = {"operations of a forward, plain": operations()}
        with fast_path(model):
            with Products() as own:
                step()
            notes["operations of a forward, ours"] = operations()
            ratios, of_own = (
                [b / a for a, b in interleaved(timed(step), timed(products.run), n, warm=10)]
                for products in (plain, own)
            )
    notes["the few products of our own step / our step"] = f"{median(of_own):.2f}"
    return Measured(ratios, notes)


ATTACK_LINES = {
    "pgd-sweep-vs-torchattacks": Line(
        "time of torchattacks / ours: PGD-20 at 0.25, 0.5, 1, 2, 4 /255 on the depth-1 DiffViT, 512 images in parts of 64",
        ">= 3.00",
        partial(sweep_vs_peer, "torchattacks", "DiffViT", 512, 64),
    ),
    "pgd-sweep-vs-foolbox": Line(
        "time of foolbox / ours: the same",
        ">= 4.00",
        partial(sweep_vs_peer, "foolbox", "DiffViT", 512, 64),
    ),
    "pgd-sweep-vs-torchattacks-depth-4": Line(
        "time of torchattacks / ours: the same on a depth-4 DiffViT, 256 images in parts of 32",
        ">= 3.00",
        partial(sweep_vs_peer, "torchattacks", "DiffViT-depth4", 256, 32),
    ),
    "pgd-step-gemm-fraction": Line(
        "time of the matrix products of a plain PGD step run on their own / time of our step (depth-1 DiffViT, batch 64)",
        ">= 0.60",
        pgd_step_gemm_fraction,
    ),
}
