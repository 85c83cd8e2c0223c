"""Accuracy, confidence and calibration under natural corruptions, and how the two maps of a differential layer move under them.

One corruption is one question: clean images and each severity, image by image. n images, L layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from antiphase import console
from antiphase.data.corruption_table import CORRUPTIONS
from antiphase.data.corruptions import corrupted
from antiphase.data.imageset import ImageSet
from antiphase.evals.config import CorruptionQuestion
from antiphase.evals.rows import Row, share
from antiphase.measures.calibration import mean_ece
from antiphase.measures.cancellation import cancellation
from antiphase.measures.questions import Rows, columns
from antiphase.measures.stats import Array, finite, mean_interval, over
from antiphase.models.fast_path import fast_path
from antiphase.models.run import Run
from antiphase.rates import rate
from antiphase.runtime import at_rest
from antiphase.store import Content, Entry

CLEAN = 0  # the severity of images as they are
BLOCK = 1_024  # images whose corrupted pixels are held at once
BATCH = 128
MAPS = {
    "cos": "cosine of the changes of A1 and A2 from the clean image, mean over heads",
    "residue": "1 / CMRR: what the subtraction leaves of the changes, below 1 cancelled, above 1 amplified; mean over heads",
}
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Condition:
    """All images under one corruption at one severity."""

    severity: int  # CLEAN: as they are
    correct: Flags  # (n,)
    confidence: Array  # (n,) the largest probability
    l2: Array  # (n,) distance from the clean image
    maps: dict[str, dict[str, Array]]  # layer -> name of MAPS -> (n,); NaN where a map does not move

    def summary(self) -> Content:
        return {
            "severity": self.severity,
            "accuracy": rate(self.correct).plain(),
            "ece": mean_ece([(self.confidence, self.correct)]),
            "confidence": mean_interval(self.confidence),
            "l2": float(self.l2.mean()),
            "layers": [
                {"layer": layer, **{name: mean_interval(values) for name, values in of_layer.items()}}
                for layer, of_layer in self.maps.items()
            ],
        }

    def rows(self, ids: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        """One per image, and one per image and layer."""
        for i, image in enumerate(ids):
            about = {"image": int(image), "severity": self.severity}
            answers = {"correct": int(self.correct[i]), "confidence": float(self.confidence[i])}
            yield about | {"layer": None} | answers | {"l2": float(self.l2[i])}
            for layer, of_layer in self.maps.items():
                yield about | {"layer": layer} | {name: finite(values[i]) for name, values in of_layer.items()}


def under_corruption(
    run: Run, images: ImageSet, question: CorruptionQuestion, *, device: torch.device | str = "cpu"
) -> Entry:
    """The answer, read from the run's folder or computed and kept there."""

    def compute(_: Path) -> Content:
        model = run.classifier_for(images, device)
        conditions = corruption_conditions(model, images, question, maps=run.config.is_differential, device=device)
        summaries = [condition.summary() for condition in conditions]
        name = question.corruption
        return {
            "task": question.kind,
            "settings": {"corruption": name, "severities": list(question.severities)},
            "corruption": name,
            "family": CORRUPTIONS[name].family,
            "severities": summaries,
            "meaning": MAPS,
            "rows": [asdict(row) for summary in summaries for row in _rows(name, summary, images.name)],
            "per_image": columns(row for condition in conditions for row in condition.rows(images.ids)),
        }

    return run.answer_on(question, images, compute)


def corruption_conditions(
    classifier: nn.Module,
    images: ImageSet,
    question: CorruptionQuestion,
    *,
    maps: bool = False,
    device: torch.device | str = "cpu",
) -> list[Condition]:
    """Clean images, then each severity; with what the maps of differential layers do where `maps` asks for it."""
    severities = (CLEAN, *question.severities)
    parts: dict[int, list[Condition]] = {severity: [] for severity in severities}
    with console.progress(question.corruption, len(images) * len(severities)) as advance:
        for start in range(0, len(images), BLOCK):
            block = images.take(np.arange(start, min(start + BLOCK, len(images))))
            clean = block.all.pixels
            for severity in severities:
                moved, pixels = block, clean
                if severity != CLEAN:
                    pixels = corrupted(block, question.corruption, severity, question.seed).all.pixels
                    moved = block.with_pixels(pixels)
                answers = _answers(classifier, moved, device)
                l2 = (pixels - clean).flatten(1).double().norm(dim=1).numpy()
                of_maps = _maps(classifier, block, moved, device) if maps and severity != CLEAN else {}
                parts[severity].append(Condition(severity, *answers, l2, of_maps))
                advance(len(block), f"severity {severity}")
    return [_joined(each) for each in parts.values()]


