"""What the rows say, in sentences. Every number and every direction is read from the rows; nothing is assumed."""

from __future__ import annotations

from typing import Any

from antiphase.config import Budget

Row = dict[str, Any]
LEVEL = 0.05


def percent(rate: Row, digits: int = 1) -> str:
    return "undefined" if rate["value"] is None else f"{100 * rate['value']:.{digits}f} %"


def interval_of(rate: Row) -> str:
    if rate["interval"] is None:
        return f"n = {rate['n']}"
    low, high = (100 * v for v in rate["interval"])
    return f"[{low:.1f}, {high:.1f}]"


def with_interval(rate: Row) -> str:
    return f"{percent(rate)} {interval_of(rate)}"


def findings(comparison: Row) -> list[str]:
    """The headline first: which of the two is easier to fool, where, and how sure that is."""
    first, second = comparison["models"]
    return [
        _headline(comparison),
        f"Clean test accuracy is {100 * first['test_accuracy']:.1f} % for {first['name']} and "
        f"{100 * second['test_accuracy']:.1f} % for {second['name']} (n = {first['test_images']}).",
        *(_alignment(side) for side in (first, second) if side["alignment"]),
        _lipschitz(first, second),
        "Each model was trained once: the intervals cover the choice of images, not the choice of a training seed.",
    ]


def _headline(comparison: Row) -> str:
    sides, paired = comparison["models"], comparison["paired"]
    sure = [row for row in paired if row["p_holm"] < LEVEL]
    n, budgets = comparison["data"]["n"], len(paired)
    if not sure:
        return (
            f"PGD fools {sides[0]['name']} and {sides[1]['name']} about equally often: no budget of {budgets} shows "
            f"a difference beyond chance (McNemar test on the same {n} images, Holm-corrected, p >= {LEVEL:g} everywhere)."
        )
    worse = (
        [row for row in sure if row["only_first"] > row["only_second"]],
        [row for row in sure if row["only_second"] > row["only_first"]],
    )
    if worse[0] and worse[1]:
        return (
            f"Neither model is the more robust one: {sides[0]['name']} is easier to fool at {_budgets(worse[0])}, "
            f"{sides[1]['name']} at {_budgets(worse[1])} (McNemar, Holm-corrected, p < {LEVEL:g}, n = {n})."
        )
    loser = 0 if worse[0] else 1
    most = max(sure, key=lambda row: abs(row["only_first"] - row["only_second"]))
    rates = [_at(side, most["eps"])["asr_union"] for side in (sides[loser], sides[1 - loser])]
    return (
        f"{sides[loser]['name']} is easier to fool than {sides[1 - loser]['name']} at {len(sure)} of {budgets} budgets "
        f"({_budgets(sure)}): at {Budget(most['eps'])} PGD changes {percent(rates[0])} of its predictions "
        f"against {percent(rates[1])} (n = {n}, McNemar on the same images, Holm-corrected, p = {most['p_holm']:.2g})."
    )


def _alignment(side: Row) -> str:
    layers = side["alignment"]["layers"]
    parts = [
        f"{percent(row['negative'])} of {row['negative']['n']} (image, head) pairs in layer {i + 1} "
        f"(mean cosine {row['cos']:+.2f}, {percent(row['undecided'], 0)} undecided at {row['probes']} probes; "
        f"the subtraction multiplies the map's sensitivity by {row['amplification']:.2f})"
        for i, row in enumerate(layers)
    ]
    return (
        f"In {side['name']} the input gradients of the two branches point against each other for "
        + "; ".join(parts)
        + "."
    )


def _lipschitz(first: Row, second: Row) -> str:
    (a, ra), (b, rb) = (_mean_lipschitz(side) for side in (first, second))
    larger = second if b > a else first
    relative = second if rb > ra else first
    agree = "and also" if larger is relative else "but"
    return (
        f"Sampled local Lipschitz constants of the maps (lower bounds): {a:.3f} for {first['name']}, "
        f"{b:.3f} for {second['name']}, so the maps of {larger['name']} move more in absolute terms, "
        f"{agree} those of {relative['name']} relative to their size ({ra:.3f} against {rb:.3f})."
    )


def _mean_lipschitz(side: Row) -> tuple[float, float]:
    layers = side["lipschitz"]["layers"]
    return sum(row["max"] for row in layers) / len(layers), sum(row["relative_max"] for row in layers) / len(layers)


def _at(side: Row, eps: float) -> Row:
    rates: Row = next(cell for cell in side["attacks"] if cell["eps"] == eps)["rates"]
    return rates


def _budgets(rows: list[Row]) -> str:
    return ", ".join(str(Budget(row["eps"])) for row in rows)
