"""A ViT and its differential twin side by side: the same images, the same random starts, the same draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from antiphase import runtime
from antiphase.attacks import engine
from antiphase.attacks.config import PGD
from antiphase.attacks.within import Linf
from antiphase.config import InputError, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.measures.interval import holm, mcnemar
from antiphase.measures.success import DENOMINATORS
from antiphase.models.checkpoint import Run
from antiphase.models.taps import taps
from antiphase.studies.config import CompareConfig
from antiphase.studies.evaluate import alignment_cell, attack_cell, check_fits, lambda_rows, lipschitz_cell

Row = dict[str, Any]


def compare(first: Run, second: Run, images: ImageSet, config: CompareConfig, *, device: torch.device | str = "cpu") -> Row:
    """All rows of a comparison, as plain values: what `report` draws and writes about."""
    for run in (first, second):
        check_fits(run, images)
    if first.folder.resolve() == second.folder.resolve():
        raise InputError(f"{first.folder} cannot be compared with itself: name two runs")
    looked_at = images.subset(min(config.measure_images or len(images), len(images)), config.seed)
    sides = [_side(run, images, looked_at, config, device) for run in (first, second)]
    return {
        "format": 1,
        "config": to_plain(config),
        "data": {"name": images.name, "split": images.split, "n": len(images), "fingerprint": images.fingerprint},
        "denominators": DENOMINATORS,
        "models": sides,
        "paired": _paired(*(side["attacks"] for side in sides)),
        "pictures": _pictures(first, second, images, config, device),
        "environment": runtime.environment(),
    }


def _side(run: Run, images: ImageSet, looked_at: ImageSet, config: CompareConfig, device: torch.device | str) -> Row:
    attacks = [
        attack_cell(run, images, PGD(within=Linf(e), steps=config.steps, runs=config.runs), seed=config.seed, device=device)
        for e in sorted(config.eps)
    ]
    model = run.config
    about = run.about
    return {
        "name": run.name,
        "title": model.title,
        "depth": model.depth,
        "parameters": sum(p.numel() for p in run.classifier().parameters()),
        "epochs": about["training"]["epochs"],
        "training_seed": about["training"]["seed"],
        "train_accuracy": run.log[-1]["train_accuracy"],
        "test_accuracy": run.log[-1]["test_accuracy"],
        "test_images": about["data"]["test"]["images"],
        "attacks": attacks,
        "lipschitz": lipschitz_cell(run, looked_at, draws=config.draws, seed=config.seed, device=device),
        "alignment": alignment_cell(run, looked_at, probes=config.probes, seed=config.seed, device=device) if model.is_differential else None,
        "lambda": lambda_rows(run),
    }


def _paired(first: list[Row], second: list[Row]) -> list[Row]:
    """The two models on the same images, budget by budget: did at least one run change the prediction?"""
    rows = []
    for a, b in zip(first, second):
        changed = [np.array(cell["images"]["changed_in_run"], dtype=bool).any(axis=0) for cell in (a, b)]
        rows.append({"eps": a["eps"], **mcnemar(*changed)})
    for row, p in zip(rows, holm([row["p"] for row in rows])):
        row["p_holm"] = p
    return rows


# ------------------------------------------------------------------------------------------------- pictures


def _pictures(first: Run, second: Run, images: ImageSet, config: CompareConfig, device: torch.device | str) -> Row | None:
    """One image that both models get right and both lose at the same budget, with every map clean and attacked.

    The smallest such budget of the grid, and of its images the first; None if there is none.
    """
    models = [run.classifier(device) for run in (first, second)]
    for eps in sorted(config.eps):
        attack = PGD(within=Linf(eps), steps=config.steps, runs=config.runs)
        cells = [attack_cell(run, images, attack, seed=config.seed, device=device) for run in (first, second)]
        lost = [_lost(cell) for cell in cells]
        both = np.flatnonzero(lost[0] & lost[1])
        if not len(both):
            continue
        one = images.take(both[:1])
        return {
            "eps": float(eps),
            "image": int(one.ids[0]),
            "label": images.class_names[int(one.labels[0])],
            "models": [_picture(model, one, attack, images.class_names, config.seed, device) for model in models],
        }
    return None


def _lost(cell: Row) -> Any:
    images = cell["images"]
    return (np.array(images["clean"]) == np.array(images["label"])) & np.array(images["changed_in_run"], dtype=bool).any(axis=0)


def _picture(model: torch.nn.Module, one: ImageSet, attack: PGD, names: tuple[str, ...], seed: int, device: torch.device | str) -> Row:
    result = engine.run(model, one, attack, seed=seed, device=device)
    clean = one.all.pixels
    return {
        "clean": _look(model, clean, names, device),
        "attacked": _look(model, result.adversarial, names, device),
    }


def _look(model: torch.nn.Module, pixels: torch.Tensor, names: tuple[str, ...], device: torch.device | str) -> Row:
    """Pixels, prediction, and the last layer's maps (mean over heads) as the class token sees the patches."""
    with torch.no_grad(), taps(model) as record:
        logits = model(pixels.to(device))
    layer, maps = list(record.items())[-1]
    grid = round((maps.signal.shape[-1] - 1) ** 0.5)

    def seen(a: torch.Tensor) -> list[list[float]]:
        values: list[list[float]] = a[0].mean(dim=0)[0, 1:].reshape(grid, grid).cpu().tolist()
        return values

    return {
        "pixels": pixels[0].permute(1, 2, 0).tolist(),
        "prediction": names[int(logits.argmax())],
        "confidence": float(logits.softmax(dim=1).max()),
        "layer": layer,
        "A1": seen(maps.signal),
        "A2": None if maps.noise is None else seen(maps.noise),
        "combined": seen(maps.combined),
        "lambda": float(maps.lam),
    }
