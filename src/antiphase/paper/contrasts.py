"""From cells to numbers: a side is one model, a cell a seed, with one value (or ratio) an image. No torch.

Lines of a table and contrasts of a claim are both made of sides. S seeds, n images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from antiphase.measures.bootstrap import PerImage, Statistic, first, interval
from antiphase.measures.stats import Array, Contrast, decided
from antiphase.paper.questions import Attacked, Audited, Model, OfImages, Predicted
from antiphase.paper.study import SURROGATE, Answer, Found, Line, Missing, Prediction, Unit

Values = Callable[[Answer], tuple[Array, Array]]  # (n,) tops and bottoms of a ratio of sums


@dataclass(frozen=True)
class Side:
    """One cell a seed, and how to read it."""

    cells: tuple[OfImages, ...]  # one a seed
    values: Values
    quantile: float | None = None
    of_model: bool = False  # read from the cell of the trained model: one value, no images

    def arm(self, found: Found) -> PerImage:
        tops, bottoms = zip(*(self.values(found(cell.of if self.of_model else cell)) for cell in self.cells))
        samples = {"no images" if self.of_model else repr(cell.images) for cell in self.cells}
        return PerImage(np.stack(tops), np.stack(bottoms), "; ".join(sorted(samples)), self.quantile)

    def right(self, found: Found) -> int:
        """Fewest correctly classified images of any seed: by the model, and by its baseline where it is held against one."""
        return min(int(np.prod([_right(found(told)) for told in tellers(cell)], axis=0).sum()) for cell in self.cells)

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(model for cell in self.cells for model in _models(cell))

    @property
    def surrogate(self) -> bool:
        return any(model.surrogate for model in self.models)


def constant(cells: tuple[OfImages, ...], read: Callable[[Answer], float]) -> Side:
    """A number of the trained model itself, the same whatever images are drawn."""
    return Side(cells, lambda trained: (np.array([read(trained)]), np.ones(1)), of_model=True)


def lambdas(cells: tuple[OfImages, ...], depth: int) -> list[Side]:
    """lambda of each layer of these models."""

    def at(layer: int) -> Side:
        return constant(cells, lambda trained: float(trained["lambda"][layer]["lambda"]))

    return [at(layer) for layer in range(depth)]


def _models(cell: OfImages) -> list[Model]:
    return [cell.of, cell.base] if isinstance(cell, Audited) else [cell.of]


def tellers(cell: OfImages) -> list[OfImages]:
    """The cells that know what its models say of the clean images."""
    if isinstance(cell, Attacked | Predicted):
        return [cell]
    return [Predicted(of=model, images=cell.images) for model in _models(cell)]


def _right(answer: Answer) -> Array:
    right: Array = np.equal(answer["images"]["clean"], answer["images"]["label"]).astype(np.float64)
    return right


# ------------------------------------------------------------------------------------------------- values of an attack
ALIKE = 0.02  # what `about equal` is taken to mean: within two points
ASR = ("asr_change", "asr_correct")  # the paper's reading first


def success(reading: str) -> Values:
    """Of an attack's answer, by the name of a reading.

    asr_change, asr_correct      prediction changed, mean over runs; of all images, of the correctly classified
    union_change, union_correct  changed in at least one run; of the same
    robust_error                 wrong from the start or changed in at least one run, of all images: 1 - robust accuracy
    accuracy                     correct without an attack, of all images
    """

    def values(answer: Answer) -> tuple[Array, Array]:
        right = _right(answer)
        if reading == "accuracy":
            return right, np.ones_like(right)
        changed = np.array(answer["images"]["changed_in_run"], dtype=np.float64)  # (R, n)
        union = changed.max(axis=0)
        if reading == "robust_error":
            return 1 - right * (1 - union), np.ones_like(right)
        rate = union if reading.startswith("union") else changed.mean(axis=0)
        return (rate * right, right) if reading.endswith("correct") else (rate, np.ones_like(right))

    return values


def distance(answer: Answer) -> tuple[Array, Array]:
    """Size of the smallest perturbation found, of images first correct; of one that was not fooled, infinite."""
    won = np.array(answer["images"]["changed_in_run"], dtype=bool).max(axis=0)
    return np.where(won, np.array(answer["images"]["distance"], dtype=np.float64), np.inf), _right(answer)


# ------------------------------------------------------------------------------------------------- lines and contrasts
def line(
    found: Found,
    label: str,
    side: Side,
    reading: str,
    *,
    reference: float | str | None = None,
    unit: Unit = "%",
) -> Line:
    """Mean over seeds with its interval over seeds and images; without a value while cells are missing."""
    shown: dict[str, Any] = {"label": label, "reading": reading, "reference": reference, "unit": unit}
    try:
        arm = side.arm(found)
    except Missing:
        return Line(**shown, note="not run yet")
    got = interval([arm])
    note = SURROGATE if side.surrogate else ""
    text = "" if got["value"] is not None else "not reached" if side.quantile is not None else "does not exist"
    return Line(**shown, **pair(got), n=arm.top.shape[1], seeds=len(arm.top), note=note, text=text)


def pair(got: dict[str, Any]) -> dict[str, Any]:
    return {"value": got["value"], "interval": None if got["interval"] is None else tuple(got["interval"])}


def contrast(
    claim: str,
    name: str,
    part: str,
    reading: str,
    sides: Sequence[Side],
    statistic: Statistic = first,
    *,
    threshold: bool = False,
) -> Prediction:
    """A statistic of the sides that the claim says is above 0; `threshold` where it is a distance to one, and no effect."""
    asked = [cell for side in sides for one in side.cells for cell in (one, *tellers(one))]
    models = [model for side in sides for model in side.models]

    def finding(found: Found) -> Contrast:
        try:
            arms = [side.arm(found) for side in sides]
            right = min(side.right(found) for side in sides)
        except Missing as gap:
            return Contrast(name=name, missing=f"no row of {gap}")
        return Contrast(
            name=name,
            **pair(interval(arms, statistic)),
            seeds=min(len(side.cells) for side in sides),
            n=max(arm.top.shape[1] for arm in arms),
            correct=right,
            surrogate=any(side.surrogate for side in sides),
            threshold=threshold,
        )

    cells = tuple(dict.fromkeys([*asked, *models]))
    return Prediction(claim=claim, name=name, part=part, reading=reading, finding=finding, cells=cells)


def alike(claim: str, what: str, part: str, reading: str, sides: Sequence[Side]) -> list[Prediction]:
    """The mean difference of two sides lies within two points of zero, on either side."""

    def not_above(a: Array, b: Array) -> Array:
        return ALIKE - (a - b)

    def not_below(a: Array, b: Array) -> Array:
        return ALIKE + (a - b)

    margin = f"{100 * ALIKE:.0f} points"
    return [
        contrast(claim, f"{margin} {sign} ({what})", part, reading, sides, statistic, threshold=True)
        for sign, statistic in (("-", not_above), ("+", not_below))
    ]


def difference_line(found: Found, label: str, one: Side, other: Side, reading: str, *, unit: Unit = "points") -> Line:
    """First minus second on the same images; of attacks with McNemar's test of every seed on what any run changed."""
    from antiphase.measures.bootstrap import difference

    try:
        arms = [one.arm(found), other.arm(found)]
        got = interval(arms, difference)
    except Missing:
        return Line(label=label, reading=reading, unit=unit, note="not run yet")
    note = ""
    if reading in TESTED:
        tests = [_mcnemar(found(a), found(b), TESTED[reading]) for a, b in zip(one.cells, other.cells)]
        told = ", ".join(f"{p:.2g} (n = {n})" for p, n in tests)
        note = f"McNemar p by seed, changed in any run, of {TESTED[reading]}: {told}"
    return Line(
        label=label, reading=reading, **pair(got), n=arms[0].top.shape[1], seeds=len(arms[0].top), unit=unit, note=note
    )


