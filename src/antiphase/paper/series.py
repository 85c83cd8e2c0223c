"""From answers to numbers: the lines of tables, and the series that they and contrasts are made of. No torch.

A series is one number of one model: a cell per seed, and from each cell one value per image. S seeds, n images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from antiphase.attacks.question import AttackAnswer
from antiphase.measures.questions import Rows
from antiphase.measures.seed_intervals import (
    Estimate,
    PerImage,
    Plan,
    difference,
    estimated,
)
from antiphase.measures.stats import Array, Unit, decided, mcnemar
from antiphase.paper.cost import available, count
from antiphase.paper.questions import Ask, Cell, Images, Model
from antiphase.paper.study import SURROGATE, Answers, Label, Line
from antiphase.paper.verdict_rule import POWER
from antiphase.store import Content

# An answer -> (n,) tops and bottoms of a ratio of sums. One that has `of_correct` set counts correctly classified images only.
Values = Callable[[Content], tuple[Array, Array]]
PLAN = Plan()


@dataclass(frozen=True)
class Series:
    """One cell per seed, and how to read it."""

    cells: tuple[Ask, ...]
    values: Values
    quantile: float | None = None
    of_model: bool = False  # read from the cell of the trained model: one value, no images
    values_from: Callable[[Answers], Values] | None = None  # in place of `values`, where they depend on other cells

    @property
    def sources(self) -> tuple[Cell, ...]:
        """The cells that are read."""
        return tuple(cell.of for cell in self.cells) if self.of_model else self.cells

    def arm(self, answers: Answers) -> PerImage:
        values = self.values if self.values_from is None else self.values_from(answers)
        tops, bottoms = zip(*(values(answers(cell)) for cell in self.sources))
        samples = {"no images" if self.of_model else repr(cell.images) for cell in self.cells}
        return PerImage(np.stack(tops), np.stack(bottoms), "; ".join(sorted(samples)), self.quantile)

    @property
    def planned_images(self) -> float:
        """So many images are planned to count; of those that a model must classify correctly the share that plans assume."""
        return self._that_count(count)

    @property
    def images_there(self) -> float:
        """So many would count if all of the data set were taken."""
        return self._that_count(available)

    def _that_count(self, number: Callable[[Images], int]) -> float:
        images = min(number(cell.images) for cell in self.cells)
        of_correct = self.values is distance or getattr(self.values, "of_correct", False)
        return images * PLAN.accuracy if of_correct else float(images)

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(model for cell in self.cells for model in cell.models)

    @property
    def surrogate(self) -> bool:
        return any(model.surrogate for model in self.models)


def of_trained(cells: tuple[Ask, ...], read: Callable[[Content], float]) -> Series:
    """A number of the trained model itself, the same whatever images are drawn."""
    return Series(cells, lambda trained: (np.array([read(trained)]), np.ones(1)), of_model=True)


def lambdas(cells: tuple[Ask, ...], depth: int) -> list[Series]:
    """lambda of each layer of these models."""

    def at(layer: int) -> Series:
        return of_trained(cells, lambda trained: float(trained["lambda"][layer]["lambda"]))

    return [at(layer) for layer in range(depth)]


# ------------------------------------------------------------------------------------------------- values of an attack

ALIKE = 0.02  # what `about equal` is taken to mean: within two points
ON_BOTH_SIDES = (1 + POWER) / 2  # of either margin, so that both are seen with probability 0.8
ASR = ("asr_change", "asr_correct")  # the paper's reading first


def _correct(content: Content) -> Array:
    return AttackAnswer(content).correct.astype(np.float64)


@dataclass(frozen=True)
class Success:
    """Of an attack's answer, by the name of a reading.

    asr_change, asr_correct      prediction changed, mean over restarts; of all images, of the correctly classified
    union_change, union_correct  changed in at least one restart; of the same
    robust_error                 wrong from the start or changed in at least one restart, of all images: 1 - robust accuracy
    accuracy                     correct without an attack, of all images
    """

    reading: str

    @property
    def of_correct(self) -> bool:
        return self.reading.endswith("correct")

    def __call__(self, content: Content) -> tuple[Array, Array]:
        correct = _correct(content)
        everything = np.ones_like(correct)
        if self.reading == "accuracy":
            return correct, everything
        changed = AttackAnswer(content).changed.astype(np.float64)  # (R, n)
        union = changed.max(axis=0)
        if self.reading == "robust_error":
            return 1 - correct * (1 - union), everything
        rate = union if self.reading.startswith("union") else changed.mean(axis=0)
        return (rate * correct, correct) if self.of_correct else (rate, everything)


@dataclass(frozen=True)
class Unmasked:
    """A reading of an attack's answer; one with a red flag says nothing for the model, and every image counts as fooled."""

    reading: str

    @property
    def of_correct(self) -> bool:
        return Success(self.reading).of_correct

    def __call__(self, content: Content) -> tuple[Array, Array]:
        top, bottom = Success(self.reading)(content)
        return (bottom, bottom) if AttackAnswer(content).content["flags"] else (top, bottom)


