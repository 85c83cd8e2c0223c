"""What a comparison found, as one number, its interval and one sentence each: fooled, sensitive, opposed."""

from __future__ import annotations

from typing import Any

import numpy as np

from antiphase.config import Budget
from antiphase.measures.questions import Rows
from antiphase.measures.stats import Array, geometric_interval, over, paired_counts, sign_of
from antiphase.paper.series import negative
from antiphase.rates import clustered_rate
from antiphase.report.figures.models import relative_sensitivity
from antiphase.report.numbers import interval_text, value_text
from antiphase.report.page_parts import KeyNumber
from antiphase.results.comparison_rule import is_significant, largest_gap
from antiphase.tables import number

Row = dict[str, Any]


def key_numbers(comparison: Row) -> tuple[KeyNumber, ...]:
    """Fooled and sensitive are about the second model beside the first; opposed is about each that has two branches."""
    differential = [model for model in comparison["models"] if model["alignment"]]
    return _fooled(comparison), _sensitive(comparison), *(_opposed(model) for model in differential)


def _fooled(comparison: Row) -> KeyNumber:
    """Second minus first, of the images that both classify correctly, at the budget with the largest gap."""
    first, second = (model["name"] for model in comparison["models"])
    gap = largest_gap(comparison)
    test, budget = gap["both_right"], Budget(gap["eps"])
    both = test["first"] - test["only_first"]
    difference = paired_counts(both, test["only_second"], test["only_first"], test["n"])
    value, model = difference["value"], ""
    if value is None:
        sentence = "No image is classified correctly by both models."
    elif not is_significant(test):
        sentence = f"No budget shows a difference between {second} and {first}; at {budget} they are farthest apart."
    else:
        model = second if value > 0 else first
        sentence = f"At {budget} PGD breaks {'more' if value > 0 else 'fewer'} images of {second} than of {first}."
    return KeyNumber(
        name="Fooled",
        value=value_text(value, "points"),
        interval=_interval(difference["interval"], "points", f"{test['n']} images"),
        sentence=sentence,
        model=model,
    )


def _sensitive(comparison: Row) -> KeyNumber:
    """How many times as far the second model's maps move as the first's, relative to their size: geometric mean over images."""
    first, second = (model["name"] for model in comparison["models"])
    of_first, of_second = (_per_image(model["lipschitz"]) for model in comparison["models"])
    ratio = geometric_interval(over(of_second, of_first))
    sign = sign_of(ratio, zero=1.0)
    if sign is None:
        sentence = f"The maps of {second} and {first} are not shown to differ in how far pixel noise moves them."
    else:
        more = "more" if sign > 0 else "less"
        sentence = f"Pixel noise moves the maps of {second} {more} than those of {first}, relative to their size."
    return KeyNumber(
        name="Sensitive",
        value=f"{number(ratio['value'])} ×",
        interval=_interval(ratio["interval"], "", f"{ratio['n']} images"),
        sentence=sentence,
        model={1: second, -1: first, None: ""}[sign],
    )


def _per_image(lipschitz: Row) -> Array:
    """The relative sensitivity of each image, mean over layers."""
    relative = relative_sensitivity(lipschitz)
    return over(*Rows(lipschitz["rows"]).sums(relative, np.isfinite(relative)))


def _opposed(model: Row) -> KeyNumber:
    """The share of pairs of image and head whose branches react against each other, over all layers, of those decided."""
    share = clustered_rate(*negative("own", layer=None)(model["alignment"])).plain()
    pairs = sum(row["undecided"]["n"] for row in model["alignment"]["layers"])
    prevails = {
        1: "mostly react to the pixels in opposite directions",
        -1: "mostly react to the pixels in the same direction",
        None: "are not shown to prefer opposite directions, or the same",
    }[sign_of(share, zero=0.5)]
    return KeyNumber(
        name="Opposed",
        value=value_text(share["value"], "%"),
        interval=_interval(share["interval"], "%", f"{share['n']} of {pairs} pairs decided"),
        sentence=f"In {model['name']} the two branches {prevails}.",
        model=model["name"],
    )


def _interval(interval: list[float] | None, unit: str, basis: str) -> str:
    return basis if interval is None else f"95 % {interval_text(interval, unit)} · {basis}"
