"""The answer to each kind of cell, computed with what `antiphase train`, `attack`, `measure` and `theory` compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from antiphase.config import InputError
from antiphase.data.catalog import load
from antiphase.data.imageset import ImageSet
from antiphase.measures.interval import rate
from antiphase.models.checkpoint import Run
from antiphase.runtime import frozen
from antiphase.studies import measured, pictures
from antiphase.studies.attacked import attack_cells
from antiphase.studies.audited import audit_cell
from antiphase.studies.ledger import Ledger
from antiphase.studies.plan import (
    Aligned,
    Attacked,
    Audited,
    Cancelled,
    Cell,
    Correlated,
    Images,
    Lipschitz,
    Looked,
    OfImages,
    Predicted,
    Propagated,
    Train,
)
from antiphase.training.loop import train

Answer = dict[str, Any]
ABOUT = (
    "model",
    "run",
    "data",
    "seed",
    "seconds",
    "environment",
    "prompts",
)  # in the row's config and provenance already


@dataclass
class Bench:
    """Where cells are worked on: the ledger with its runs, the data, the device."""

    ledger: Ledger
    data_root: Path | None = None
    device: torch.device | str = "cpu"
    scale: str | None = None
    loaded: dict[tuple[str, str], ImageSet] = field(default_factory=dict)

    def split(self, data: str, split: str) -> ImageSet:
        if (data, split) not in self.loaded:
            images = load(data, split, root=self.data_root)
            self.ledger.check_data(data, split, images.fingerprint)
            self.loaded[data, split] = images
        return self.loaded[data, split]

    def images(self, wanted: Images) -> ImageSet:
        images = self.split(wanted.data, wanted.split)
        if wanted.learned is not None:
            images = images.at_most(wanted.learned, wanted.seed)
        return images.at_most(wanted.n, wanted.seed)

    def run(self, cell: Train) -> Run:
        folder = self.ledger.run_folder(cell.key)
        if not (folder / "checkpoint.json").exists():
            row = self.ledger.row_path(cell.key)
            raise InputError(f"{folder} is gone, though {row} is there: move that row away, and it is trained again")
        return Run(folder)


def answer(cell: Cell, bench: Bench) -> Answer:
    found = WORK[type(cell)](cell, bench)
    return {name: value for name, value in found.items() if name not in ABOUT}


def data_fingerprints(cell: Cell, bench: Bench) -> dict[str, str]:
    """Of the images that the cell looks at or learns from."""
    if isinstance(cell, Train):
        return dict(zip(("train", "test"), (images.fingerprint for images in _learned(cell, bench))))
    assert isinstance(cell, OfImages)
    return {cell.images.split: bench.images(cell.images).fingerprint}


# ------------------------------------------------------------------------------------------------- kinds


def _learned(cell: Train, bench: Bench) -> tuple[ImageSet, ImageSet]:
    whole = bench.split(cell.data, "train")
    return whole.at_most(cell.images, cell.training.seed), bench.split(cell.data, "test")


def _train(cell: Train, bench: Bench) -> Answer:
    training = cell.training
    if cell.start is not None:
        training = replace(training, start_from=str(bench.run(cell.start).folder))
    folder = bench.ledger.run_folder(cell.key)
    run = train(cell.model, training, *_learned(cell, bench), folder, device=bench.device, scale=bench.scale)
    log = run.log
    return {
        "title": run.config.title,
        "parameters": measured.parameters(run),
        "weights_sha256": run.weights_digest,
        "train_accuracy": log[-1]["train_accuracy"],
        "test_accuracy": log[-1]["test_accuracy"],
        "log": [{k: v for k, v in row.items() if k != "seconds"} for row in log],
        "lambda": measured.lambda_rows(run) if run.config.is_differential else [],
    }


def _predict(cell: Predicted, bench: Bench) -> Answer:
    images = bench.images(cell.images)
    model = bench.run(cell.of).classifier_for(images, bench.device)
    with frozen(model), torch.no_grad():
        clean = [model(batch.pixels.to(bench.device)).argmax(dim=1).cpu() for batch in images.batches(256)]
    said = torch.cat(clean).numpy()
    columns = {"id": images.ids.tolist(), "label": images.labels.tolist(), "clean": said.tolist()}
    return {"images": columns, "accuracy": rate(said == images.labels).plain()}


def _attack(cell: Attacked, bench: Bench) -> Answer:
    run, images = bench.run(cell.of), bench.images(cell.images)
    (found,) = attack_cells(run, images, [cell.attack], protocol="paper", seed=cell.seed, device=bench.device)
    return found


def _measure(function: Callable[..., Answer], *options: str) -> Callable[[Any, Bench], Answer]:
    def measure(cell: OfImages, bench: Bench) -> Answer:
        chosen = {name: getattr(cell, name) for name in options}
        if isinstance(chosen.get("base"), Train):
            chosen["base"] = bench.run(chosen["base"])
        common: dict[str, Any] = {"seed": cell.seed, "device": bench.device}
        return function(bench.run(cell.of), bench.images(cell.images), **chosen, **common)

    return measure


def _audit(cell: Audited, bench: Bench) -> Answer:
    sizes: dict[str, Any] = {"probes": cell.probes, "draws": cell.draws, "seed": cell.seed, "device": bench.device}
    return audit_cell(bench.run(cell.of), bench.run(cell.base), bench.images(cell.images), **sizes)


def _look(cell: Looked, bench: Bench) -> Answer:
    images = bench.images(cell.images)
    model = bench.run(cell.of).classifier_for(images, bench.device)
    return pictures.branches(model, images, cell.attack, seed=cell.seed, device=bench.device)


WORK: dict[type[Cell], Callable[[Any, Bench], Answer]] = {
    Train: _train,
    Predicted: _predict,
    Attacked: _attack,
    Lipschitz: _measure(measured.lipschitz_cell, "draws", "estimator", "level"),
    Aligned: _measure(measured.alignment_cell, "base", "reading", "probes", "max_probes"),
    Cancelled: _measure(measured.cancellation_cell, "perturbations", "eps"),
    Propagated: _measure(measured.depth_cell, "perturbations", "eps"),
    Correlated: _measure(measured.correlation_cell),
    Audited: _audit,
    Looked: _look,
}
