"""What `antiphase attack` prints: rates for each budget, or the distances of the nearest adversarial images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphase.console import stdout
from antiphase.measures.attack_rates import TARGETED
from antiphase.report.numbers import attack_name, attack_with_settings, eps_of
from antiphase.report.terminal.tables import show_classes_by, table
from antiphase.tables import number, with_interval

Row = dict[str, Any]


def show_attacks(result: Row) -> None:
    first = result["cells"][0]
    title = (
        f"{first['model']} in {result['run']}: {', '.join([attack_with_settings(first['attack']), *_conditions(result)])}, "
        f"on {first['data']['n']} {first['data']['name']} test images, "
        f"clean accuracy {with_interval(first['rates']['clean_accuracy'])}, 95 % intervals"
    )
    targeted = first["attack"].get("target") is not None
    if "distances" in first:
        _show_distances(title, first, targeted)
    else:
        names = (
            ("target_reached", "target_reached_correct")
            if targeted
            else ("robust_accuracy", "asr_change", "asr_correct")
        )
        rates = ((eps_of(c), *(with_interval(c["rates"][name]) for name in names)) for c in result["cells"])
        table(title, ("eps", *names), rates)
        for name in names if targeted else ():
            stdout.print(f"- {name}, n = {first['rates'][name]['n']}: {TARGETED[name]}", markup=False)
    if "transfer" in result:
        _show_transfer(result)
    show_classes_by(result.get("classes_by", {}))
    _show_saved(result)
    for flag in sorted({flag for cell in result["cells"] for flag in cell["flags"]}):
        stdout.print(f"red flag: {flag}", style="red", markup=False)


def _show_saved(result: Row) -> None:
    """Where the adversarial images lie; under `fast` and `bisect` a budget has those that no other budget had fooled."""
    for cell, place in zip(result["cells"], result.get("saved_in", [])):
        at = "" if cell["eps"] is None else f" at {eps_of(cell)}"
        if place is None:
            earlier = any(any(changed) for changed in cell["images"]["changed_in_run"])
            why = "other budgets had fooled every image that is fooled" if earlier else "no image was fooled"
            stdout.print(f"saved{at}: nothing, since {why}", markup=False)
        else:
            count, form = cell["saved"]["images"], "PNG files" if place.endswith(".png") else "float32 tensors"
            images = f"{count} adversarial image{'s' * (count > 1)}"
            stdout.print(f"saved{at}: {images} as {form} in {place}", markup=False, soft_wrap=True)
    if len(result.get("saved_in", [])) > 1 and result["cells"][0]["protocol"] != "paper":
        stdout.print("(an image is saved at the first budget that was found to fool it)", markup=False)


def _conditions(result: Row) -> list[str]:
    """What was asked besides the attack, where it is not as by default."""
    first = result["cells"][0]
    return [
        *[f"protocol {first['protocol']}"] * (first["protocol"] != "fast"),
        *["pixels on the grid of 255ths"] * result.get("eight_bit", False),
        *[f"seed {first['seed']}"] * (first["seed"] != 0),
    ]


def _show_transfer(result: Row) -> None:
    """What the images made for this run do to others."""
    targeted = result["cells"][0]["attack"].get("target") is not None
    success = "of those that reached the target" if targeted else "of those that fooled the source"
    names = ("clean_accuracy", "transfer_change", "transfer_correct", "transfer_fooled")
    words = ("clean accuracy", "changed, of all", "of its correct images", success)
    table(
        f"images made for {result['run']}, shown to other runs, n = {result['transfer'][0]['data']['n']}, 95 % intervals",
        ("shown to", "eps", *words),
        (
            (c["target"]["run"], eps_of(c), *(with_interval(c["rates"][name]) for name in names))
            for c in result["transfer"]
        ),
    )


def _show_distances(title: str, cell: Row, targeted: bool) -> None:
    what = "reaches the target" if targeted else "changes a prediction"
    left_out = "; images that are predicted as the target already are left out" if targeted else ""
    table(
        f"{title}; the smallest L2 that {what}, where one was found, apart for images that are wrong already{left_out}",
        ("images", "by", "found", "median", "p90", "p95", "p99", "mean", "max"),
        (
            (
                word,
                by,
                f"{row['found']['hits']} of {row['found']['n']}",
                _median(row["median"]),
                *(number(row[name]["value"]) for name in ("p90", "p95", "p99", "mean")),
                number(row["max"]),
            )
            for by, word, row in _rows(cell)
        ),
    )
    if "alone" in cell:
        shares = ", ".join(f"{name} {count}" for name, count in cell["stages"].items())
        stdout.print(f"the nearest was found by: {shares}", markup=False)
    stdout.print(
        f"{cell['forwards_per_image']:.0f} forwards and {cell['backwards_per_image']:.0f} backwards an image",
        markup=False,
    )


def _rows(cell: Row) -> Iterator[tuple[str, str, Row]]:
    """The correct first, with what each of several attacks found alone; apart from them, those wrong already."""
    for by, part in {attack_name(cell["attack"]): cell, **cell.get("alone", {})}.items():
        yield by, "correct", part["distances"]["correct"]
    if cell["distances"]["wrong"]["found"]["n"]:
        yield attack_name(cell["attack"]), "wrong", cell["distances"]["wrong"]


def _median(estimate: Row) -> str:
    ends = f" [{', '.join(map(number, estimate['interval']))}]" if estimate["interval"] else ""
    return number(estimate["value"]) + ends
