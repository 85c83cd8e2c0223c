"""The smallest perturbation in L2 on real CIFAR-10 test images, against other people's Carlini-Wagner and fast minimum norm."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from antiphase.attacks import CW, FMN, MinimalL2, engine
from antiphase.attacks.config import MinimumNorm
from antiphase.data import load
from benchmarks.attack_lines import Counted
from benchmarks.bench_models import bench_model
from benchmarks.peers import CW_PEERS, FMN_PEERS
from benchmarks.timing import Line, Measured, fastest


@dataclass
class Side:
    """What one of the two did, an entry a part."""

    name: str
    attack: Callable[[slice], Tensor]  # from a part of the images to adversarial ones
    model: Counted
    seconds: list[float] = field(default_factory=list)
    found: list[Tensor] = field(default_factory=list)  # distances of those fooled

    @property
    def medians(self) -> list[float]:
        return [float(found.median()) for found in self.found]


def time_vs_peer(attack: CW | FMN, peer: str, model: str, images: int, part: int, pairs: int) -> Measured:
    """Both attack the same part of the images, in turn; parts follow one another, the first to warm up.

    Where `peer` is "best", it is the one that was fastest on the first part.
    """
    ours, theirs = _compared(attack, attack, peer, model, images, part, pairs)
    notes = _notes(ours, theirs, part) | {
        "time of all pairs together": f"{sum(theirs.seconds[1:]) / sum(ours.seconds[1:]):.3f}"
    }
    return Measured([b / a for a, b in zip(ours.seconds, theirs.seconds)][1:], notes)


def minimal_distance(images: int, part: int, pairs: int) -> Measured:
    """(our median distance) / (foolbox's), over the images of each part that are fooled."""
    ours, theirs = _compared(MinimalL2(), CW(), "foolbox", "diffvit", images, part, pairs)
    return Measured([a / b for a, b in zip(ours.medians, theirs.medians)][1:], _notes(ours, theirs, part))


def _compared(
    attack: MinimumNorm, theirs_does: CW | FMN, peer: str, model: str, images: int, part: int, pairs: int
) -> tuple[Side, Side]:
    """Both leave the predicted class, so that every image has a distance."""
    net = bench_model(model)
    x, y, ids = load("cifar10", "test").subset(images).all
    with torch.no_grad():
        clean = torch.cat([net(some).argmax(dim=1) for some in x.split(64)])
    peers: dict[str, Any] = CW_PEERS if isinstance(theirs_does, CW) else FMN_PEERS
    if peer == "best":
        few = (net, x[:part], clean[:part])
        peer = fastest({name: partial(make(theirs_does), *few) for name, make in peers.items()})
    call, shown = peers[peer](theirs_does), [Counted(net).eval() for _ in range(2)]
    ours = Side("ours", lambda at: engine.run(shown[0], x[at], y[at], attack, ids=ids[at]).adversarial, shown[0])
    theirs = Side(peer, lambda at: call(shown[1], x[at], clean[at]), shown[1])
    for i in range(pairs + 1):
        here = slice(i * part % images, i * part % images + part)
        for side in (ours, theirs) if i % 2 else (theirs, ours):
            began = time.perf_counter()
            adversarial = side.attack(here)
            side.seconds.append(time.perf_counter() - began)
            with torch.no_grad():
                fooled = net(adversarial).argmax(dim=1) != clean[here]
            side.found.append((adversarial - x[here]).flatten(1).norm(dim=1)[fooled])
    return ours, theirs


def _notes(ours: Side, theirs: Side, part: int) -> dict[str, str]:
    notes = {}
    for side in (ours, theirs):
        name, found, n = side.name, torch.cat(side.found), part * len(side.found)
        notes[f"median L2, {name}"] = f"{float(found.median()):.4f}"
        notes[f"success, {name}"] = f"{len(found)} of {n}"
        notes[f"forwards an image, {name}"] = f"{side.model.images / n:.0f}"
    return notes


MINIMAL_LINES = {
    "cw-vs-foolbox": Line(
        "time of foolbox / ours: Carlini-Wagner L2, 9 searches x 200 steps, on the depth-1 DiffViT, a part of 16 images a pair, "
        "each part another (foolbox stops for a whole batch at once, ours for each image)",
        ">= 2.00",
        partial(time_vs_peer, CW(), "foolbox", "diffvit", 512, 16),
    ),
    "minimal-l2-vs-foolbox-cw": Line(
        "median L2 of MinimalL2 / that of foolbox's Carlini-Wagner (9 x 200), on the depth-1 DiffViT, a part of 16 images a "
        "pair, each part another",
        "<= 0.80",
        partial(minimal_distance, 512, 16),
    ),
}
