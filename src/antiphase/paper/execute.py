"""Cells that are missing from a ledger are computed, what they need first. One that fails does not stop the others."""

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
from antiphase.data.catalog import CATALOG, entry_of, load
from antiphase.data.imageset import ImageSet
from antiphase.data.pair_catalog import is_captioned, load_pairs
from antiphase.data.pairs import PairSet
from antiphase.evals.config import EvalConfig
from antiphase.evals.evaluate import evaluate
from antiphase.files import DiskFull, room
from antiphase.measures.success import accuracy
from antiphase.models.prompts import templates
from antiphase.models.run import Run, kept_epoch
from antiphase.paper.cost import Prices, operations, price_group
from antiphase.paper.foreign_encoder import train_and_attack
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import (
    Ask,
    Cell,
    Chosen,
    Evaluate,
    Images,
    Model,
    OtherEncoder,
    Ranking,
    Train,
    TrainClip,
    UserClip,
    ordered,
)
from antiphase.paper.selection import place_of_ranking, ranked
from antiphase.paper.study import Answers
from antiphase.results.ask import ask
from antiphase.results.measure import lambda_rows_if_any, parameters
from antiphase.store import Content, Entry
from antiphase.training.clip_task import pairs_from_prompts, train_clip
from antiphase.training.loop import Interrupted, train

POLL = 0.5  # seconds between looks at cells that another process works on


@dataclass
class Workplace:
    """Where cells are computed: the ledger with its runs, the data, the device."""

    ledger: Ledger
    data_root: Path | None = None
    device: torch.device | str = "cpu"
    scale: str | None = None
    user_clips: dict[str, Path] = field(default_factory=dict)  # runs of the user's own, by their weights
    loaded: dict[tuple[str, str, int | None], ImageSet] = field(default_factory=dict)

    def split(self, data: str, split: str, size: int | None = None) -> ImageSet:
        if (data, split, size) not in self.loaded:
            fixed = None if data in CATALOG else entry_of(data).size  # what cells of a folder were planned with
            images = load(data, split, root=self.data_root, image_size=size or fixed)
            self.ledger.check_data(f"{data} at {size}" if size else data, split, images.fingerprint)
            self.loaded[data, split, size] = images
        return self.loaded[data, split, size]

    def images(self, wanted: Images) -> ImageSet:
        images = self.split(wanted.data, wanted.split, wanted.size)
        if wanted.learned is not None:
            images = images.at_most(wanted.learned, wanted.seed)
        return images.at_most(wanted.n, wanted.seed)

    def folder_of(self, cell: Model) -> Path:
        """Where a model trained here lies; one that was kept on the way, below the whole training."""
        if isinstance(cell, Train) and cell.after is not None:
            return kept_epoch(self.ledger.run_folder(cell.whole.key), cell.after)
        return self.ledger.run_folder(cell.key)

    def run(self, cell: Model, prompts: str | None = None) -> Run:
        """The trained model of a cell, with the weights that its row names."""
        if isinstance(cell, UserClip):
            if cell.weights not in self.user_clips:
                raise InputError(f"{cell.title} is not among the models given: name it with --clip or --diffclip")
            return Run(self.user_clips[cell.weights], prompts)
        folder = self.folder_of(cell)
        if not (folder / "checkpoint.json").exists():
            row_path = self.ledger.rows.path(cell.key)
            raise InputError(
                f"{folder} is gone, though {row_path} is there: move that row away, and it is trained again"
            )
        run, row = Run(folder, prompts), self.ledger.row(cell)
        if row is not None and self.ledger.answer(row)["weights_sha256"] != run.weights_digest:
            raise InputError(
                f"{folder} holds other weights than {cell.title} had: put them back, or choose another --ledger"
            )
        return run

    def train_and_test(self, cell: Train) -> tuple[ImageSet, ImageSet]:
        """The images that a model learns from, and those it is tested on after every epoch."""
        whole = self.split(cell.data, "train")
        return whole.at_most(cell.images, cell.training.seed), self.split(cell.data, "test")

    def pairs(self, cell: TrainClip | OtherEncoder) -> tuple[PairSet, ImageSet | PairSet, tuple[str, ...]]:
        """To learn from, to be tested on, and the words for classes where there are any."""
        side, seed = cell.model.vision.image, cell.training.seed
        if is_captioned(cell.pairs):
            train, test = (load_pairs(cell.pairs, s, root=self.data_root, image_size=side) for s in ("train", "test"))
            return train.subset(min(cell.images or len(train), len(train)), seed), test, ()
        size = side if entry_of(cell.pairs).resizable and side != entry_of(cell.pairs).size else None
        words = templates(cell.prompts)
        images = self.split(cell.pairs, "train", size).at_most(cell.images, seed)
        return pairs_from_prompts(images, words), self.split(cell.pairs, "test", size), words


