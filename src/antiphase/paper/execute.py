"""The answer to each kind of cell, computed with what `antiphase train`, `attack`, `measure` and `theory` compute."""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from antiphase import console, runtime
from antiphase.config import InputError, to_plain
from antiphase.data.catalog import entry_of, load
from antiphase.data.imageset import ImageSet
from antiphase.data.pair_catalog import is_captioned, load_pairs
from antiphase.data.pairs import PairSet
from antiphase.evals.config import EvalConfig
from antiphase.evals.evaluate import evaluate
from antiphase.measures.stats import rate
from antiphase.measures.success import accuracy, predictions
from antiphase.models.prompts import templates
from antiphase.models.run import Run
from antiphase.paper import execute
from antiphase.paper.cost import Prices, duration, group, operations
from antiphase.paper.foreign_encoder import foreign_answer
from antiphase.paper.ledger import DiskFull, Ledger
from antiphase.paper.questions import (
    Aligned,
    Attacked,
    Audited,
    Cancelled,
    Cell,
    Correlated,
    Evaluated,
    Foreign,
    Given,
    Images,
    Lipschitz,
    Looked,
    Model,
    OfImages,
    Predicted,
    Propagated,
    Train,
    TrainClip,
    data_of,
    ordered,
)
from antiphase.results import branch_picture, measure
from antiphase.results.attack import attack_cells
from antiphase.results.theory import audit_cell
from antiphase.training.clip_task import pairs_from_prompts, train_clip
from antiphase.training.loop import Interrupted, train

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
        "parameters": measure.parameters(run),
        "weights_sha256": run.weights_digest,
        "train_accuracy": known,
        "test_accuracy": log[-1]["test_accuracy"],
        "train_images": len(learned),
        "test_images": len(judged),
        "log": [{k: v for k, v in row.items() if k != "seconds"} for row in log],
        "lambda": measure.lambda_rows(run) if run.config.is_differential else [],
    }


def _train_clip(cell: TrainClip, bench: Bench) -> Answer:
    train_set, test_set, words = learned_pairs(cell, bench)
    folder = bench.ledger.run_folder(cell.key)
    shared: dict[str, Any] = {"templates": words, "device": bench.device, "scale": bench.scale}
    run = train_clip(cell.model, cell.training, train_set, test_set, folder, **shared)
    log = run.log
    return {
        "title": run.config.title,
        "parameters": measure.parameters(run),
        "weights_sha256": run.weights_digest,
        "pairs": run.about["data"],
        "test_accuracy": log[-1].get("zero_shot_accuracy"),
        "log": [{k: v for k, v in row.items() if k != "seconds"} for row in log],
        "lambda": measure.lambda_rows(run) if run.config.is_differential else [],
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
    return pairs_from_prompts(images, words), bench.split(cell.pairs, "test", size), words


def _given(cell: Given, bench: Bench) -> Answer:
    run = bench.run(cell)
    rows = measure.lambda_rows(run) if run.config.is_differential else []
    return {"title": run.config.title, "parameters": measure.parameters(run), "lambda": rows}


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
    return branch_picture.branches(model, images, cell.attack, seed=cell.seed, device=bench.device)


WORK: dict[type[Cell], Callable[[Any, Bench], Answer]] = {
    Train: _train,
    TrainClip: _train_clip,
    Given: _given,
    Evaluated: _evaluate,
    Foreign: lambda cell, bench: foreign_answer(cell, *learned_pairs(cell, bench), bench.images(cell.judged), bench),
    Predicted: _predict,
    Attacked: _attack,
    Lipschitz: _measure(measure.lipschitz_cell, "draws", "estimator", "level"),
    Aligned: _measure(measure.alignment_cell, "base", "reading", "probes", "max_probes"),
    Cancelled: _measure(measure.cancellation_cell, "perturbations", "eps"),
    Propagated: _measure(measure.depth_cell, "perturbations", "eps"),
    Correlated: _measure(measure.correlation_cell),
    Audited: _audit,
    Looked: _look,
}


# ------------------------------------------------------------------------------------------------- studies.runner
# Cells that are missing from a ledger are computed, what they need first. One that fails does not stop the others.


POLL = 0.5  # seconds between looks at cells that another process works on


@dataclass
class Outcome:
    """What became of each cell, by its key."""

    computed: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)  # there already, or finished by another process meanwhile
    failed: dict[str, str] = field(default_factory=dict)  # key -> error
    waiting: list[str] = field(default_factory=list)  # needs one that failed, or data that are not here

    @property
    def settled(self) -> set[str]:
        return {*self.computed, *self.found, *self.failed, *self.waiting}


