"""A trained run under the lens, each measurement as a cell: summaries per layer, and the raw rows as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.measures.alignment import READINGS, align, controls
from antiphase.measures.branch_pairs import Alignment, Coupling, gamma
from antiphase.measures.cancellation import cancellation, over_layers
from antiphase.measures.common_mode import common_mode
from antiphase.measures.correlation import MEANING, correlation
from antiphase.measures.jacobians_forward import PAPER_EPS, map_norms
from antiphase.measures.lipschitz import LEVELS, Level, l_sample, l_search
from antiphase.measures.perturbations import PERTURBATIONS
from antiphase.measures.residual_stream import block_sigma, propagation
from antiphase.models.attention import lambda_parts, lambdas
from antiphase.models.run import Cell, Run, cell, check_base, identity_of

Device = torch.device | str


def columns(rows: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows with the same names, column by column: how a cell keeps them."""
    table: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            table.setdefault(name, []).append(value)
    return table


LIPSCHITZ: dict[str, tuple[Callable[..., list[Any]], str]] = {
    "sample": (l_sample, "L-sample: largest ||change||_F / ||xi||_2 over the draws, of the {}; a lower bound"),
    "sharp": (l_search, "L-power at x and L-ascent within 8/255, over ||xi||_2, of the {}; lower bounds"),
}


def lipschitz_cell(
    run: Run,
    images: ImageSet,
    *,
    draws: int,
    level: Level = "maps",
    estimator: str = "sample",
    seed: int = 0,
    device: Device = "cpu",
) -> Cell:
    estimate, reading = LIPSCHITZ[estimator]

    def compute(_: Path) -> Cell:
        layers = estimate(
            run.classifier_for(images, device), images, draws=draws, level=level, seed=seed, device=device
        )
        return {
            "estimator": estimator,
            "level": level,
            "reading": reading.format(LEVELS[level]),
            "eps": PAPER_EPS,
            "layers": [layer.summary() for layer in layers],
            "rows": columns(row for layer in layers for row in layer.rows(images.ids)),
        }

    question = {"measure": "lipschitz", "estimator": estimator, "level": level, "draws": draws, "seed": seed}
    return cell(run, "measures", images, question, compute)


def alignment_cell(
    run: Run,
    images: ImageSet,
    *,
    reading: str = "R1",
    probes: int,
    max_probes: int | None = None,
    base: Run | None = None,
    seed: int = 0,
    device: Device = "cpu",
) -> Cell:
    """One reading and its controls: this model before training, heads that do not belong together, a softmax model's heads."""
    check_base(run, base)

    def compute(_: Path) -> Cell:
        model = run.classifier_for(images, device)
        settings: dict[str, Any] = {"probes": probes, "max_probes": max_probes, "seed": seed, "device": device}
        layers = align(model, images, reading, **settings)
        softmax = base.classifier_for(images, device) if base is not None else model
        beside = controls(
            model, images, reading, untrained=run.untrained_for(images, device), softmax=softmax, **settings
        )
        return {
            "reading": reading,
            "meaning": READINGS[reading],
            "layers": [layer.summary() for layer in layers],
            "gamma": _gamma(layers, base, images, settings) if reading == "R1" and base is not None else [],
            "controls": {name: [layer.summary() for layer in found] for name, found in beside.items()},
            "rows": columns(
                {"pairs": pairs} | row
                for pairs, found in {"own": layers, **beside}.items()
                for layer in found
                for row in layer.rows(images.ids)
            ),
        }

    question = {"measure": "alignment", "reading": reading, "probes": probes, "max_probes": max_probes, "seed": seed}
    return cell(run, "measures", images, question | {"base": identity_of(base)}, compute)


def _gamma(layers: list[Alignment], base: Run, images: ImageSet, settings: dict[str, Any]) -> list[Cell]:
    """Against the baseline's layers at the same depth, by the same probes at the same points."""
    sizes = {"probes": settings["probes"], "seed": settings["seed"], "device": settings["device"]}
    norms = map_norms(base.classifier_for(images, settings["device"]), images, around=PAPER_EPS, **sizes)
    first = slice(0, settings["probes"])  # those that every image took
    same = [replace(la, n1=la.n1[..., first], n2=la.n2[..., first], ip=la.ip[..., first]) for la in layers]
    return [gamma(layer, norms[layer.layer]) for layer in same if layer.layer in norms]


