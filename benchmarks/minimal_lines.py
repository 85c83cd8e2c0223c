"""The smallest perturbation in L2 on the committed pair, real CIFAR-10 test images: ours against foolbox's Carlini-Wagner."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from antiphase.attacks import CW, MinimalL2, engine
from antiphase.attacks.minimal import Minimal
from antiphase.data import load
from antiphase.models.checkpoint import Run
from benchmarks.peers import foolbox_cw
from benchmarks.timing import Line, Measured

PAIR = Path(__file__).parents[1] / "results" / "pair"


def cw_time(images: int, part: int, pairs: int) -> Measured:
    """Both attack the same part of the images, in turn; parts follow one another until all pairs are done."""
    sizes, took, fooled = _compared(CW(), images, part, pairs)
    ratios = [theirs / ours for ours, theirs in zip(took["ours"], took["foolbox"])][1:]  # the first warms up
    return Measured(ratios, _notes(sizes, fooled))


def minimal_distance(images: int, part: int, pairs: int) -> Measured:
    """(our median distance) / (foolbox's), over the images of each part."""
    sizes, _, fooled = _compared(MinimalL2(), images, part, pairs)
    ratios = [float(ours.median() / theirs.median()) for ours, theirs in zip(sizes["ours"], sizes["foolbox"])][1:]
    return Measured(ratios, _notes(sizes, fooled))


def _compared(
    attack: Minimal, images: int, part: int, pairs: int
) -> tuple[dict[str, list[Tensor]], dict[str, list[float]], dict[str, list[Tensor]]]:
    """Distances, seconds and success of each pair. Both leave the predicted class, so that every image has a distance."""
    model = Run(PAIR / "DiffViT").classifier().eval()
    x, y, ids = load("cifar10", "test").subset(images).all
    with torch.no_grad():
        clean = torch.cat([model(some).argmax(dim=1) for some in x.split(64)])
    peer = foolbox_cw(CW())
    sides = ("ours", "foolbox")
    sizes, took, fooled = ({side: [] for side in sides} for _ in range(3))  # type: ignore[var-annotated]
    for i in range(pairs + 1):
        start = i * part % images
        here = slice(start, start + part)
        for side in sides if i % 2 else sides[::-1]:
            began = time.perf_counter()
            if side == "ours":
                adversarial = engine.run(model, x[here], y[here], attack, ids=ids[here]).adversarial
            else:
                adversarial = peer(model, x[here], clean[here])
            took[side].append(time.perf_counter() - began)
            sizes[side].append((adversarial - x[here]).flatten(1).norm(dim=1))
            fooled[side].append(_changed(model, adversarial, clean[here]))
    return sizes, took, fooled


def _changed(model: nn.Module, adversarial: Tensor, clean: Tensor) -> Tensor:
    with torch.no_grad():
        return model(adversarial).argmax(dim=1) != clean


def _notes(sizes: dict[str, list[Tensor]], fooled: dict[str, list[Tensor]]) -> dict[str, str]:
    notes = {}
    for side, parts in sizes.items():
        won = torch.cat(fooled[side])
        notes[f"median L2, {side}"] = f"{float(torch.cat(parts)[won].median()):.4f}"
        notes[f"success, {side}"] = f"{int(won.sum())} of {len(won)}"
    return notes


MINIMAL_LINES = {
    "cw-vs-foolbox": Line(
        "time of foolbox / ours: Carlini-Wagner L2, 9 searches x 200 steps, on the depth-1 DiffViT, 64 images",
        ">= 2.00",
        partial(cw_time, 64, 64),  # in parts of 16, foolbox's one stop for the whole batch came after 190 or 750
    ),
    "minimal-l2-vs-foolbox-cw": Line(
        "median L2 of MinimalL2 / that of foolbox's Carlini-Wagner (9 x 200), on the depth-1 DiffViT, 656 images in parts of 16",
        "<= 0.80",
        partial(minimal_distance, 656, 16),
    ),
}
