"""From answers to numbers: lines of a table and predictions of a claim are both made of series. No torch.

A series is one number of one model: a cell per seed, and from each cell one value per image. S seeds, n images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from antiphase.attacks.question import AttackAnswer
from antiphase.measures.bootstrap import PerImage, Statistic, difference, first, interval
from antiphase.measures.questions import Rows
from antiphase.measures.stats import Array, Contrast, Unit, decided, mcnemar
from antiphase.paper.questions import Ask, Cell, Model
from antiphase.paper.study import SURROGATE, Answers, Label, Line, Missing, Prediction
from antiphase.store import Content

Values = Callable[[Content], tuple[Array, Array]]  # an answer -> (n,) tops and bottoms of a ratio of sums


@dataclass(frozen=True)
class Series:
    """One cell per seed, and how to read it."""

    cells: tuple[Ask, ...]
    values: Values
    quantile: float | None = None
    of_model: bool = False  # read from the cell of the trained model: one value, no images

    @property
    def sources(self) -> tuple[Cell, ...]:
        """The cells that are read."""
        return tuple(cell.of for cell in self.cells) if self.of_model else self.cells

    def arm(self, answers: Answers) -> PerImage:
        tops, bottoms = zip(*(self.values(answers(cell)) for cell in self.sources))
        samples = {"no images" if self.of_model else repr(cell.images) for cell in self.cells}
        return PerImage(np.stack(tops), np.stack(bottoms), "; ".join(sorted(samples)), self.quantile)

    def correct(self, answers: Answers) -> int:
        """Fewest correctly classified images of any seed: by the model, and by its baseline where it is held against one."""
        return min(
            int(np.prod([_correct(answers(told)) for told in cell.clean_predictions], axis=0).sum())
            for cell in self.cells
        )

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
ASR = ("asr_change", "asr_correct")  # the paper's reading first


def _correct(content: Content) -> Array:
    return AttackAnswer(content).correct.astype(np.float64)


def success(reading: str) -> Values:
    """Of an attack's answer, by the name of a reading.

    asr_change, asr_correct      prediction changed, mean over restarts; of all images, of the correctly classified
    union_change, union_correct  changed in at least one restart; of the same
    robust_error                 wrong from the start or changed in at least one restart, of all images: 1 - robust accuracy
    accuracy                     correct without an attack, of all images
    """

    def values(content: Content) -> tuple[Array, Array]:
        correct = _correct(content)
        everything = np.ones_like(correct)
        if reading == "accuracy":
            return correct, everything
        changed = AttackAnswer(content).changed.astype(np.float64)  # (R, n)
        union = changed.max(axis=0)
        if reading == "robust_error":
            return 1 - correct * (1 - union), everything
        rate = union if reading.startswith("union") else changed.mean(axis=0)
        return (rate * correct, correct) if reading.endswith("correct") else (rate, everything)

    return values


def distance(content: Content) -> tuple[Array, Array]:
    """Size of the smallest perturbation found, of images first correct; of one that was not fooled, infinite."""
    return AttackAnswer(content).distance, _correct(content)


# ------------------------------------------------------------------------------------------------- values of a measure

PAIRS = ("own", "untrained", "shuffled", "pseudo")  # the two branches of a head, and the controls


def mean_of(name: str, layer: int | None = None, **only: Any) -> Values:
    """The mean of a column over an image's rows: heads, and layers where none is named."""

    def values(content: Content) -> tuple[Array, Array]:
        rows = Rows(content["rows"])
        column = rows.numbers(name)
        return rows.sums(column, rows.where(layer, **only) & np.isfinite(column))

    return values


def log_of(name: str, layer: int | None = None, *, squared: bool = False, **only: Any) -> Values:
    """The same of its logarithm, or of that squared (for a spread)."""

    def values(content: Content) -> tuple[Array, Array]:
        rows = Rows(content["rows"])
        with np.errstate(all="ignore"):
            column = np.log(rows.numbers(name)) ** (2 if squared else 1)
        return rows.sums(column, rows.where(layer, **only) & np.isfinite(column))

    return values


def negative(pairs: str, layer: int | None = 0) -> Values:
    """Of an image's heads whose sign is decided (more than two standard errors from 0), those with cos < 0."""

    def values(content: Content) -> tuple[Array, Array]:
        rows = Rows(content["rows"])
        cos = rows.numbers("cos")
        return rows.sums((cos < 0).astype(np.float64), _decided(rows) & rows.where(layer, pairs=pairs))

    return values