def cancellation_cell(
    run: Run,
    images: ImageSet,
    *,
    perturbations: tuple[str, ...],
    eps: float = PAPER_EPS,
    seed: int = 0,
    device: Device = "cpu",
) -> Cell:
    """What the subtraction takes away under noise and under attack of equal size, and whether the two differ (X1)."""

    def compute(_: Path) -> Cell:
        model, coupling = run.classifier_for(images, device), _own(run)
        found = cancellation(
            model, images, perturbations=perturbations, eps=eps, coupling=coupling, seed=seed, device=device
        )
        kinds = {PERTURBATIONS[name].kind for name in perturbations}
        return {
            "eps": eps,
            "coupling": coupling,
            "layers": [layer.summary() for layer in found],
            "over_layers": over_layers(found),
            "common_mode": common_mode(found) if {"noise", "attack"} <= kinds else [],
            "rows": columns(row for layer in found for row in layer.rows(images.ids)),
        }

    question = {"measure": "cancellation", "perturbations": perturbations, "eps": eps, "seed": seed}
    return cell(run, "measures", images, question, compute)


def depth_cell(
    run: Run,
    images: ImageSet,
    *,
    perturbations: tuple[str, ...],
    eps: float = PAPER_EPS,
    seed: int = 0,
    device: Device = "cpu",
) -> Cell:
    """How a perturbation grows or shrinks from block to block."""

    def compute(_: Path) -> Cell:
        model = run.classifier_for(images, device)
        sigma = block_sigma(model, images, seed=seed, device=device)
        found = propagation(model, images, perturbations=perturbations, eps=eps, sigma=sigma, seed=seed, device=device)
        return {
            "eps": eps,
            "curves": [curve.summary() for curve in found],
            "rows": columns(row for curve in found for row in curve.rows(images.ids)),
        }

    question = {"measure": "depth", "perturbations": perturbations, "eps": eps, "seed": seed}
    return cell(run, "measures", images, question, compute)


def correlation_cell(run: Run, images: ImageSet, *, seed: int = 0, device: Device = "cpu") -> Cell:
    """Do the two maps look alike, and do they move alike under noise, blur and JPEG? (C1)"""

    def compute(_: Path) -> Cell:
        coupling = _own(run)
        found = correlation(run.classifier_for(images, device), images, coupling=coupling, seed=seed, device=device)
        return {
            "coupling": coupling,
            "meaning": MEANING,
            "layers": [layer.summary() for layer in found],
            "rows": columns(row for layer in found for row in layer.rows(images.ids)),
        }

    return cell(run, "measures", images, {"measure": "correlation", "seed": seed}, compute)


def _own(run: Run) -> Coupling:
    """A differential model's branches; of a softmax model pairs of heads, so that there is something to compare with."""
    return "branches" if run.config.is_differential else "pseudo"


def parameters(run: Run) -> int:
    return sum(p.numel() for p in run.model().parameters())


def lambda_rows(run: Run) -> list[Cell]:
    """lambda of every differential layer with its parts, and what is odd about it. Drift is from the mean start
    (docs/method.md 2.6)."""
    model = run.model()
    if not lambdas(model):
        raise InputError(f"{run.folder} has no lambda: no layer of this model has two branches (it is all softmax)")
    modules = dict(model.named_modules())
    rows = []
    for name in lambdas(model):
        parts = lambda_parts(modules[name])
        value = parts["lambda"]
        flags = ["lambda <= 0: the subtraction adds"] * (value <= 0) + ["lambda >= 1: rows sum to no more than 0"] * (
            value >= 1
        )
        rows.append({"layer": name, **parts, "drift": value - parts["lambda_init"], "flags": flags})
    return rows
