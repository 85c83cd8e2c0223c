"""A trained run under the lens: local Lipschitz, branch alignment and lambda, each as a cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.measures.alignment import Alignment
from antiphase.measures.lipschitz import l_sample
from antiphase.measures.probes import PAPER_EPS, branch_alignment
from antiphase.models.attention import lambdas
from antiphase.models.checkpoint import Run
from antiphase.studies.cells import Cell, cell


def lipschitz_cell(
    run: Run, images: ImageSet, *, draws: int, seed: int = 0, device: torch.device | str = "cpu"
) -> Cell:
    def compute(_: Path) -> Cell:
        layers = l_sample(run.classifier(device), images, draws=draws, seed=seed, device=device)
        return {
            "reading": "L-sample: largest ||A(x+xi)-A(x)||_F / ||xi||_2 over the draws, all heads of a layer; a lower bound",
            "eps": PAPER_EPS,
            "layers": [layer.summary() for layer in layers],
            "per_image_max": {layer.layer: layer.ratios.max(axis=1).tolist() for layer in layers},
        }

    return cell(run, "measures", images, {"measure": "lipschitz", "draws": draws, "seed": seed}, compute)


def alignment_cell(
    run: Run, images: ImageSet, *, probes: int, seed: int = 0, device: torch.device | str = "cpu"
) -> Cell:
    def compute(_: Path) -> Cell:
        layers = branch_alignment(run.classifier(device), images, probes=probes, seed=seed, device=device)
        return {
            "reading": "cosine of the Jacobians of A1 and A2 with respect to the pixels (Frobenius), forward-mode probes",
            "layers": [layer.summary() for layer in layers],
            "per_image": {layer.layer: _per_image(layer) for layer in layers},
        }

    return cell(run, "measures", images, {"measure": "alignment", "probes": probes, "seed": seed}, compute)


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
