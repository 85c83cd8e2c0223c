"""AutoAttack on real CIFAR-10 test images, against the authors' code as a package."""

from __future__ import annotations

import time
from functools import partial

import torch
from torch import Tensor, nn

from antiphase.attacks import APGD, AutoAttack, Linf, engine
from antiphase.data import load
from antiphase.data.imageset import Batch
from benchmarks.attack_lines import Counted
from benchmarks.bench_models import bench_model
from benchmarks.peers import pyautoattack
from benchmarks.timing import Line, Measured


def standard_vs_pyautoattack(model: str, eps: str, images: int, parts: int, pairs: int) -> Measured:
    """Both evaluate the same part of the images, in turn; parts follow one another until all pairs are done.

    Who is wrong without an attack is attacked by neither.
    """
    net = bench_model(model)
    batch, attack = load("cifar10", "test").subset(images).all, AutoAttack(within=Linf(eps))
    shown = {"ours": Counted(net).eval(), "pyautoattack": Counted(net).eval()}
    robust = {side: torch.full((images,), -1) for side in shown}  # -1: not looked at
    seconds, seen = dict.fromkeys(shown, 0.0), 0

    def once(side: str, rows: Tensor) -> float:
        x, y = batch.pixels[rows], batch.labels[rows]
        began = time.perf_counter()
        if side == "ours":
            result = engine.run(shown[side], x, y, attack, ids=batch.ids[rows.numpy()])
            left = result.correct & ~result.success
        else:
            adversarial = pyautoattack(attack.within)(shown[side], x, y)
            with torch.no_grad():
                left = net(adversarial).argmax(dim=1) == y
        took = time.perf_counter() - began
        robust[side][rows] = left.long()
        seconds[side] += took
        return took

    ratios, dealt = [], _dealt(net, batch, attack.within, parts)
    for i in range(pairs):
        rows = dealt[i % parts]
        seen += len(rows)
        took = {side: once(side, rows) for side in (("ours", "pyautoattack") if i % 2 else ("pyautoattack", "ours"))}
        ratios.append(took["pyautoattack"] / took["ours"])
    ours, theirs = robust["ours"], robust["pyautoattack"]
    known = int((ours >= 0).sum())
    notes = {f"robust, {side}": f"{int((left == 1).sum())} of {known}" for side, left in robust.items()}
    notes |= {f"forwards an image, {side}": f"{c.images / seen:.1f}" for side, c in shown.items()}
    notes["the same verdict"] = str(int(((ours == theirs) & (ours >= 0)).sum()))
    return Measured(ratios, notes | {"time of all pairs together": f"{seconds['pyautoattack'] / seconds['ours']:.3f}"})


def _dealt(model: nn.Module, batch: Batch, within: Linf, parts: int) -> list[Tensor]:
    """The images in so many parts that are alike: each gets its share of those that stand, that fall and that are wrong.

    A part in which nobody stands is over at once, and one like that would speak for no evaluation.
    """
    if parts == 1:
        return [torch.arange(len(batch.labels))]
    found = engine.run(model, batch.pixels, batch.labels, APGD(within=within, loss="dlr-targeted"), ids=batch.ids)
    kind = found.correct.long() + (found.correct & ~found.success).long()  # wrong 0, falls 1, stands 2
    order = kind.argsort(descending=True, stable=True)
    return [order[i::parts] for i in range(parts)]


AUTOATTACK_LINES = {
    "autoattack-vs-pyautoattack-at-8": Line(
        "time of pyautoattack / ours: AutoAttack standard at 8/255 on the depth-1 DiffViT, 64 images",
        ">= 10.00",
        partial(standard_vs_pyautoattack, "diffvit", "8/255", 64, 1),
    ),
    "autoattack-vs-pyautoattack-at-1": Line(
        "time of pyautoattack / ours: the same at 1/255, where survivors are tried to the end: the 64 images dealt to six "
        "parts, each with one of the six that stand, a part a pair",
        ">= 1.20",
        partial(standard_vs_pyautoattack, "diffvit", "1/255", 64, 6),
    ),
}