def distance(content: Content) -> tuple[Array, Array]:
    """Size of the smallest perturbation found, of images first correct; of one that was not fooled, infinite."""
    return AttackAnswer(content).distance, _correct(content)


def fooled_within(radius: float) -> Values:
    """Of images first correct, those that a perturbation no larger than this fools."""

    def values(content: Content) -> tuple[Array, Array]:
        size, correct = distance(content)
        return (size <= radius) * correct, correct

    return values


# ------------------------------------------------------------------------------------------------- values of a measure

PAIRS = ("own", "untrained", "shuffled", "pseudo")  # the two branches of a head, and the controls


def mean_of(name: str, layer: int | None = None, *, relative_to: str | None = None, **only: Any) -> Values:
    """The mean of a column over an image's rows: heads, and layers where none is named. Of each row it is divided by another
    column where that is named."""

    def values(content: Content) -> tuple[Array, Array]:
        rows = Rows.of(content["rows"])
        column = rows.numbers(name)
        if relative_to is not None:
            with np.errstate(all="ignore"):
                column = column / rows.numbers(relative_to)
        return rows.sums(column, rows.where(layer, **only) & np.isfinite(column))

    return values


def log_of(name: str, layer: int | None = None, *, squared: bool = False, **only: Any) -> Values:
    """The same of its logarithm, or of that squared (for a spread)."""

    def values(content: Content) -> tuple[Array, Array]:
        rows = Rows.of(content["rows"])
        with np.errstate(all="ignore"):
            column = np.log(rows.numbers(name)) ** (2 if squared else 1)
        return rows.sums(column, rows.where(layer, **only) & np.isfinite(column))

    return values


def negative(pairs: str, layer: int | None = 0) -> Values:
    """Of an image's heads whose sign is decided (more than two standard errors from 0), those with cos < 0."""

    def values(content: Content) -> tuple[Array, Array]:
        rows = Rows.of(content["rows"])
        cos = rows.numbers("cos")
        return rows.sums((cos < 0).astype(np.float64), _decided(rows) & rows.where(layer, pairs=pairs))

    return values


def undecided(pairs: str, layer: int | None = 0) -> Values:
    """Of an image's heads, those whose sign is not decided: they are in no share of cos < 0."""

    def values(content: Content) -> tuple[Array, Array]:
        rows = Rows.of(content["rows"])
        return rows.sums((~_decided(rows)).astype(np.float64), rows.where(layer, pairs=pairs))

    return values


def _decided(rows: Rows) -> Any:
    """(rows,) bool: the sign of the cosine is known."""
    return decided(rows.numbers("cos"), rows.numbers("cos_se"))


def stacked(pairs: str, layer: int | None = 0) -> Values:
    """R2, from the rows of R1: all heads of a layer together have cos < 0 where the sum of their <J1, J2> is below 0."""

    def values(content: Content) -> tuple[Array, Array]:
        rows = Rows.of(content["rows"])
        product, count = rows.sums(rows.numbers("ip"), rows.where(layer, pairs=pairs))
        return (product < 0).astype(np.float64), (count > 0).astype(np.float64)

    return values


# ------------------------------------------------------------------------------------------------- lines of a table


