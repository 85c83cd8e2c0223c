"""Certificates of one run, or of two on the same images: what is proven, and what an attack finds, image by image.

For every image certified <= true <= attacked: within the certified radius no perturbation changes the smoothed model's class
(but for a chance of alpha), and at the attacked distance one was found that does.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from antiphase.config import to_plain
from antiphase.data.imageset import ImageSet
from antiphase.measures.certificates import RADII, CertificateAnswer
from antiphase.measures.questions import CertificateQuestion, PredictionQuestion, SmoothedAttackQuestion
from antiphase.measures.smoothing import attack_smoothed
from antiphase.measures.smoothing import certificates as certificates_of_model
from antiphase.measures.stats import finite, holm, mcnemar
from antiphase.models.run import Run, check_classes
from antiphase.results.attack import attack_answers
from antiphase.results.compare import check_apart, distinct_names
from antiphase.results.measure import measure
from antiphase.results.questions import CertifyConfig
from antiphase.store import Content, Entry, Store

PART = 16  # images after which what is certified is kept: a command that is killed goes on from there
Device = torch.device | str
Row = dict[str, Any]


def certify(runs: Sequence[Run], images: ImageSet, config: CertifyConfig, *, device: Device = "cpu") -> Row:
    """Certified accuracy of each run at each noise, the sandwich of a few images, and of two runs the paired tests."""
    for run in runs:
        check_classes(run, images)
    check_apart(runs)
    by_run = [[_at(run, images, question, config, device) for question in config.questions()] for run in runs]
    clean = [measure(run, images, PredictionQuestion(), device=device).content["accuracy"] for run in runs]
    return {
        "config": to_plain(config),
        "data": {"name": images.name, "split": images.split, "n": len(images), "fingerprint": images.fingerprint},
        "runs": [
            {
                "name": name,
                "folder": str(run.folder),
                "title": run.config.title,
                "accuracy": accuracy,
                "certificates": [certified for _, certified in own],
            }
            for name, run, accuracy, own in zip(distinct_names(runs), runs, clean, by_run)
        ],
        "paired": paired_tests(*([answer for answer, _ in own] for own in by_run)) if len(runs) == 2 else [],
    }


def _at(
    run: Run, images: ImageSet, question: CertificateQuestion, config: CertifyConfig, device: Device
) -> tuple[CertificateAnswer, Row]:
    """What is certified at one noise, with the sandwich of a few of the images."""
    answer = CertificateAnswer(certificates(run, images, question, device=device).content)
    rows = sandwich(run, images, answer, question, config, device=device) if config.attack_images else []
    kept = {name: answer.content[name] for name in ("sigma", "rates", "abstained", "average_radius")}
    kept["rates"] = [rate for rate in kept["rates"] if answer.can_reach(rate["radius"])]
    return answer, {
        **kept,
        "largest_radius": answer.largest_radius,
        "out_of_reach": [radius for radius in RADII if not answer.can_reach(radius)],
        "sandwich": rows,
        "flags": flags_of(rows, question.alpha),
    }


# ------------------------------------------------------------------------------------------------- answers


def certificates(run: Run, images: ImageSet, question: CertificateQuestion, *, device: Device = "cpu") -> Entry:
    """The certificate of every image, kept in the run's folder; in parts until there are all."""

    def compute(folder: Path) -> Content:
        model, store = run.classifier_for(images, device), Store(folder)
        per_image: dict[str, list[Any]] = {}
        for number, start in enumerate(range(0, len(images), PART)):
            few = images.take(np.arange(start, min(start + PART, len(images))))
            key, label = f"part-{number:05d}", f"{run.name}, sigma {question.sigma:g}, from image {start + 1}"
            part = store.kept(key) or store.put(
                key, certificates_of_model(model, few, question, device=device, label=label)
            )
            for name, column in part.content.items():
                per_image.setdefault(name, []).extend(column)
        content: Content = {"sigma": question.sigma, "samples": question.samples, "alpha": question.alpha}
        content["images"] = per_image
        content |= CertificateAnswer(content).summary()
        shutil.rmtree(folder)
        return content

    return run.answer_on(question, images, compute)