# ------------------------------------------------------------------------------------------------- the answer of a cell

Answer = Content | Entry  # of a model its own row; of a question, where it is kept in the run's folder


def _train(cell: Train, place: Workplace, folder: Path | None = None) -> Content:
    training = cell.training
    if cell.start is not None:
        training = replace(training, start_from=str(place.run(cell.start).folder))
    train_set, test_set = place.train_and_test(cell)
    if cell.after is not None:
        run = place.run(cell)
    else:
        folder = place.folder_of(cell) if folder is None else folder
        run = train(cell.model, training, train_set, test_set, folder, device=place.device, scale=place.scale)
    clean = accuracy(run.classifier(place.device), train_set, device=place.device)  # the log has a running mean
    return {
        **_trained(run),
        "train_accuracy": clean,
        "test_accuracy": run.log[-1]["test_accuracy"],
        "train_images": len(train_set),
        "test_images": len(test_set),
    }


def _rank(cell: Ranking, place: Workplace) -> Answer:
    return ranked(cell, Answers(place.ledger))


def _training_of(cell: Chosen, place: Workplace) -> Train:
    return cell.training_of(place_of_ranking(cell.ranking, cell.place, Answers(place.ledger)))


def _train_chosen(cell: Chosen, place: Workplace) -> Answer:
    """As if it had been named, in a folder of its own."""
    training = _training_of(cell, place)
    return {**_train(training, place, place.folder_of(cell)), "recipe": training.title}


def _train_clip(cell: TrainClip, place: Workplace) -> Answer:
    train_set, test_set, words = place.pairs(cell)
    folder = place.ledger.run_folder(cell.key)
    shared: dict[str, Any] = {"templates": words, "device": place.device, "scale": place.scale}
    run = train_clip(cell.model, cell.training, train_set, test_set, folder, **shared)
    return {**_trained(run), "pairs": run.about["data"], "test_accuracy": run.log[-1].get("zero_shot_accuracy")}


def _trained(run: Run) -> Content:
    return {
        "title": run.config.title,
        "parameters": parameters(run),
        "weights_sha256": run.weights_digest,
        "log": [{k: v for k, v in row.items() if k != "seconds"} for row in run.log],
        "lambda": lambda_rows_if_any(run),
    }


def _user_clip(cell: UserClip, place: Workplace) -> Answer:
    run = place.run(cell)
    rows = lambda_rows_if_any(run)
    return {"title": run.config.title, "parameters": parameters(run), "lambda": rows}


def _other_encoder(cell: OtherEncoder, place: Workplace) -> Answer:
    folder, tested_on = place.ledger.run_folder(cell.key), place.images(cell.tested_on)
    return train_and_attack(cell, *place.pairs(cell), tested_on, folder, device=place.device, scale=place.scale)


def _evaluate(cell: Evaluate, place: Workplace) -> Answer:
    run, config = place.run(cell.of, cell.prompts), EvalConfig(costs=cell.costs, seed=cell.seed)
    sizes: dict[str, Any] = {"root": place.data_root, "images": cell.n, "train_images": cell.train_n}
    result = evaluate(run, (cell.data,), (cell.task,), config, **sizes, device=place.device)
    return {"rows": result["rows"], "looked_at": [part["data"] for part in result["cells"]]}


