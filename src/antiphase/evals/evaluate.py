"""Evaluate a run: every task on every data set, each computed once and kept with the run, and the means over groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from antiphase import processes
from antiphase.config import InputError
from antiphase.data.catalog import CATALOG, entry_of, find_folder, load
from antiphase.data.corruption_table import applicable
from antiphase.data.imageset import ImageSet
from antiphase.data.pair_catalog import load_pairs
from antiphase.data.pairs import PairSet
from antiphase.data.readers.mmvp import Statements, load_mmvp
from antiphase.evals.config import (
    BY_PROMPTS,
    CORRUPTED,
    GROUPS,
    MEAN_PER_CLASS,
    NEED_TEXT,
    PAIRS,
    EvalConfig,
    EvalQuestion,
    Task,
    tasks_on,
)
from antiphase.evals.corrupted import summary_rows, under_corruption
from antiphase.evals.features import Encoder
from antiphase.evals.few_shot import few_shot_rows
from antiphase.evals.mmvp import TEMPLATE, statement_rows
from antiphase.evals.probe import LabelledFeatures, probe_rows
from antiphase.evals.published import Pretraining, check_published, published
from antiphase.evals.retrieval import retrieval_rows
from antiphase.evals.rows import Row, mean
from antiphase.evals.zero_shot import zero_shot_rows
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.run import Run, check_shape
from antiphase.models.tokenizer import too_long
from antiphase.store import Content


@dataclass(frozen=True)
class Evaluation:
    """A run, the protocols, and how much of which data: what every evaluator gets."""

    run: Run
    config: EvalConfig
    encoder: Encoder
    root: Path | None = None
    images: int | None = None  # of the test split at most; None: all
    train_images: int | None = None  # of the training and of the validation split at most
    allow: tuple[str, ...] = ()  # what may be left out of captioned images (data/tolerance.py)

    def load(self, name: str, split: str) -> ImageSet:
        """A split of a data set with classes, in the model's image size, at most as many images as wanted."""
        side = self.run.input_shape[-1] if entry_of(name).resizable else None
        images = load(name, split, root=self.root, image_size=side)
        check_shape(self.run, images)
        wanted = self.images if split == "test" else self.train_images
        return images.at_most(wanted, self.config.seed)

    def load_pairs(self, name: str) -> PairSet:
        """A data set of captioned images, in the model's image size, at most as many images as wanted."""
        pairs = load_pairs(
            name, self.config.split, root=self.root, image_size=self.run.input_shape[-1], allow=self.allow
        )
        check_shape(self.run, pairs)
        return pairs.subset(min(self.images or len(pairs), len(pairs)), self.config.seed)

    def features(self, images: ImageSet) -> LabelledFeatures:
        """The class token of every image, with its label."""
        return LabelledFeatures(self.encoder.class_tokens(images).numpy(), images.labels)


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
) -> Content:
    """The tasks on the named sets; without tasks those that each set usually serves and this model can do."""
    if pretraining is not None:
        check_published(run.config, str(run.folder))
    evaluation = Evaluation(run, config, Encoder(run, device, keep), root, images, train_images, allow)
    plan = [step for name in names for step in _planned(run, name, tasks)]
    for task in tasks:
        if task not in {planned for _, planned in plan}:
            raise InputError(f"--tasks {task} is for none of {', '.join(names)}: leave it out or name other data")
    cells = [EVALUATORS[task](evaluation, name) for name, task in plan]
    rows = [{"data": name, **row} for (name, _), cell in zip(plan, cells) for row in cell["rows"]]
    rows += _means(names, rows)
    for row in rows:
        row["published"] = pretraining and published(row["name"], row["data"], pretraining, run.config.title)
    about: Content = {"run": str(run.folder), "title": run.config.title, "pretraining": pretraining}
    if run.by_prompts and any(task in BY_PROMPTS for _, task in plan):
        about["classes_by"] = {str(run.folder): run.classes_by}
    return {**about, "rows": rows, "cells": cells}


