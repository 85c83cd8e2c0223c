"""Attacks on the committed pair, real CIFAR-10 test images: a sweep over budgets against other people's PGD, and a PGD step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from antiphase.attacks import PGD, Linf, engine
from antiphase.attacks.question import SweepProtocol
from antiphase.data import load
from antiphase.models.fast_path import fast_path
from antiphase.runtime import frozen
from benchmarks.bench_models import bench_model
from benchmarks.peers import PGD_PEERS
from benchmarks.timing import Line, Measured, fastest, of_the_machine, timed

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


def pgd_vs_peer(
    peer: str,
    model: str,
    images: int,
    part: int,
    pairs: int,
    *,
    grid: Sequence[PGD] = GRID,
    protocol: SweepProtocol = "fast",
) -> Measured:
    """Both attack the same part of the images at every budget, in turn; parts follow one another until all pairs are done.

    Where `peer` is "best", it is the one that was fastest on the first part.
    """
    net = bench_model(model)
    x, y, ids = load("cifar10", "test").subset(images).all
    parts = [slice(i, i + part) for i in range(0, images, part)]
    ours, theirs = Counted(net).eval(), Counted(net).eval()
    if peer == "best":
        few = (net, x[parts[0]], y[parts[0]], grid[:1])
        peer = fastest({name: partial(_peer_sweep, *few, name) for name in PGD_PEERS})
    fooled: dict[str, dict[tuple[int, int], Tensor]] = {"ours": {}, peer: {}}
    seen = {"ours": 0, peer: 0}
    ratios = []
    for i in range(pairs + 1):
        here = parts[i % len(parts)]
        took = {}
        for side in ("ours", peer) if i % 2 else (peer, "ours"):
            began = time.perf_counter()
            if side == "ours":
                found = engine.sweep(ours, x[here], y[here], grid, ids=ids[here], protocol=protocol)
                wins = [result.success for result in found]
            else:
                wins = _peer_sweep(theirs, x[here], y[here], grid, peer)
            took[side] = time.perf_counter() - began
            seen[side] += part
            for budget, won in enumerate(wins):
                fooled[side][here.start, budget] = won
        if i:
            ratios.append(took[peer] / took["ours"])
    notes = _notes(fooled, {"ours": ours.images / seen["ours"], peer: theirs.images / seen[peer]}, len(grid))
    if protocol == "bisect":
        missed = sum(
            int((full.success & ~fooled["ours"][here.start, budget]).sum())
            for here in parts[: pairs + 1]
            for budget, full in enumerate(engine.sweep(net, x[here], y[here], grid, ids=ids[here]))
        )
        answers = sum(len(won) for won in fooled["ours"].values())
        notes["successes of the full sweep that bisecting missed"] = f"{missed} of {answers} answers"
    return Measured(ratios, notes)


def _peer_sweep(model: nn.Module, x: Tensor, y: Tensor, grid: Sequence[PGD], name: str) -> list[Tensor]:
    """A peer knows nothing of other budgets: each is attacked anew, and judged by the changed prediction as ours is."""
    with torch.no_grad():
        clean = model(x).argmax(dim=1)
    wins = []
    for attack in grid:
        adversarial = PGD_PEERS[name](attack)(model, x, y)
        with torch.no_grad():
            wins.append(model(adversarial).argmax(dim=1) != clean)
    return wins


def _notes(
    fooled: dict[str, dict[tuple[int, int], Tensor]], forwards: dict[str, float], budgets: int
) -> dict[str, str]:
    notes = {}
    for side, found in fooled.items():
        won = [torch.cat([w for (_, b), w in found.items() if b == budget]) for budget in range(budgets)]
        rates = " ".join(f"{100 * float(w.double().mean()):.1f}" for w in won)
        notes[f"success, {side}"] = f"{rates} % of {len(won[0])}"
        notes[f"forwards an image, {side}"] = f"{forwards[side]:.1f}"
    return notes


# ------------------------------------------------------------------------------------------------- a PGD step


def _pgd_step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    nn.functional.cross_entropy(model(leaf), y, reduction="sum").backward()  # operations are counted of this call alone
    assert leaf.grad is not None
    return GRID[2].within.project(leaf.detach() + leaf.grad.sign() / 255, x).clamp(0, 1)


def _operations(step: Callable[[], Tensor]) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def pgd_step_gemm_fraction(n: int) -> Measured:
    """(operations that our step does / its seconds) / (operations of a 2048^3 float32 product / its seconds)."""
    model = bench_model("diffvit")
    x, y, _ = load("cifar10", "test").subset(64).all
    step = partial(_pgd_step, model, x, y)
    with frozen(model), fast_path(model):
        return Measured(of_the_machine(_operations(step), timed(step), n))


def pgd_step_saved_operations(n: int) -> Measured:
    """(operations of the plain model's step) / (those that our step does): counted, so that it does not vary."""
    model = bench_model("diffvit")
    x, y, _ = load("cifar10", "test").subset(64).all
    step = partial(_pgd_step, model, x, y)
    with frozen(model):
        plain = _operations(step)
        with fast_path(model):
            own = _operations(step)
    return Measured(
        [plain / own] * n, {"operations of a step on one image, plain": f"{plain / len(x) / 1e6:.1f} million"}
    )


ATTACK_LINES = {
    "pgd-sweep-vs-torchattacks": Line(
        "time of torchattacks / ours: PGD-20 at 0.25, 0.5, 1, 2, 4 /255 on the depth-1 DiffViT, 512 images in parts of 64",
        ">= 3.00",
        partial(pgd_vs_peer, "torchattacks", "diffvit", 512, 64),
    ),
    "pgd-sweep-vs-foolbox": Line(
        "time of foolbox / ours: the same",
        ">= 4.00",
        partial(pgd_vs_peer, "foolbox", "diffvit", 512, 64),
    ),
    "pgd-sweep-vs-torchattacks-depth-4": Line(
        "time of torchattacks / ours: the same on a depth-4 DiffViT, 256 images in parts of 32",
        ">= 3.00",
        partial(pgd_vs_peer, "torchattacks", "diffvit-depth-4", 256, 32),
    ),
    "pgd-step-gemm-fraction": Line(
        "operations that a PGD step of ours does a second / those of a 2048 x 2048 float32 matrix product (depth-1 DiffViT, "
        "batch 64)",
        ">= 0.60",
        pgd_step_gemm_fraction,
    ),
    "pgd-step-operations-saved": Line(
        "operations of a plain PGD step (depth-1 DiffViT) / those that ours does, which computes the class token only",
        ">= 1.00",
        pgd_step_saved_operations,
    ),
}