def _ask(cell: Ask, place: Workplace) -> Answer:
    base = None if cell.base is None else place.run(cell.base)
    run, images = place.run(cell.of, cell.prompts), place.images(cell.images)
    return ask(run, images, cell.question, base=base, device=place.device)


ANSWERS: dict[type[Cell], Callable[[Any, Workplace], Answer]] = {
    Train: _train,
    Ranking: _rank,
    Chosen: _train_chosen,
    TrainClip: _train_clip,
    UserClip: _user_clip,
    OtherEncoder: _other_encoder,
    Evaluate: _evaluate,
    Ask: _ask,
}


def answer(cell: Cell, place: Workplace) -> Answer:
    return ANSWERS[type(cell)](cell, place)


def data_fingerprints(cell: Cell, place: Workplace) -> dict[str, str]:
    """Of the images that the cell looks at or learns from."""
    if isinstance(cell, Chosen):
        cell = _training_of(cell, place)
    if isinstance(cell, Train):
        return dict(zip(("train", "test"), (images.fingerprint for images in place.train_and_test(cell))))
    if isinstance(cell, Ask):
        return {cell.images.split: place.images(cell.images).fingerprint}
    return {}  # of a CLIP's training and of an evaluation they are in the answer


# ------------------------------------------------------------------------------------------------- what is missing


@dataclass
class Outcome:
    """What became of each cell, by its key."""

    computed: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)  # there already, or finished by another process meanwhile
    failed: dict[str, str] = field(default_factory=dict)  # key -> error
    waiting: list[str] = field(default_factory=list)  # needs one that failed, or data that are not here

    @property
    def settled(self) -> set[str]:
        return {*self.computed, *self.present, *self.failed, *self.waiting}


def run(
    cells: Sequence[Cell],
    place: Workplace,
    absent: dict[str, str] | None = None,
    *,
    answer: Callable[..., Answer] = answer,
    workers: int = 1,
) -> Outcome:
    """Do what is missing. `absent` says of data sets that are not here where they were looked for: what needs them waits.

    Of two processes on one ledger each takes cells that the other is not at; every cell is completed once. What another one
    is at is waited for, and if it fails there meanwhile, it has failed here too. `workers`: so many processes do this at once,
    and each speaks of its own cells only.
    """
    ledger, plan, outcome = place.ledger, ordered(cells), Outcome()
    rows = [row for row in map(ledger.row, plan) if row is not None]  # a damaged one is named before anything is done
    prices = Prices.learned((row["provenance"] for row in rows), gpu=str(place.device) != "cpu")
    todo = [cell for cell in plan if not ledger.has(cell)]
    outcome.present = [cell.key for cell in plan if ledger.has(cell)]
    earlier = {cell.key: ledger.failure(cell) for cell in todo}  # failures of runs before this one: to be tried again
    with console.progress("cells", len(plan), len(plan) - len(todo), show=workers == 1, paced=False) as advance:
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
                        todo.remove(cell)
                        if (elsewhere := _elsewhere(cell, ledger, outcome, earlier)) and workers > 1:
                            continue
                        if not elsewhere:
                            _settle(cell, place, outcome, answer, prices)
                        left = [other for other in todo if not ledger.has(other)]
                        _say(cell, outcome, len(plan), left, prices, advance, elsewhere, workers)
            if todo and len(todo) == before:
                time.sleep(POLL)  # another process has what is left
    return outcome


def _state(cell: Cell, outcome: Outcome, absent: dict[str, str]) -> str:
    settled = outcome.settled
    if any(need.key in outcome.failed or need.key in outcome.waiting for need in cell.needs):
        return "waiting"
    if any(data in absent for data in cell.data_sets):
        return "waiting"
    return "ready" if all(need.key in settled for need in cell.needs) else "not yet"


