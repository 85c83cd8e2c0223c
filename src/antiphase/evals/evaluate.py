"""A run judged by what its features are good for: every task on every data set is a cell; groups have their mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from antiphase.config import InputError
from antiphase.data.catalog import entry_of, load
from antiphase.data.imageset import ImageSet
from antiphase.data.pair_catalog import load_pairs
from antiphase.data.pairs import PairSet
from antiphase.data.readers.mmvp import load_mmvp
from antiphase.evals.config import GROUPS, MEAN_PER_CLASS, NEED_TEXT, EvalConfig, Task, tasks_on
from antiphase.evals.features import Encoder
from antiphase.evals.few_shot import few_shot_rows
from antiphase.evals.mmvp import TEMPLATE, statement_rows
from antiphase.evals.probe import Labelled, probe_rows
from antiphase.evals.published import Pretraining, check_published, published
from antiphase.evals.retrieval import retrieval_rows
from antiphase.evals.rows import Row, mean
from antiphase.evals.zero_shot import zero_shot_rows
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.run import Cell, Run, check_shape, looks_at, stored
from antiphase.models.tokenizer import too_long


@dataclass(frozen=True)
class Judge:
    """A run, the protocols, and how much of which data."""

    run: Run
    config: EvalConfig
    encoder: Encoder
    root: Path | None = None
    images: int | None = None  # of the test split at most; None: all
    train_images: int | None = None  # of the training and of the validation split at most
    allow: tuple[str, ...] = ()  # what may be left out of captioned images (data/leniency.py)

    def load(self, name: str, split: str) -> ImageSet:
        side = looks_at(self.run)[-1] if entry_of(name).resizable else None
        images = load(name, split, root=self.root, image_size=side)
        check_shape(self.run, images)
        wanted = self.images if split == "test" else self.train_images
        return images.at_most(wanted, self.config.seed)

    def load_pairs(self, name: str) -> PairSet:
        pairs = load_pairs(name, self.config.split, root=self.root, image_size=looks_at(self.run)[-1], allow=self.allow)
        check_shape(self.run, pairs)
        return pairs.subset(min(self.images or len(pairs), len(pairs)), self.config.seed)

    def labelled(self, images: ImageSet) -> Labelled:
        return Labelled(self.encoder.class_tokens(images).numpy(), images.labels)


def evaluate(
    run: Run,
    names: Sequence[str],
    tasks: tuple[Task, ...],
    config: EvalConfig,
    *,
    root: Path | None = None,
    images: int | None = None,
    train_images: int | None = None,
    allow: tuple[str, ...] = (),
    pretraining: Pretraining | None = None,
    device: torch.device | str = "cpu",
    keep: bool = True,
) -> Cell:
    """The tasks on the named sets; without tasks those that each set usually serves and this model can do."""
    if pretraining is not None:
        check_published(run.config, str(run.folder))
    judge = Judge(run, config, Encoder(run, device, keep), root, images, train_images, allow)
    plan = [(name, task) for name in names for task in _tasks(run, name, tasks)]
    for task in tasks:
        if task not in {planned for _, planned in plan}:
            raise InputError(f"--tasks {task} is for none of {', '.join(names)}: leave it out or name other data")
    cells = [EVALUATORS[task](judge, name) for name, task in plan]
    rows = [{"data": name, **row} for (name, _), cell in zip(plan, cells) for row in cell["rows"]]
    rows += _means(names, rows)
    for row in rows:
        row["published"] = pretraining and published(row["name"], row["data"], pretraining, run.config.title)
    return {"run": str(run.folder), "title": run.config.title, "pretraining": pretraining, "rows": rows, "cells": cells}


def _tasks(run: Run, name: str, wanted: tuple[Task, ...]) -> tuple[Task, ...]:
    text = isinstance(run.config, CLIPConfig)
    tasks = tasks_on(name, wanted, text=text)
    refused = [task for task in tasks if task in NEED_TEXT and not text]
    if refused:
        raise InputError(
            f"{run.folder} is a {run.config.title}, which has no text tower: {refused[0]} on {name} needs a CLIP"
        )
    return tasks


def _means(names: Sequence[str], rows: list[Cell]) -> list[Cell]:
    """The mean of every row that all sets of a group have."""
    found = []
    for group, members in GROUPS.items():
        if not set(members) <= set(names):
            continue
        by_name: dict[str, list[Row]] = {}
        for row in rows:
            if row["data"] in members:
                by_name.setdefault(row["name"], []).append(Row(**{k: v for k, v in row.items() if k != "data"}))
        for name, parts in by_name.items():
            if len(parts) == len(members):
                of = f"mean of the {len(parts)} sets, each counting the same"
                found.append({"data": group, **asdict(mean(name, parts, of))})
    return found


def _cell(
    judge: Judge, task: Task, data: ImageSet | PairSet, settings: Cell, compute: Callable[[Path], Cell], **words: Any
) -> Cell:
    def answer(folder: Path) -> Cell:
        found = compute(folder)
        return {"task": task, "settings": settings, **found, "rows": [asdict(row) for row in found["rows"]]}

    question = {"eval": task, **settings, "seed": judge.config.seed}
    return stored(judge.run, "evals", data, question, answer, words=words)


def _about(data: ImageSet | PairSet) -> str:
    return f"{data.name} {'' if data.split == 'all' else data.split + ' '}images"


def zero_shot_cell(judge: Judge, name: str) -> Cell:
    images = judge.load(name, "test")

    def compute(_: Path) -> Cell:
        classes = judge.run.class_embeddings(judge.encoder.clip, images)
        labels = torch.from_numpy(images.labels)
        return {"rows": zero_shot_rows(judge.encoder.embeddings(images), classes, labels, _about(images))}

    return _cell(judge, "zero-shot", images, {}, compute, **judge.run.words_for(images))


def probe_cell(judge: Judge, name: str) -> Cell:
    test, train = judge.load(name, "test"), judge.load(name, "train")
    validation = judge.load(name, "val") if "val" in entry_of(name).splits else None
    config, by_class = judge.config, name in MEAN_PER_CLASS

    def compute(folder: Path) -> Cell:
        rows, chosen = probe_rows(
            judge.labelled(train),
            None if validation is None else judge.labelled(validation),
            judge.labelled(test),
            config,
            _about(test),
            by_class=by_class,
            keep=folder / "validation.json",
        )
        return {"rows": rows, "chosen": chosen}

    settings = {"costs": config.costs, "iterations": config.iterations, "by_class": by_class} | _learned(
        train, validation
    )
    return _cell(judge, "probe", test, settings, compute)


def few_shot_cell(judge: Judge, name: str) -> Cell:
    test, train = judge.load(name, "test"), judge.load(name, "train")
    config = judge.config

    def compute(_: Path) -> Cell:
        shown, asked = judge.labelled(train), judge.labelled(test)
        return {"rows": few_shot_rows(shown.features, shown.labels, asked.features, asked.labels, config, _about(test))}

    settings = {key: getattr(config, key) for key in ("ways", "shots", "queries", "episodes", "center")}
    return _cell(judge, "few-shot", test, settings | _learned(train), compute)


def _learned(*parts: ImageSet | None) -> Cell:
    return {"train": [{"n": len(part), "fingerprint": part.fingerprint} for part in parts if part is not None]}


def retrieval_cell(judge: Judge, name: str) -> Cell:
    pairs = judge.load_pairs(name)
    captions = [text for texts in pairs.captions for text in texts]
    cut, note = _cut(judge.run, captions)

    def compute(_: Path) -> Cell:
        counts = [len(texts) for texts in pairs.captions]
        images, texts = judge.encoder.embeddings(pairs), judge.encoder.texts(captions)
        return {"rows": retrieval_rows(images, texts, counts, _about(pairs) + note)}

    left_out = {"skipped": dict(pairs.skipped)} if pairs.skipped else {}
    return _cell(judge, "retrieval", pairs, left_out | cut, compute)


def _cut(run: Run, texts: Sequence[str]) -> tuple[Cell, str]:
    """How many texts are longer than the model reads: for the settings, and in words; nothing where all are read whole."""
    assert isinstance(run.config, CLIPConfig)
    cut = sum(1 for _ in too_long(run.config.text, texts))
    if not cut:
        return {}, ""
    return {"captions cut": cut}, f", {cut:,} captions cut to the {run.config.text.context} tokens that the model reads"


def statements_cell(judge: Judge, name: str) -> Cell:
    del name  # there is one such set; it is small and always used whole
    statements = load_mmvp(root=judge.root, image_size=looks_at(judge.run)[-1])
    images = statements.images
    worded = [TEMPLATE.format(statement) for (statement,) in images.captions]
    cut, note = _cut(judge.run, worded)

    def compute(_: Path) -> Cell:
        rows = statement_rows(judge.encoder.embeddings(images), judge.encoder.texts(worded), statements.categories)
        return {"rows": [replace(row, of=row.of + note) for row in rows]}

    return _cell(judge, "pairs", images, cut, compute)


EVALUATORS: dict[Task, Callable[[Judge, str], Cell]] = {
    "zero-shot": zero_shot_cell,
    "probe": probe_cell,
    "few-shot": few_shot_cell,
    "retrieval": retrieval_cell,
    "pairs": statements_cell,
}