TESTED = {"asr_change": "all images", "asr_correct": "images that both classify correctly"}


def _mcnemar(a: Answer, b: Answer, among: str) -> tuple[float, int]:
    from antiphase.measures.stats import mcnemar

    both = _right(a) * _right(b) > 0 if among == TESTED["asr_correct"] else np.ones(len(_right(a)), dtype=bool)
    flags = [np.array(answer["images"]["changed_in_run"], dtype=bool).max(axis=0)[both] for answer in (a, b)]
    test = mcnemar(*flags)
    return float(test["p"]), int(both.sum())


def trained_lines(found: Found, label: str, models: Sequence[Model], reference: float | None = None) -> list[Line]:
    """Train and test accuracy of the same model over its seeds, both after the last epoch and on clean images."""
    return [_accuracy(found, label, models, split, reference) for split in ("train", "test")]


def _accuracy(found: Found, label: str, models: Sequence[Model], split: str, reference: float | None) -> Line:
    """Rows hold no image of these, so the interval is a normal one: the spread over seeds, then that of the images they share."""
    shown: dict[str, Any] = {"label": label, "reading": f"{split}_accuracy", "reference": reference}
    try:
        answers = [found(model) for model in models]
    except Missing:
        return Line(**shown, note="not run yet")
    values, n = [float(a[f"{split}_accuracy"]) for a in answers], int(answers[0][f"{split}_images"])
    mean, between = float(np.mean(values)), float(np.var(values, ddof=1)) if len(values) > 1 else 0.0
    half = 1.96 * (between / len(values) + mean * (1 - mean) / n) ** 0.5
    spread = f"sd over seeds {100 * between**0.5:.1f} points" if len(values) > 1 else ""
    around = (max(0.0, mean - half), min(1.0, mean + half))
    return Line(**shown, value=mean, interval=around, n=n, seeds=len(values), note=spread)


