"""A ViT and its differential twin side by side: the same images, the same random starts, the same draws."""

from __future__ import annotations

from typing import Any

import torch

from antiphase import runtime
from antiphase.config import InputError, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.measures.stats import holm, mcnemar
from antiphase.measures.success import DENOMINATORS
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.config import ViTConfig
from antiphase.models.run import Cell, Run, check_fits
from antiphase.results.attack import attack_cells, changed, right
from antiphase.results.config import CompareConfig, budgets
from antiphase.results.look import look_cell
from antiphase.results.measure import alignment_cell, lambda_rows, lipschitz_cell, parameters

Row = dict[str, Any]
Pair = tuple[Run, Run]


def compare(runs: Pair, images: ImageSet, config: CompareConfig, *, device: torch.device | str = "cpu") -> Row:
    """All rows of a comparison, as plain values: what `report` draws and writes about."""
    for run in runs:
        check_fits(run, images)
    if runs[0].folder.resolve() == runs[1].folder.resolve():
        raise InputError(f"{runs[0].folder} cannot be compared with itself: name two runs")
    names = [run.name for run in runs] if runs[0].name != runs[1].name else [str(run.folder) for run in runs]
    attacks = config.attacks()
    attacked = [attack_cells(run, images, attacks, seed=config.seed, device=device) for run in runs]
    looked_at = images.subset(min(config.measure_images or len(images), len(images)), config.seed)
    sides = [
        {"name": name, "folder": str(run.folder)}
        | _about(run, cells)
        | {"attacks": cells}
        | _measured(run, other, looked_at, config, device)
        for name, run, other, cells in zip(names, runs, reversed(runs), attacked)
    ]
    return {
        "format": 2,
        "config": to_plain(config),
        "data": {"name": images.name, "split": images.split, "n": len(images), "fingerprint": images.fingerprint},
        "differences": differences(*runs),
        "denominators": DENOMINATORS,
        "models": sides,
        "paired": _paired(*attacked),
        "looks": [_looked(run, images, config, device) for run in runs],
        "environment": runtime.environment(),
    }


def differences(first: Run, second: Run) -> list[str]:
    """In what, besides their attention, the two runs were made differently."""
    found = []
    for part in ("model", "training", "data"):
        a, b = _flat(first.about[part]), _flat(second.about[part])
        found += [f"{key}: {a.get(key)} and {b.get(key)}" for key in a if a.get(key) != b.get(key)]
    inits = {run.config.init for run in (first, second) if isinstance(run.config, ViTConfig)}
    if inits == {"official"} and first.config.title != second.config.title:
        found.append("initialisation: DiffCLIP's own for differential blocks, timm's for softmax ones")
    return found


def _flat(about: Row, where: str = "") -> Row:
    """What two runs are meant to have in common, by name; the towers of a CLIP field by field."""
    apart = {"attention", "init", "checkpoint_seconds", "origin"}
    flat: Row = {}
    for key, value in about.items():
        if key in ("vision", "text"):
            flat |= _flat(value, f"{key}.")
        elif key not in apart:
            flat[where + key] = value
    return flat


def _about(run: Run, attacked: list[Cell]) -> Row:
    return {
        "title": run.config.title,
        "depth": run.config.depth,
        "parameters": parameters(run),
        **(_zero_shot(run, attacked) if isinstance(run.config, CLIPConfig) else _trained(run)),
        "lambda": lambda_rows(run) if run.config.is_differential else [],
    }


def _trained(run: Run) -> Row:
    log, about = run.log, run.about
    return {
        "epochs": len(log),
        "training_seed": about["training"]["seed"],
        "train_accuracy": log[-1]["train_accuracy"],
        "test_accuracy": log[-1]["test_accuracy"],
        "train_images": about["data"]["train"]["images"],
        "test_images": about["data"]["test"]["images"],
    }


def _zero_shot(run: Run, attacked: list[Cell]) -> Row:
    """It was not trained to tell these classes apart: the accuracy is that on the images compared, by prompts."""
    clean = right(attacked[0])
    return {
        "prompts": run.wording,
        "pair_epochs": len(run.log) if run.about["training"] else None,
        "epochs": None,
        "training_seed": None,
        "train_accuracy": None,
        "test_accuracy": float(clean.mean()),
        "test_images": len(clean),
    }


def _measured(run: Run, other: Run, images: ImageSet, config: CompareConfig, device: torch.device | str) -> Row:
    """Sensitivity and alignment; a softmax model beside it serves as the control of the alignment."""
    common: dict[str, Any] = {"seed": config.seed, "device": device}
    aligned = None
    if run.config.is_differential:
        probes: dict[str, Any] = {"probes": config.probes, "max_probes": config.max_probes}
        twin = not other.config.is_differential and other.config.depth == run.config.depth
        base = other if twin else None
        aligned = alignment_cell(run, images, base=base, **probes, **common)
    return {"lipschitz": lipschitz_cell(run, images, draws=config.draws, **common), "alignment": aligned}


def _looked(run: Run, images: ImageSet, config: CompareConfig, device: torch.device | str) -> Cell | None:
    """A few of the images through the lens at every budget; None where the only budget is 0."""
    eps = [budget for budget in budgets(config.eps) if budget > 0]
    few = images.subset(min(config.look_images, len(images)), config.seed)
    return look_cell(run, few, eps=eps, probes=config.probes, seed=config.seed, device=device) if eps else None


def _paired(first: list[Cell], second: list[Cell]) -> list[Row]:
    """The two models on the same images, budget by budget: did at least one run change the prediction?

    Once over all images and once over those that both models classify correctly. The attack drives away from the true
    label, so an image that is already wrong is pushed deeper into its wrong class: only the second is about robustness.
    """
    rows: list[Row] = [{"eps": cell["eps"]} for cell in first]
    for name in ("all", "both_right"):
        tests = []
        for a, b in zip(first, second):
            chosen = right(a) & right(b) if name == "both_right" else slice(None)
            tests.append(mcnemar(changed(a)[chosen], changed(b)[chosen]))
        for row, test, p in zip(rows, tests, holm([test["p"] for test in tests])):
            row[name] = test | {"p_holm": p}
    return rows