def shown(estimate: Estimate | None, divided_by: float = 1.0) -> dict[str, Any]:
    """Value and interval as a row has them; neither where the number does not exist."""
    if estimate is None:
        return {"value": None, "interval": None}
    low, high = estimate.interval()
    finite = np.isfinite(low) and np.isfinite(high)
    return {
        "value": estimate.value / divided_by,
        "interval": (low / divided_by, high / divided_by) if finite else None,
    }


def line(
    label: Label,
    series: Series,
    reading: str,
    *,
    reference: float | str | None = None,
    unit: Unit = "%",
    divided_by: float = 1.0,
) -> Line:
    """Mean over seeds with its interval over seeds and images."""

    def read(answers: Answers) -> dict[str, Any]:
        arm = series.arm(answers)
        result = shown(estimated([arm]), divided_by)
        text = "" if result["value"] is not None else _why_none(arm)
        note = SURROGATE if series.surrogate else ""
        return {**result, "n": arm.top.shape[1], "seeds": len(arm.top), "note": note, "text": text}

    return Line(label=label, reading=reading, cells=series.sources, read=read, unit=unit, reference=reference)


def _why_none(arm: PerImage) -> str:
    """A mean over seeds does not exist if one of them has none: nobody is left out."""
    beyond = int(np.isinf(arm.value).sum())
    return f"not reached in {beyond} of {len(arm.value)} seeds" if beyond else "does not exist"


TESTED = {"asr_change": "all images", "asr_correct": "images that both classify correctly"}


def difference_line(
    label: Label,
    one: Series,
    other: Series,
    reading: str,
    *,
    unit: Unit = "points",
    reference: float | str | None = None,
) -> Line:
    """First minus second on the same images; of attacks with McNemar's test of every seed on what any restart changed."""

    def read(answers: Answers) -> dict[str, Any]:
        arms = [one.arm(answers), other.arm(answers)]
        note = ""
        if reading in TESTED:
            tests = [_mcnemar(answers(a), answers(b), TESTED[reading]) for a, b in zip(one.cells, other.cells)]
            by_seed = ", ".join(f"{p:.2g} (n = {n})" for p, n in tests)
            note = f"McNemar p by seed, changed in any run, of {TESTED[reading]}: {by_seed}"
        sizes = {"n": arms[0].top.shape[1], "seeds": len(arms[0].top), "note": note}
        return {**shown(estimated(arms, difference)), **sizes}

    cells = (*one.sources, *other.sources)
    return Line(label=label, reading=reading, cells=cells, read=read, unit=unit, reference=reference)


def _mcnemar(a: Content, b: Content, among: str) -> tuple[float, int]:
    first_, second = AttackAnswer(a), AttackAnswer(b)
    everyone = np.ones(len(first_.correct), dtype=bool)
    both = first_.correct & second.correct if among == TESTED["asr_correct"] else everyone
    test = mcnemar(first_.fooled[both], second.fooled[both])
    return float(test["p"]), int(both.sum())


def trained_lines(label: Label, models: Sequence[Model], reference: float | None = None) -> list[Line]:
    """Train and test accuracy of the same model over its seeds, both after the last epoch and on clean images."""
    return [_accuracy(label, models, split, reference) for split in ("train", "test")]


def _accuracy(label: Label, models: Sequence[Model], split: str, reference: float | None) -> Line:
    """Rows hold no image of these: all seeds are taken to be right about the same ones, which is the widest case."""

    def read(answers: Answers) -> dict[str, Any]:
        trained = [answers(model) for model in models]
        values, n = np.array([float(t[f"{split}_accuracy"]) for t in trained]), int(trained[0][f"{split}_images"])
        seeds, mean = len(values), float(values.mean())
        of_images = mean * (1 - mean) / n
        between = float(values.var(ddof=1)) / seeds if seeds > 1 else 0.0
        df = (between + of_images) ** 2 * (seeds - 1) / between**2 if between > 0 else np.inf
        around = Estimate(mean, between + of_images, df, of_images, seeds, n, share=True)
        spread = f"sd over seeds {100 * (between * seeds) ** 0.5:.1f} points" if seeds > 1 else ""
        return {**shown(around), "n": n, "seeds": seeds, "note": spread}

    return Line(label=label, reading=f"{split}_accuracy", cells=tuple(models), read=read, reference=reference)