def _planned(run: Run, name: str, wanted: tuple[Task, ...]) -> list[tuple[str, Task]]:
    """What is done for a name: data set and task; `corrupted` is a task on the data that the run was trained on."""
    if name != CORRUPTED:
        return [(name, task) for task in _tasks(run, name, wanted)]
    data = run.about["data"] or {}
    if not data.get("class_names") or not data.get("origin"):
        raise InputError(
            f"{run.folder} does not say on which classes it was trained: name images, as in --on cifar10 --tasks corrupted"
        )
    return [(str(data["origin"]), "corrupted")]


def _tasks(run: Run, name: str, wanted: tuple[Task, ...]) -> tuple[Task, ...]:
    """The tasks on this data set; refused where the model has no text tower and the task needs one."""
    text = isinstance(run.config, CLIPConfig)
    tasks = tasks_on(name, wanted, text=text)
    refused = [task for task in tasks if task in NEED_TEXT and not text]
    if refused:
        raise InputError(
            f"{run.folder} is a {run.config.title}, which has no text tower: {refused[0]} on {name} needs a CLIP"
        )
    return tasks


def _means(names: Sequence[str], rows: list[Content]) -> list[Content]:
    """The mean over each group whose data sets were all evaluated, of every row that all of them have."""
    means = []
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
                means.append({"data": group, **asdict(mean(name, parts, of))})
    return means


def _stored(
    evaluation: Evaluation,
    task: Task,
    data: ImageSet | PairSet,
    settings: Content,
    compute: Callable[[Path], Content],
    **words: Any,
) -> Content:
    """The result of one task on one data set, computed unless it is kept with the run; `words` are a CLIP's prompts."""

    def answer(folder: Path) -> Content:
        result = compute(folder)
        return {"task": task, "settings": settings, **result, "rows": [asdict(row) for row in result["rows"]]}

    question = EvalQuestion(task=task, settings=settings, seed=evaluation.config.seed)
    return evaluation.run.answer(question, data, answer, words=words).content


def _about(data: ImageSet | PairSet) -> str:
    """The images in words, as in "cifar10 test images"."""
    return f"{data.name} {'' if data.split == 'all' else data.split + ' '}images"


def _zero_shot(evaluation: Evaluation, name: str) -> Content:
    images = evaluation.load(name, "test")

    def compute(_: Path) -> Content:
        classes = evaluation.run.class_embeddings(evaluation.encoder.clip, images)
        labels = torch.from_numpy(images.labels)
        return {"rows": zero_shot_rows(evaluation.encoder.embeddings(images), classes, labels, _about(images))}

    return _stored(evaluation, "zero-shot", images, {}, compute, **evaluation.run.words_for(images))


def _probe(evaluation: Evaluation, name: str) -> Content:
    test, train = evaluation.load(name, "test"), evaluation.load(name, "train")
    validation = evaluation.load(name, "val") if "val" in entry_of(name).splits else None
    config, by_class = evaluation.config, name in MEAN_PER_CLASS

    def compute(folder: Path) -> Content:
        learned, tested = evaluation.features(train), evaluation.features(test)
        held_out = None if validation is None else evaluation.features(validation)
        settings: dict[str, Any] = {"by_class": by_class, "keep": folder / "validation.json"}
        rows, chosen = processes.current().once(
            lambda: probe_rows(learned, held_out, tested, config, _about(test), **settings)
        )
        return {"rows": rows, "chosen": chosen}

    settings = {"costs": config.costs, "iterations": config.iterations, "by_class": by_class} | _training_data(
        train, validation
    )
    return _stored(evaluation, "probe", test, settings, compute)


def _few_shot(evaluation: Evaluation, name: str) -> Content:
    test, train = evaluation.load(name, "test"), evaluation.load(name, "train")
    config = evaluation.config

    def compute(_: Path) -> Content:
        shots, queries = evaluation.features(train), evaluation.features(test)
        four = shots.features, shots.labels, queries.features, queries.labels
        return {"rows": processes.current().once(lambda: few_shot_rows(*four, config, _about(test)))}

    settings = {key: getattr(config, key) for key in ("ways", "shots", "queries", "episodes", "center")}
    return _stored(evaluation, "few-shot", test, settings | _training_data(train), compute)


