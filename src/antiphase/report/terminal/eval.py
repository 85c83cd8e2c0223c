"""What `antiphase eval` prints: our numbers, beside the published ones where the model is a published one."""

from __future__ import annotations

from typing import Any

from antiphase.console import stdout
from antiphase.data.tolerance import ALLOWABLE
from antiphase.report.terminal.tables import show_classes_by, table
from antiphase.tables import with_interval

Row = dict[str, Any]


def show_evaluation(result: Row) -> None:
    """Ours, and the published number where the model is a published one; below, what each number is a share of."""
    rows, is_published = result["rows"], result["pretraining"] is not None
    table(
        f"{result['title']} in {result['run']}, 95 % intervals"
        + (f"; published: B/16 trained on {result['pretraining']}" if is_published else ""),
        ("data", "measure", "value", "n", "chance", *["published"] * is_published),
        (
            (
                row["data"],
                row["name"],
                with_interval(row),
                f"{row['n']:,}",
                "-" if row["chance"] is None else f"{100 * row['chance']:.3g} %",
                *[_published(row["published"])] * is_published,
            )
            for row in rows
        ),
    )
    show_classes_by(result.get("classes_by", {}))
    for row in rows:
        stdout.print(f"- {row['name']} on {row['data']}: {row['of']}", markup=False, soft_wrap=True)
    for cell in result["cells"]:
        if cell["task"] == "corrupted":
            _show_corruptions(cell)
        for kind, n in cell["settings"].get("skipped", {}).items():
            stdout.print(f"left out of {cell['data']['name']}: {n:,} {ALLOWABLE[kind]}", markup=False, soft_wrap=True)


def _show_corruptions(cell: Row) -> None:
    """A line for each corruption: accuracy at each severity and the means over them; of a differential model what its maps do."""
    severities, data = cell["settings"]["severities"], cell["data"]
    has_maps = any(part["layers"] for each in cell["corruptions"] for part in each["severities"])
    table(
        f"accuracy in % under corruptions, {data['n']:,} {data['name']} {data['split']} images, by severity",
        ("corruption", *map(str, severities), "mean", "ECE", "conf", *(["cos", "left"] * has_maps)),
        (_corruption_line(each["corruption"], each["severities"][1:], has_maps) for each in cell["corruptions"]),
    )
    say = [
        "ECE, conf: expected calibration error (15 bins) and mean confidence in %, mean over severities",
        *[
            f"{word}, mean over severities and layers: {cell['meaning'][key]}"
            for word, key in _MAPS.items()
            if has_maps
        ],
        *[f"left out: {name}, {why}" for name, why in cell["refused"].items()],
    ]
    for sentence in say:
        stdout.print(f"- {sentence}", markup=False, soft_wrap=True)


_MAPS = {"cos": "cos", "left": "residue"}


def _corruption_line(name: str, parts: list[Row], has_maps: bool) -> tuple[str, ...]:
    """`parts`: one per severity."""
    accuracy, ece, confidence = (
        [100 * part[key]["value"] for part in parts] for key in ("accuracy", "ece", "confidence")
    )
    numbers = [f"{value:.1f}" for value in (*accuracy, *(sum(v) / len(v) for v in (accuracy, ece, confidence)))]
    for key in _MAPS.values() if has_maps else ():
        values = [layer[key]["value"] for part in parts for layer in part["layers"]]
        known = [value for value in values if value is not None]
        numbers.append(f"{sum(known) / len(known):.2f}" if known else "-")
    return (name, *numbers)


def _published(number: Row | None) -> str:
    if number is None:
        return "-"
    return f"{number['value']:.1f} %" if "value" in number else f"CLIP {number['gain']:+.1f}"