def smoothed_attack(run: Run, images: ImageSet, question: SmoothedAttackQuestion, *, device: Device = "cpu") -> Entry:
    """How far from every image the smoothed model answers another class; None where no such image was confirmed."""

    def compute(folder: Path) -> Content:
        label = f"{run.name}, {question.title}"
        model = run.classifier_for(images, device)
        result = attack_smoothed(model, images, question, device=device, journal=folder / "journal", label=label)
        shutil.rmtree(folder)
        per_image = {
            "id": images.ids.tolist(),
            "away_from": list(question.away_from),
            "predicted": result.predicted.tolist(),
            "distance": [finite(size) for size in result.distance],
            "found": [finite(size) for size in result.found],
        }
        about = {name: getattr(question, name) for name in ("sigma", "samples", "alpha")}
        return {**about, "attack": to_plain(question.attack), "images": per_image}

    return run.answer_on(question, images, compute)


# ------------------------------------------------------------------------------------------------- the sandwich


def sandwich(
    run: Run,
    images: ImageSet,
    answer: CertificateAnswer,
    question: CertificateQuestion,
    config: CertifyConfig,
    *,
    device: Device = "cpu",
) -> list[Row]:
    """Of a few images: certified radius, distance at which an attack on the smoothed model was confirmed, and, of another
    function, the distance at which the same attack fools the model itself. An image of which it abstains is not attacked."""
    few = images.subset(min(config.attack_images, len(images)), config.seed)
    places = {int(i): place for place, i in enumerate(images.ids)}
    rows = [
        {
            "id": int(i),
            "label": int(label),
            "predicted": answer.content["images"]["predicted"][places[int(i)]],
            "certified": answer.content["images"]["radius"][places[int(i)]],
            "attacked": None,
            "becomes": None,
        }
        for i, label in zip(few.ids, few.labels)
    ]
    certain = [place for place, row in enumerate(rows) if row["predicted"] is not None]
    if certain:
        shared: dict[str, Any] = {name: getattr(question, name) for name in ("sigma", "samples", "alpha", "seed")}
        classes = tuple(rows[place]["predicted"] for place in certain)
        asked = SmoothedAttackQuestion(away_from=classes, draws=config.attack_draws, attack=config.attack(), **shared)
        found = smoothed_attack(run, few.take(np.array(certain)), asked, device=device).content["images"]
        for place, distance, becomes in zip(certain, found["distance"], found["predicted"]):
            rows[place] |= {"attacked": distance, "becomes": None if distance is None else becomes}
    (base,) = attack_answers(run, few, [config.attack()], seed=config.seed, device=device)
    for row, distance in zip(rows, base.distance):
        row["model_itself"] = finite(distance)
        row["broken"] = is_broken(row)
    return rows


def is_broken(row: Row) -> bool:
    """Whether a confirmed image of another class lies nearer than what was certified."""
    certified, attacked = row["certified"], row["attacked"]
    return certified is not None and attacked is not None and attacked < certified


def flags_of(rows: list[Row], alpha: float) -> list[str]:
    """A certificate that an attack broke, by the number of the image."""
    return [
        f"image {row['id']}: certified within {row['certified']:.4g}, and an attack was confirmed at {row['attacked']:.4g}; by "
        f"chance alone this happens to at most {200 * alpha:g} % of images"
        for row in rows
        if row["broken"]
    ]


# ------------------------------------------------------------------------------------------------- two runs


def paired_tests(first: list[CertificateAnswer], second: list[CertificateAnswer]) -> list[Row]:
    """The two runs on the same images: McNemar's test at every noise and radius that the draws can certify, Holm-corrected over
    all of them."""
    tests = [
        {"sigma": a.content["sigma"], "radius": radius, **mcnemar(a.certified(radius), b.certified(radius))}
        for a, b in zip(first, second)
        for radius in RADII
        if a.can_reach(radius)
    ]
    return [test | {"p_holm": p} for test, p in zip(tests, holm([test["p"] for test in tests]))]