def _elsewhere(cell: Cell, ledger: Ledger, outcome: Outcome, earlier: dict[str, Content | None]) -> bool:
    """Whether another process has finished the cell meanwhile, or tried and failed."""
    if ledger.has(cell):
        outcome.present.append(cell.key)
        return True
    failure = ledger.failure(cell)
    if failure is None or failure == earlier[cell.key]:
        return False
    outcome.failed[cell.key] = str(failure["error"])
    return True


def _settle(cell: Cell, place: Workplace, outcome: Outcome, answer: Callable[..., Answer], prices: Prices) -> None:
    """The cell is ours: compute and file it, else file why not."""
    ledger = place.ledger
    clock, processor = time.perf_counter(), time.process_time()
    began = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        with room(ledger.run_folder(cell.key)):
            result = answer(cell, place)
        seconds = time.perf_counter() - clock
        row = row_of(cell, place, result, (seconds, time.process_time() - processor), began)
        if ledger.has(cell):  # this process stood still, its lease was taken over, and another has finished the cell
            outcome.present.append(cell.key)
            return
        ledger.keep(cell, row)
    except (DiskFull, Interrupted):
        raise
    except Exception as error:
        sentence = " ".join(str(error).split()) or type(error).__name__
        ledger.fail(cell, _failure(cell, error, sentence, began))
        outcome.failed[cell.key] = sentence
        return
    prices.learn(price_group(cell), operations(cell), seconds)
    outcome.computed.append(cell.key)


def row_of(cell: Cell, place: Workplace, result: Answer, took: tuple[float, float], began: str) -> dict[str, Any]:
    """`took`: seconds by the clock, and of the processors, which a busy machine does not lengthen."""
    kept = {"kept": place.ledger.reference(result)} if isinstance(result, Entry) else {"answer": result}
    return {
        "key": cell.key,
        "kind": cell.kind,
        "title": cell.title,
        "scale": place.scale,
        "config": to_plain(cell),
        "needs": [need.key for need in cell.needs],
        **kept,
        "provenance": {
            "environment": runtime.environment(),
            "code": runtime.code_version(),
            "machine": {"platform": platform.platform(), "processors": os.cpu_count(), "device": str(place.device)},
            "seeds": _seeds(cell),
            "data": data_fingerprints(cell, place),
            "began": began,
            "seconds": round(took[0], 3),
            "processor_seconds": round(took[1], 3),
            "operations": operations(cell),
            "group": price_group(cell),
        },
    }


def _seeds(cell: Cell) -> dict[str, int]:
    training = getattr(getattr(cell, "of", cell), "training", None)  # a published model has none
    seeds = {} if training is None else {"training": training.seed}
    drawn = cell.question.seed if isinstance(cell, Ask) else getattr(cell, "seed", None)
    return seeds if drawn is None else seeds | {"draws": drawn}


def _failure(cell: Cell, error: Exception, sentence: str, began: str) -> dict[str, Any]:
    return {
        "key": cell.key,
        "title": cell.title,
        "config": to_plain(cell),
        "error": sentence,
        "type": type(error).__name__,
        "traceback": traceback.format_exc(),
        "began": began,
    }


def _say(
    cell: Cell,
    outcome: Outcome,
    cells: int,
    todo: list[Cell],
    prices: Prices,
    advance: Callable[[int, str], None],
    elsewhere: bool,
    workers: int,
) -> None:
    left = console.duration(sum(map(prices.seconds, todo)) / workers)
    basis = "" if prices.cells else " (no cell is finished yet)"
    done = f"[{cells - len(todo)}/{cells}]"
    if cell.key in outcome.failed:
        console.say(f"{done} failed: {cell.title}: {outcome.failed[cell.key]}")
    else:
        who = " (by another process)" if elsewhere else ""
        console.say(f"{done} {cell.title}{who}; about {left} left{basis}")
    advance(1, f"about {left} left")
