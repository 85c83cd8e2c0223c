"""One image before and after an attack: what a model saw, its maps, and where the gradient of each branch points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from antiphase import runtime
from antiphase.attacks import engine
from antiphase.attacks.config import PGD
from antiphase.attacks.losses import LOSSES
from antiphase.data.imageset import ImageSet
from antiphase.measures.jacobians_forward import branch_alignment
from antiphase.models.run import Run
from antiphase.models.taps import explicit, taps
from antiphase.results.questions import BranchPictureQuestion
from antiphase.store import Content, Entry


def _attacked(model: nn.Module, one: ImageSet, attack: PGD, seed: int) -> Tensor:
    clean = one.all
    return engine.run(model, clean.pixels, clean.labels, attack, ids=clean.ids, seed=seed).adversarial


def _view(model: nn.Module, pixels: Tensor, names: tuple[str, ...]) -> Content:
    """Pixels, prediction, and the last layer's maps (mean over heads) as the class token sees the patches."""
    with torch.no_grad(), taps(model) as record:
        logits = model(pixels)
    layer, maps = list(record.items())[-1]
    side = round((maps.signal.shape[-1] - 1) ** 0.5)

    def class_row(a: Tensor) -> Any:
        return a[0].mean(dim=0)[0, 1:].reshape(side, side).tolist()

    return {
        "pixels": _picture(pixels[0]),
        "prediction": names[int(logits.argmax())],
        "confidence": float(logits.softmax(dim=1).max()),
        "layer": layer,
        "A1": class_row(maps.signal),
        "A2": None if maps.noise is None else class_row(maps.noise),
        "combined": class_row(maps.combined),
        "lambda": maps.scalar_lambda,
    }


def branch_picture(
    run: Run, images: ImageSet, question: BranchPictureQuestion, *, device: torch.device | str = "cpu"
) -> Entry:
    """The first image that the model classifies correctly and the attack breaks (else the first), as figure 1 draws it: maps,
    the directions of both branches' gradients, cos and rho, clean and attacked."""

    def compute(_: Path) -> Content:
        return _pictures(run.classifier_for(images, device), images, question, device)

    return run.answer_on(question, images, compute)


def _pictures(
    model: nn.Module, images: ImageSet, question: BranchPictureQuestion, device: torch.device | str
) -> Content:
    batch, attack, probes, seed = images.all, question.attack, question.probes, question.seed
    result = engine.run(model, batch.pixels, batch.labels, attack, ids=batch.ids, seed=seed)
    broken = (result.success & result.correct).nonzero()[:, 0].tolist()
    one = images.take(np.array(broken[:1] or [0]))
    states = {"clean": one, "attacked": one.with_pixels(_attacked(model, one, attack, seed))}
    pictures = {}
    for state, there in states.items():
        (layer,) = branch_alignment(model, there, probes=probes, seed=seed, device=device)[-1:]
        whole = layer.stacked
        figures = {name: float(getattr(whole, name)[0, 0]) for name in ("cos", "cos_se", "rho", "amplification")}
        pictures[state] = _view(model, there.all.pixels.to(device), one.class_names) | figures
        pictures[state] |= _directions(model, there, device)
    return {
        "image": int(one.ids[0]),
        "label": one.class_names[int(one.labels[0])],
        "broken": bool(broken),
        "eps": float(attack.within.eps),
        "probes": probes,
        "states": pictures,
    }


def _directions(model: nn.Module, one: ImageSet, device: torch.device | str) -> Content:
    """What each branch of the last layer gives to the gradient of the loss: J1'u and -lambda J2'u, u = dloss / d(A1 - lambda A2).

    Pictures of unit length, and their cosine: above 0 the two reinforce each other.
    """
    batch = one.all
    with runtime.frozen(model), torch.enable_grad(), explicit(model) as record:
        x = batch.pixels.to(device).requires_grad_()
        loss = LOSSES["ce"](model(x), batch.labels.to(device)).sum()
        maps = list(record.values())[-1]
        assert maps.noise is not None
        (u,) = torch.autograd.grad(loss, maps.signal, retain_graph=True)
        if maps.lam.numel() == 1:
            pair = (maps.signal * u).sum(), -maps.scalar_lambda * (maps.noise * u).sum()
        else:  # lambda stands still: what its own change gives is no branch's
            pair = (maps.signal * u).sum(), -(maps.lam.detach() * maps.noise * u).sum()
        g1, g2 = (torch.autograd.grad(s, x, retain_graph=True)[0][0] for s in pair)
    unit = [g / g.norm().clamp_min(1e-30) for g in (g1, g2)]
    names = ("first_direction", "second_direction")
    return {"contribution_cos": float((unit[0] * unit[1]).sum())} | {n: _picture(g) for n, g in zip(names, unit)}


def _picture(pixels: Tensor) -> Any:
    """(C, H, W) -> nested lists (H, W, C)"""
    return pixels.detach().cpu().permute(1, 2, 0).tolist()
