"""AutoAttack on the committed depth-1 DiffViT, real CIFAR-10 test images, against the authors' code as a package."""

from __future__ import annotations

import time
from functools import partial

import torch
from torch import Tensor

from antiphase.attacks import AutoAttack, Linf, engine
from antiphase.data import load
from antiphase.models.checkpoint import Run
from benchmarks.attack_lines import PAIR, Counted
from benchmarks.peers import pyautoattack
from benchmarks.timing import Line, Measured


def standard_vs_pyautoattack(eps: str, images: int, pairs: int) -> Measured:
    """Both evaluate the same images in full, in turn. Who is wrong without an attack is attacked by neither."""
    model = Run(PAIR / "DiffViT").classifier()
    x, y, ids = load("cifar10", "test").subset(images).all
    attack = AutoAttack(within=Linf(eps))
    shown = {"ours": Counted(model).eval(), "pyautoattack": Counted(model).eval()}
    robust: dict[str, Tensor] = {}

    def once(side: str) -> float:
        began = time.perf_counter()
        if side == "ours":
            result = engine.run(shown[side], x, y, attack, ids=ids)
            robust[side] = result.correct & ~result.success
        else:
            adversarial = pyautoattack(attack.within)(shown[side], x, y)
            with torch.no_grad():
                robust[side] = model(adversarial).argmax(dim=1) == y
        return time.perf_counter() - began

    ratios = []
    for i in range(pairs):
        took = {side: once(side) for side in (("ours", "pyautoattack") if i % 2 else ("pyautoattack", "ours"))}
        ratios.append(took["pyautoattack"] / took["ours"])
    notes = {f"robust, {side}": f"{int(left.sum())} of {images}" for side, left in robust.items()}
    notes |= {f"forwards an image, {side}": f"{c.images / images / pairs:.1f}" for side, c in shown.items()}
    return Measured(ratios, notes | {"the same verdict": f"{int((robust['ours'] == robust['pyautoattack']).sum())}"})


AUTOATTACK_LINES = {
    "autoattack-vs-pyautoattack-at-8": Line(
        "time of pyautoattack / ours: AutoAttack standard at 8/255 on the depth-1 DiffViT, 64 images",
        ">= 10.00",
        partial(standard_vs_pyautoattack, "8/255", 64),
    ),
}
UNMEASURED = {  # two hours at the 41 pairs of a line: it joins the others when it has been measured
    "autoattack-vs-pyautoattack-at-1": Line(
        "time of pyautoattack / ours: the same at 1/255, where survivors are tried to the end",
        ">= 1.20",
        partial(standard_vs_pyautoattack, "1/255", 64),
    ),
}
