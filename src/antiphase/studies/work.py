"""The answer to each kind of cell, computed with what `antiphase train`, `attack`, `measure` and `theory` compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from antiphase.config import InputError
from antiphase.data.catalog import entry_of, load
from antiphase.data.imageset import ImageSet
from antiphase.data.pair_catalog import is_captioned, load_pairs
from antiphase.data.pairs import PairSet
from antiphase.evals.config import EvalConfig
from antiphase.measures.interval import rate
from antiphase.measures.success import accuracy, predictions
from antiphase.models.checkpoint import Run
from antiphase.models.prompts import templates
from antiphase.studies import measured, pictures
from antiphase.studies.attacked import attack_cells
from antiphase.studies.audited import audit_cell
from antiphase.studies.evaluated import evaluate
from antiphase.studies.foreign import foreign_answer
from antiphase.studies.ledger import Ledger
from antiphase.studies.plan import Cell, Given, Images, Model, Train, TrainClip
from antiphase.studies.questions import (
    Aligned,
    Attacked,
    Audited,
    Cancelled,
    Correlated,
    Evaluated,
    Foreign,
    Lipschitz,
    Looked,
    OfImages,
    Predicted,
    Propagated,
)
from antiphase.training.contrasting import of_words, train_clip
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
    given: dict[str, Path] = field(default_factory=dict)  # runs of the user's own, by their weights
    loaded: dict[tuple[str, str, int | None], ImageSet] = field(default_factory=dict)

    def split(self, data: str, split: str, size: int | None = None) -> ImageSet:
        if (data, split, size) not in self.loaded:
            images = load(data, split, root=self.data_root, image_size=size)
            self.ledger.check_data(f"{data} at {size}" if size else data, split, images.fingerprint)
            self.loaded[data, split, size] = images
        return self.loaded[data, split, size]

    def images(self, wanted: Images) -> ImageSet:
        images = self.split(wanted.data, wanted.split, wanted.size)
        if wanted.learned is not None:
            images = images.at_most(wanted.learned, wanted.seed)
        return images.at_most(wanted.n, wanted.seed)

    def run(self, cell: Model) -> Run:
        if isinstance(cell, Given):
            if cell.weights not in self.given:
                raise InputError(f"{cell.title} is not among the models given: name it with --clip or --diffclip")
            return Run(self.given[cell.weights])
        folder = self.ledger.run_folder(cell.key)
        if not (folder / "checkpoint.json").exists():
            row = self.ledger.row_path(cell.key)
            raise InputError(f"{folder} is gone, though {row} is there: move that row away, and it is trained again")
        run, row_of = Run(folder), self.ledger.row(cell)
        if row_of is not None and row_of["answer"]["weights_sha256"] != run.weights_digest:
            raise InputError(
                f"{folder} holds other weights than {cell.title} had: put them back, or choose another --ledger"
            )
        return run


def answer(cell: Cell, bench: Bench) -> Answer:
    found = WORK[type(cell)](cell, bench)
    return {name: value for name, value in found.items() if name not in ABOUT}


def data_fingerprints(cell: Cell, bench: Bench) -> dict[str, str]:
    """Of the images that the cell looks at or learns from."""
    if isinstance(cell, Train):
        return dict(zip(("train", "test"), (images.fingerprint for images in _learned(cell, bench))))
    if isinstance(cell, OfImages):
        return {cell.images.split: bench.images(cell.images).fingerprint}
    return {}  # of a CLIP's training and of an evaluation they are in the answer


# ------------------------------------------------------------------------------------------------- kinds


def _learned(cell: Train, bench: Bench) -> tuple[ImageSet, ImageSet]:
    whole = bench.split(cell.data, "train")
    return whole.at_most(cell.images, cell.training.seed), bench.split(cell.data, "test")


def _train(cell: Train, bench: Bench) -> Answer:
    training = cell.training
    if cell.start is not None:
        training = replace(training, start_from=str(bench.run(cell.start).folder))
    folder = bench.ledger.run_folder(cell.key)
    learned, judged = _learned(cell, bench)
    run = train(cell.model, training, learned, judged, folder, device=bench.device, scale=bench.scale)
    log = run.log
    known = accuracy(run.classifier(bench.device), learned, device=bench.device)  # clean; the log has a running mean
    return {
        "title": run.config.title,
        "parameters": measured.parameters(run),
        "weights_sha256": run.weights_digest,
        "train_accuracy": known,
        "test_accuracy": log[-1]["test_accuracy"],
        "train_images": len(learned),
        "test_images": len(judged),
        "log": [{k: v for k, v in row.items() if k != "seconds"} for row in log],
        "lambda": measured.lambda_rows(run) if run.config.is_differential else [],
    }


def _train_clip(cell: TrainClip, bench: Bench) -> Answer:
    train_set, test_set, words = learned_pairs(cell, bench)
    folder = bench.ledger.run_folder(cell.key)
    shared: dict[str, Any] = {"templates": words, "device": bench.device, "scale": bench.scale}
    run = train_clip(cell.model, cell.training, train_set, test_set, folder, **shared)
    log = run.log
    return {
        "title": run.config.title,
        "parameters": measured.parameters(run),
        "weights_sha256": run.weights_digest,
        "pairs": run.about["data"],
        "test_accuracy": log[-1].get("zero_shot_accuracy"),
        "log": [{k: v for k, v in row.items() if k != "seconds"} for row in log],
        "lambda": measured.lambda_rows(run) if run.config.is_differential else [],
    }


def learned_pairs(cell: TrainClip | Foreign, bench: Bench) -> tuple[PairSet, ImageSet | PairSet, tuple[str, ...]]:
    """To learn from, to be judged by, and the words for classes where there are any."""
    side, seed = cell.model.vision.image, cell.training.seed
    if is_captioned(cell.pairs):
        train, test = (load_pairs(cell.pairs, s, root=bench.data_root, image_size=side) for s in ("train", "test"))
        return train.subset(min(cell.images or len(train), len(train)), seed), test, ()
    size = side if entry_of(cell.pairs).resizable and side != entry_of(cell.pairs).size else None
    words = templates(cell.prompts)
    images = bench.split(cell.pairs, "train", size).at_most(cell.images, seed)
    return of_words(images, words), bench.split(cell.pairs, "test", size), words


def _given(cell: Given, bench: Bench) -> Answer:
    run = bench.run(cell)
    rows = measured.lambda_rows(run) if run.config.is_differential else []
    return {"title": run.config.title, "parameters": measured.parameters(run), "lambda": rows}


def _evaluate(cell: Evaluated, bench: Bench) -> Answer:
    config = EvalConfig(costs=cell.costs, seed=cell.seed)
    sizes: dict[str, Any] = {"root": bench.data_root, "images": cell.n, "train_images": cell.train_n}
    found = evaluate(
        Run(bench.run(cell.of).folder, cell.prompts), (cell.data,), (cell.task,), config, **sizes, device=bench.device
    )
    data = [part["data"] for part in found["cells"]]
    return {"rows": found["rows"], "looked_at": data}


def _predict(cell: Predicted, bench: Bench) -> Answer:
    images = bench.images(cell.images)
    model = Run(bench.run(cell.of).folder, cell.prompts).classifier_for(images, bench.device)
    said = predictions(model, images, device=bench.device)
    columns = {"id": images.ids.tolist(), "label": images.labels.tolist(), "clean": said.tolist()}
    return {"images": columns, "accuracy": rate(said == images.labels).plain()}


def _attack(cell: Attacked, bench: Bench) -> Answer:
    run, images = bench.run(cell.of), bench.images(cell.images)
    (found,) = attack_cells(run, images, [cell.attack], protocol="paper", seed=cell.seed, device=bench.device)
    return found


def _measure(function: Callable[..., Answer], *options: str) -> Callable[[Any, Bench], Answer]:
    def measure(cell: OfImages, bench: Bench) -> Answer:
        chosen = {name: getattr(cell, name) for name in options}
        if isinstance(chosen.get("base"), Model):
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
    TrainClip: _train_clip,
    Given: _given,
    Evaluated: _evaluate,
    Foreign: lambda cell, bench: foreign_answer(cell, *learned_pairs(cell, bench), bench.images(cell.judged), bench),
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