# ------------------------------------------------------------------------------------------------- studies.inside
# One number an image out of the rows of a measure: how `sides` see inside attention. No torch.


Rows = dict[str, list[Any]]


def chosen(rows: Rows, layer: int | None, **only: Any) -> Any:
    """(rows,) bool: those where the columns say so, of one layer by its place in the model or of all."""
    mask = np.ones(len(rows["image"]), dtype=bool)
    for name, wanted in only.items():
        mask &= np.array([value == wanted for value in rows[name]])
    if layer is not None:
        names = list(dict.fromkeys(name for name, kept in zip(rows["layer"], mask) if kept and name is not None))
        mask &= np.array([name == names[layer] for name in rows["layer"]])
    return mask


def sums(rows: Rows, values: Any, counted: Any) -> tuple[Array, Array]:
    """Sums of values and of counts over the rows of each image, images in the order of the rows: (n,) each"""
    images = list(dict.fromkeys(rows["image"]))
    place = {image: i for i, image in enumerate(images)}
    at = np.array([place[image] for image in rows["image"]])
    top, bottom = np.zeros(len(images)), np.zeros(len(images))
    np.add.at(top, at, np.where(counted, values, 0.0))
    np.add.at(bottom, at, np.asarray(counted, dtype=np.float64))
    return top, bottom


def column(rows: Rows, name: str) -> Array:
    """As numbers; NaN where there is none"""
    return np.array([np.nan if value is None else float(value) for value in rows[name]])


def mean_of(name: str, layer: int | None = None, **only: Any) -> Values:
    """The mean of a column over an image's rows: heads, and layers where none is named."""

    def values(answer: Answer) -> tuple[Array, Array]:
        rows = answer["rows"]
        found = column(rows, name)
        return sums(rows, found, chosen(rows, layer, **only) & np.isfinite(found))

    return values


def log_of(name: str, layer: int | None = None, *, squared: bool = False, **only: Any) -> Values:
    """The same of its logarithm, or of that squared (for a spread)."""

    def values(answer: Answer) -> tuple[Array, Array]:
        rows = answer["rows"]
        with np.errstate(all="ignore"):
            found = np.log(column(rows, name)) ** (2 if squared else 1)
        return sums(rows, found, chosen(rows, layer, **only) & np.isfinite(found))

    return values


PAIRS = ("own", "untrained", "shuffled", "pseudo")  # the two branches of a head, and the controls


def negative(pairs: str, layer: int | None = 0) -> Values:
    """Of an image's heads whose sign is decided (more than two standard errors from 0), those with cos < 0."""

    def values(answer: Answer) -> tuple[Array, Array]:
        rows = answer["rows"]
        cos = column(rows, "cos")
        return sums(rows, (cos < 0).astype(np.float64), _decided(rows) & chosen(rows, layer, pairs=pairs))

    return values


def undecided(pairs: str, layer: int | None = 0) -> Values:
    """Of an image's heads, those whose sign is not decided: they are in no share of cos < 0."""

    def values(answer: Answer) -> tuple[Array, Array]:
        rows = answer["rows"]
        return sums(rows, (~_decided(rows)).astype(np.float64), chosen(rows, layer, pairs=pairs))

    return values


def _decided(rows: Rows) -> Any:
    """(rows,) bool: the sign of the cosine is known."""
    return decided(column(rows, "cos"), column(rows, "cos_se"))


def stacked(pairs: str, layer: int | None = 0) -> Values:
    """R2, from the rows of R1: all heads of a layer together have cos < 0 where the sum of their <J1, J2> is below 0."""

    def values(answer: Answer) -> tuple[Array, Array]:
        rows = answer["rows"]
        product, count = sums(rows, column(rows, "ip"), chosen(rows, layer, pairs=pairs))
        return (product < 0).astype(np.float64), (count > 0).astype(np.float64)

    return values