def undecided(pairs: str, layer: int | None = 0) -> Values:
    """Of an image's heads, those whose sign is not decided: they are in no share of cos < 0."""

    def values(content: Content) -> tuple[Array, Array]:
        rows = Rows(content["rows"])
        return rows.sums((~_decided(rows)).astype(np.float64), rows.where(layer, pairs=pairs))

    return values


def _decided(rows: Rows) -> Any:
    """(rows,) bool: the sign of the cosine is known."""
    return decided(rows.numbers("cos"), rows.numbers("cos_se"))


def stacked(pairs: str, layer: int | None = 0) -> Values:
    """R2, from the rows of R1: all heads of a layer together have cos < 0 where the sum of their <J1, J2> is below 0."""

    def values(content: Content) -> tuple[Array, Array]:
        rows = Rows(content["rows"])
        product, count = rows.sums(rows.numbers("ip"), rows.where(layer, pairs=pairs))
        return (product < 0).astype(np.float64), (count > 0).astype(np.float64)

    return values


# ------------------------------------------------------------------------------------------------- lines of a table


def estimate(result: dict[str, Any]) -> dict[str, Any]:
    """Value and interval as a row has them."""
    return {"value": result["value"], "interval": None if result["interval"] is None else tuple(result["interval"])}


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
        result = estimate(interval([arm]))
        text = "" if result["value"] is not None else "not reached" if series.quantile is not None else "does not exist"
        if result["value"] is not None and divided_by != 1.0:
            low, high = result["interval"]
            result = {"value": result["value"] / divided_by, "interval": (low / divided_by, high / divided_by)}
        note = SURROGATE if series.surrogate else ""
        return {**result, "n": arm.top.shape[1], "seeds": len(arm.top), "note": note, "text": text}

    return Line(label=label, reading=reading, cells=series.sources, read=read, unit=unit, reference=reference)


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
        return {**estimate(interval(arms, difference)), **sizes}

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
    """Rows hold no image of these, so the interval is a normal one: the spread over seeds, then that of the images they share."""

    def read(answers: Answers) -> dict[str, Any]:
        trained = [answers(model) for model in models]
        values, n = [float(t[f"{split}_accuracy"]) for t in trained], int(trained[0][f"{split}_images"])
        mean, between = float(np.mean(values)), float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
        half = 1.96 * (between / len(values) + mean * (1 - mean) / n) ** 0.5
        spread = f"sd over seeds {100 * between**0.5:.1f} points" if len(values) > 1 else ""
        around = (max(0.0, mean - half), min(1.0, mean + half))
        return {"value": mean, "interval": around, "n": n, "seeds": len(values), "note": spread}

    return Line(label=label, reading=f"{split}_accuracy", cells=tuple(models), read=read, reference=reference)


# ------------------------------------------------------------------------------------------------- predictions of a claim


def predict(
    claim: str,
    name: str,
    part: str,
    reading: str,
    series: Sequence[Series],
    statistic: Statistic = first,
    *,
    unit: Unit = "points",
    threshold: bool = False,
    optional: bool = False,
) -> Prediction:
    """A statistic of the series that the claim says is above 0; `threshold` where it is a distance to one, and no effect;
    `optional` where a study does not compute it by itself."""
    cells = [told for one in series for cell in one.cells for told in (cell, *cell.clean_predictions)]
    models = [model for one in series for model in one.models]

    def contrast(answers: Answers) -> Contrast:
        try:
            arms = [one.arm(answers) for one in series]
            correct = min(one.correct(answers) for one in series)
        except Missing as gap:
            return Contrast(name=name, unit=unit, missing=f"no row of {gap}")
        return Contrast(
            name=name,
            **estimate(interval(arms, statistic)),
            unit=unit,
            seeds=min(len(one.cells) for one in series),
            n=max(arm.top.shape[1] for arm in arms),
            correct=correct,
            surrogate=any(one.surrogate for one in series),
            threshold=threshold,
        )

    every = tuple(dict.fromkeys([*cells, *models]))
    return Prediction(
        claim=claim, name=name, part=part, reading=reading, contrast=contrast, cells=every, optional=optional
    )


def about_equal(claim: str, what: str, part: str, reading: str, series: Sequence[Series]) -> list[Prediction]:
    """The mean difference of two series lies within two points of zero, on either side."""

    def not_above(a: Array, b: Array) -> Array:
        return ALIKE - (a - b)

    def not_below(a: Array, b: Array) -> Array:
        return ALIKE + (a - b)

    margin = f"{100 * ALIKE:.0f} points"
    return [
        predict(claim, f"{margin} {sign} ({what})", part, reading, series, statistic, threshold=True)
        for sign, statistic in (("-", not_above), ("+", not_below))
    ]