def _training_data(*parts: ImageSet | None) -> Content:
    """What the answer depends on besides the test images."""
    return {"train": [{"n": len(part), "fingerprint": part.fingerprint} for part in parts if part is not None]}


def _retrieval(evaluation: Evaluation, name: str) -> Content:
    pairs = evaluation.load_pairs(name)
    captions = [text for texts in pairs.captions for text in texts]
    cut, note = _cut(evaluation.run, captions)

    def compute(_: Path) -> Content:
        counts = [len(texts) for texts in pairs.captions]
        images, texts = evaluation.encoder.embeddings(pairs), evaluation.encoder.texts(captions)
        return {"rows": retrieval_rows(images, texts, counts, _about(pairs) + note)}

    skipped = {"skipped": dict(pairs.skipped)} if pairs.skipped else {}
    return _stored(evaluation, "retrieval", pairs, skipped | cut, compute)


def _cut(run: Run, texts: Sequence[str]) -> tuple[Content, str]:
    """How many texts are longer than the model reads, for the stored settings and as a sentence; empty where none is."""
    assert isinstance(run.config, CLIPConfig)
    cut = sum(1 for _ in too_long(run.config.text, texts))
    if not cut:
        return {}, ""
    return {"captions cut": cut}, f", {cut:,} captions cut to the {run.config.text.context} tokens that the model reads"


def _statements(evaluation: Evaluation, name: str) -> Statements:
    """Pairs of images and statements; they are few, and always used whole."""
    if name == PAIRS:
        return load_mmvp(root=evaluation.root, image_size=evaluation.run.input_shape[-1])
    from antiphase.data.readers.tiles import load_tile_statements

    entry = CATALOG[name]
    return load_tile_statements(name, find_folder(name, entry, evaluation.root) if entry.folders else Path(name))


def _pairs(evaluation: Evaluation, name: str) -> Content:
    statements = _statements(evaluation, name)
    images = statements.images
    check_shape(evaluation.run, images)
    title = PAIRS if name == PAIRS else "pairs"
    prompted = [TEMPLATE.format(statement) for (statement,) in images.captions]
    cut, note = _cut(evaluation.run, prompted)

    def compute(_: Path) -> Content:
        rows = statement_rows(
            evaluation.encoder.embeddings(images), evaluation.encoder.texts(prompted), statements.categories, title
        )
        return {"rows": [replace(row, of=row.of + note) for row in rows]}

    return _stored(evaluation, "pairs", images, cut, compute)


def _corrupted(evaluation: Evaluation, name: str) -> Content:
    """Every corruption that makes sense for these images, each kept by itself, and the means over them."""
    images, config = evaluation.load(name, "test"), evaluation.config
    chosen, refused = applicable(config.corruption_names, images.shape)
    if not chosen:
        first, why = next(iter(refused.items()))
        raise InputError(f"no corruption is left for {images.name}: {first} makes no sense, {why}")
    answers = [
        under_corruption(
            evaluation.run, images, config.corruption_question(each), device=evaluation.encoder.device
        ).content
        for each in chosen
    ]
    rows = summary_rows(answers, images.name)
    return {
        **{key: answers[0][key] for key in ("task", "data", "seed", "meaning")},
        "settings": {"corruptions": list(chosen), "severities": answers[0]["settings"]["severities"]},
        "refused": refused,
        "rows": [asdict(row) for row in rows],
        "corruptions": [
            {k: answer[k] for k in ("corruption", "family", "severities", "seconds")} for answer in answers
        ],
    }


EVALUATORS: dict[Task, Callable[[Evaluation, str], Content]] = {
    "zero-shot": _zero_shot,
    "probe": _probe,
    "few-shot": _few_shot,
    "retrieval": _retrieval,
    "pairs": _pairs,
    "corrupted": _corrupted,
}
