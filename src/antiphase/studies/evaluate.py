"""One trained run under attack and under the lens. Each result is a cell on disk, keyed by everything it depends on.

A cell that exists is read, not computed again; so an interrupted evaluation goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from antiphase import files, runtime
from antiphase.attacks import engine
from antiphase.attacks.config import PGD
from antiphase.config import InputError, fingerprint, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.measures.alignment import Alignment, branch_alignment
from antiphase.measures.lipschitz import PAPER_EPS, l_sample
from antiphase.measures.success import success_rates
from antiphase.models.attention import lambdas
from antiphase.models.checkpoint import Run

Cell = dict[str, Any]
FORMAT = 1  # raised when a cell of the same question would come out differently


def check_fits(run: Run, images: ImageSet) -> None:
    """The run was trained for images and classes like these."""
    data = run.about["data"]
    if tuple(data["shape"]) != images.shape or tuple(data["class_names"]) != images.class_names:
        raise InputError(
            f"{run.folder} was trained on {data['name']} ({len(data['class_names'])} classes, {_size(data['shape'])}), "
            f"which does not fit {images.name} ({images.classes} classes, {_size(images.shape)})"
        )


def _size(shape: Any) -> str:
    return " x ".join(map(str, shape))


def attack_cell(run: Run, images: ImageSet, attack: PGD, *, seed: int = 0, device: torch.device | str = "cpu") -> Cell:
    """Success rates of one attack on one run, with the verdict on every image."""
    check_fits(run, images)

    def compute() -> Cell:
        result = engine.run(
            run.classifier(device), images, attack, seed=seed, device=device, label=f"{run.name} {attack.within}"
        )
        return {
            "attack": to_plain(attack),
            "eps": float(attack.within.eps),
            "rates": success_rates(result),
            "images": {
                "id": images.ids.tolist(),
                "label": result.labels.tolist(),
                "clean": result.clean_prediction.tolist(),
                "changed_in_run": result.changed_in_run.int().tolist(),
            },
            "forwards_per_image": result.forwards.float().mean().item(),
            "backwards_per_image": result.backwards.float().mean().item(),
        }

    return _cell(run, "attacks", images, {"attack": attack, "seed": seed}, compute)


def lipschitz_cell(
    run: Run, images: ImageSet, *, draws: int, seed: int = 0, device: torch.device | str = "cpu"
) -> Cell:
    check_fits(run, images)

    def compute() -> Cell:
        layers = l_sample(run.classifier(device), images, draws=draws, seed=seed, device=device)
        return {
            "reading": "L-sample: largest ||A(x+xi)-A(x)||_F / ||xi||_2 over the draws, all heads of a layer; a lower bound",
            "eps": PAPER_EPS,
            "layers": [layer.summary() for layer in layers],
            "per_image_max": {layer.layer: layer.ratios.max(axis=1).tolist() for layer in layers},
        }

    return _cell(run, "measures", images, {"measure": "lipschitz", "draws": draws, "seed": seed}, compute)


def alignment_cell(
    run: Run, images: ImageSet, *, probes: int, seed: int = 0, device: torch.device | str = "cpu"
) -> Cell:
    check_fits(run, images)

    def compute() -> Cell:
        layers = branch_alignment(run.classifier(device), images, probes=probes, seed=seed, device=device)
        return {
            "reading": "cosine of the Jacobians of A1 and A2 with respect to the pixels (Frobenius), forward-mode probes",
            "layers": [layer.summary() for layer in layers],
            "per_image": {layer.layer: _per_image(layer) for layer in layers},
        }

    return _cell(run, "measures", images, {"measure": "alignment", "probes": probes, "seed": seed}, compute)


def _per_image(layer: Alignment) -> dict[str, Any]:
    """(image, head) tables; null where a branch is dead and has no direction."""
    tables = dict(zip(("n1", "n2", "ip"), layer.means)) | {"cos": layer.cos, "cos_se": layer.cos_se}
    return {
        name: [[None if np.isnan(v) else float(v) for v in heads] for heads in table] for name, table in tables.items()
    }


def lambda_rows(run: Run) -> list[Cell]:
    """lambda of every differential layer, where it started and how far it moved. Drift is of the mean start: M2.6."""
    model = run.classifier()
    found = lambdas(model)
    if not found:
        raise InputError(f"{run.folder} has no lambda: no layer of this model has two branches (it is all softmax)")
    starts = {name: module.lambda_init for name, module in model.named_modules() if name in found}
    return [
        {"layer": name, "lambda": value, "lambda_init": starts[name], "drift": value - float(starts[name])}
        for name, value in found.items()
    ]


def _cell(run: Run, kind: str, images: ImageSet, question: dict[str, Any], compute: Callable[[], Cell]) -> Cell:
    depends = {"format": FORMAT, "model": run.config, "weights": run.weights_digest, "images": images.fingerprint}
    key = fingerprint(depends | question)
    path: Path = run.folder / kind / f"{key}.json"
    if path.exists():
        stored: Cell = files.read_json(path, "model", "data", "seed", "seconds")
        return stored
    began = time.perf_counter()
    cell = {
        "model": run.config.title,
        "run": run.name,
        "data": {"name": images.name, "split": images.split, "n": len(images), "fingerprint": images.fingerprint},
        "seed": question["seed"],
        **compute(),
        "seconds": round(time.perf_counter() - began, 3),
        "environment": runtime.environment(),
    }
    files.write_json(path, cell)  # refuses NaN and infinity: they are findings to look at, not to file
    return cell