def _answers(classifier: nn.Module, images: ImageSet, device: torch.device | str) -> tuple[Flags, Array]:
    """Whether each image is classified correctly, and the probability of the class that was chosen."""
    correct, confidence = [], []
    with at_rest(classifier), fast_path(classifier):
        for batch in images.batches(BATCH):
            sure, chosen = classifier(batch.pixels.to(device)).double().softmax(dim=1).max(dim=1)
            correct.append((chosen.cpu() == batch.labels).numpy())
            confidence.append(sure.cpu().numpy())
    return np.concatenate(correct), np.concatenate(confidence)


def _maps(
    classifier: nn.Module, clean: ImageSet, moved: ImageSet, device: torch.device | str
) -> dict[str, dict[str, Array]]:
    layers = cancellation(classifier, clean, perturbations={"corrupted": moved}, quantities=("maps",), device=device)
    return {
        layer.layer: {
            "cos": layer.image_cos,
            "residue": over(np.where(layer.alive, layer.residue, 0).sum(1), layer.alive.sum(1).astype(np.float64)),
        }
        for layer in layers
    }


def _joined(parts: Sequence[Condition]) -> Condition:
    """Blocks of images one after the other."""
    correct, confidence, l2 = (np.concatenate([getattr(p, n) for p in parts]) for n in ("correct", "confidence", "l2"))
    maps = {
        layer: {name: np.concatenate([part.maps[layer][name] for part in parts]) for name in MAPS}
        for layer in parts[0].maps
    }
    return Condition(parts[0].severity, correct, confidence, l2, maps)


# ------------------------------------------------------------------------------------------------- rows


def _rows(name: str, summary: Content, data: str) -> list[Row]:
    """The three numbers of one severity."""
    n, severity = summary["accuracy"]["n"], summary["severity"]
    where = "clean" if severity == CLEAN else f"{name} {severity}"
    words = {"accuracy": "classified correctly", "ece": "expected calibration error", "confidence": "mean confidence"}
    return [
        _mean_row(f"{where}: {key}", summary[key], n, f"{what}, of {n:,} {data} test images")
        for key, what in words.items()
    ]


def summary_rows(answers: Sequence[Content], data: str) -> list[Row]:
    """Means over corruptions and severities, each counting the same, of all and of each family; on the same images, so that
    intervals are over images."""
    tables = [_tables(answer) for answer in answers]  # severity -> (correct, confidence)
    n, severities = len(tables[0][CLEAN][0]), len(tables[0]) - 1
    rows = [share("accuracy, clean", tables[0][CLEAN][0], f"classified correctly, of {n:,} {data} test images")]
    families = {"corrupted": tables} | {
        family: [t for t, a in zip(tables, answers) if a["family"] == family]
        for family in dict.fromkeys(answer["family"] for answer in answers)
    }
    for family, some in families.items():
        every = [of for table in some for severity, of in table.items() if severity != CLEAN]
        by_image = np.mean([correct for correct, _ in every], axis=0)
        of = f"mean over corruptions ({len(some)}) and severities ({severities}) of the same {n:,} {data} test images"
        name, alone = f"accuracy, {family}", len(every) == 1
        rows.append(share(name, every[0][0], of) if alone else _mean_row(name, mean_interval(by_image), n, of))
        if family == "corrupted":
            rows.append(_ece_row("ECE, clean", [tables[0][CLEAN]], n, f"of {n:,} {data} test images"))
            rows.append(_ece_row("ECE, corrupted", every, n, of))
    return rows


def _tables(answer: Content) -> dict[int, tuple[Flags, Array]]:
    rows = Rows(answer["per_image"])
    of_images = np.isfinite(rows.numbers("correct"))
    by_severity = {}
    for severity in (CLEAN, *answer["settings"]["severities"]):
        here = of_images & rows.where(severity=severity)
        by_severity[severity] = rows.numbers("correct")[here] > 0, rows.numbers("confidence")[here]
    return by_severity


def _ece_row(name: str, conditions: list[tuple[Flags, Array]], n: int, of: str) -> Row:
    estimate = mean_ece([(confidence, correct) for correct, confidence in conditions])
    return _mean_row(name, estimate, n, f"expected calibration error, {of}")


def _mean_row(name: str, estimate: Content, n: int, of: str) -> Row:
    low, high = estimate["interval"] or (0.0, 1.0)  # of one image nothing is known
    return Row(name, estimate["value"], n, (max(0.0, low), min(1.0, high)), of)