def run(
    cells: Sequence[Cell],
    bench: Bench,
    absent: dict[str, str] | None = None,
    *,
    answer: Callable[..., Any] | None = None,
) -> Outcome:
    """Do what is missing. `absent` says of data sets that are not here where they were looked for: what needs them waits.

    Of two processes on one ledger each takes cells that the other is not at; every cell is completed once.
    """
    ledger, plan, outcome = bench.ledger, ordered(cells), Outcome()
    compute = answer or execute.answer
    rows = [row for row in map(ledger.row, plan) if row is not None]  # a damaged one is named before anything is done
    prices = Prices.learned(rows)
    todo = [cell for cell in plan if not ledger.has(cell)]
    outcome.found = [cell.key for cell in plan if ledger.has(cell)]
    with console.progress("cells", len(plan), len(plan) - len(todo)) as advance:
        while todo:
            before = len(todo)
            for cell in list(todo):
                state = _state(cell, outcome, absent or {})
                if state == "not yet":
                    continue
                if state == "waiting":
                    outcome.waiting.append(cell.key)
                    todo.remove(cell)
                    advance(1, "")
                    continue
                with ledger.held(cell) as mine:
                    if mine:
                        _settle(cell, bench, outcome, compute, prices)
                        todo.remove(cell)
                        _tell(cell, outcome, plan, todo, prices, advance)
            if todo and len(todo) == before:
                time.sleep(POLL)  # another process has what is left
    return outcome


def _state(cell: Cell, outcome: Outcome, absent: dict[str, str]) -> str:
    settled = outcome.settled
    if any(need.key in outcome.failed or need.key in outcome.waiting for need in cell.needs):
        return "waiting"
    if any(data in absent for data in data_of(cell)):
        return "waiting"
    return "ready" if all(need.key in settled for need in cell.needs) else "not yet"


def _settle(cell: Cell, bench: Bench, outcome: Outcome, compute: Callable[..., Any], prices: Prices) -> None:
    """The cell is ours: look again, else compute and file it, else file why not."""
    ledger = bench.ledger
    if ledger.has(cell):
        outcome.found.append(cell.key)
        return
    began, processor = time.perf_counter(), time.process_time()
    wall = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        with ledger.room():
            found = compute(cell, bench)
        seconds = time.perf_counter() - began
        ledger.keep(cell, row_of(cell, bench, found, (seconds, time.process_time() - processor), wall))
    except (DiskFull, Interrupted):
        raise
    except Exception as error:
        told = " ".join(str(error).split()) or type(error).__name__
        ledger.fail(cell, _failure(cell, error, told, wall))
        outcome.failed[cell.key] = told
        return
    prices.see(group(cell), operations(cell), seconds)
    outcome.computed.append(cell.key)


def row_of(cell: Cell, bench: Bench, found: Any, took: tuple[float, float], began: str) -> dict[str, Any]:
    """`took`: seconds by the clock, and of the processors, which a busy machine does not lengthen."""
    return {
        "key": cell.key,
        "kind": cell.kind,
        "title": cell.title,
        "scale": bench.scale,
        "config": to_plain(cell),
        "needs": [need.key for need in cell.needs],
        "answer": found,
        "provenance": {
            "environment": runtime.environment(),
            "machine": {"platform": platform.platform(), "processors": os.cpu_count(), "device": str(bench.device)},
            "seeds": _seeds(cell),
            "data": execute.data_fingerprints(cell, bench),
            "began": began,
            "seconds": round(took[0], 3),
            "processor_seconds": round(took[1], 3),
            "operations": operations(cell),
            "group": group(cell),
        },
    }


def _seeds(cell: Cell) -> dict[str, int]:
    training = getattr(getattr(cell, "of", cell), "training", None)  # a published model has none
    seeds = {} if training is None else {"training": training.seed}
    return seeds | ({"draws": cell.seed} if hasattr(cell, "seed") else {})


def _failure(cell: Cell, error: Exception, told: str, began: str) -> dict[str, Any]:
    return {
        "key": cell.key,
        "title": cell.title,
        "config": to_plain(cell),
        "error": told,
        "type": type(error).__name__,
        "traceback": traceback.format_exc(),
        "began": began,
    }


def _tell(
    cell: Cell,
    outcome: Outcome,
    plan: list[Cell],
    todo: list[Cell],
    prices: Prices,
    advance: Callable[[int, str], None],
) -> None:
    left = duration(sum(map(prices.seconds, todo)))
    learned = "" if prices.cells else " (no cell is finished yet)"
    done = len(plan) - len(todo)
    if cell.key in outcome.failed:
        console.say(f"[{done}/{len(plan)}] failed: {cell.title}: {outcome.failed[cell.key]}")
    else:
        elsewhere = " (by another process)" if cell.key in outcome.found else ""
        console.say(f"[{done}/{len(plan)}] {cell.title}{elsewhere}; about {left} left{learned}")
    advance(1, f"about {left} left")
