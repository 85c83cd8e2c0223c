"""What `antiphase measure` prints: one table per measure, layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphase.config import Budget
from antiphase.console import stdout
from antiphase.report.numbers import attack_text
from antiphase.report.terminal.tables import table
from antiphase.tables import number, percent, short_layer, with_interval

Row = dict[str, Any]


def show_measures(result: Row) -> None:
    for measure, show in SHOWN.items():
        if measure in result:
            show(result[measure])


def by_layers(rows: list[Row]) -> list[Row]:
    """Rows of one layer together, layers in the order of the model (as words, blocks.10 would come before blocks.2)."""
    place = {layer: i for i, layer in enumerate(dict.fromkeys(row["layer"] for row in rows))}
    return sorted(rows, key=lambda row: place[row["layer"]])


def _show_lipschitz(cells: list[Row]) -> None:
    for cell in cells:
        keys = {
            "sample": ("max", "max_se", "per_head_max", "relative_max", "linf_max", "mean", "rms"),
            "sharp": ("sample", "power", "ascent", "relative_ascent", "sample_short_by"),
        }[cell["estimator"]]
        table(
            f"local Lipschitz of {cell['level']}, n = {cell['data']['n']} images; {cell['reading']}",
            ("layer", *(key.replace("_", " ") for key in keys)),
            ((short_layer(row["layer"]), *(number(row[key]) for key in keys)) for row in cell["layers"]),
        )
        wrong = [row["layer"] for row in cell["layers"] if row.get("sample_at_most_ascent", {"value": 1})["value"] < 1]
        if wrong:
            stdout.print(f"red flag: a sample exceeds what the ascent found in {', '.join(wrong)}", style="red")


def _show_alignment(cells: list[Row]) -> None:
    for cell in cells:
        table(
            f"branch alignment {cell['reading']}, n = {cell['data']['n']} images, shares of (image, head) pairs with 95 % "
            f"intervals, amplification = energy x angle: {cell['meaning']}",
            ("layer", "pairs", "cos", "amplified", "cos < 0, decided", "undecided"),
            (
                (
                    short_layer(row["layer"]),
                    pairs,
                    number(row["cos"]),
                    _split(row),
                    with_interval(row["negative"], 0),
                    percent(row["undecided"], 0),
                )
                for pairs, rows in {"own": cell["layers"], **cell["controls"]}.items()
                for row in rows
            ),
        )
        for row in cell["gamma"]:
            stdout.print(
                f"- {short_layer(row['layer'])} against the baseline's: gamma = ||J1|| / ||J_base|| "
                f"{number(row['gamma_stacked'])} stacked, {number(row['gamma_per_head'])} per head; ||J_DA|| / ||J_base|| "
                f"{number(row['ratio_stacked'])} and {number(row['ratio_per_head'])}, above 1 for "
                f"{with_interval(row['above_one_stacked'], 0)} and {with_interval(row['above_one_per_head'], 0)} of the images",
                markup=False,
            )


def _show_cancellation(cells: list[Row]) -> None:
    for cell in cells:
        table(
            f"cancellation of changes of the maps at eps {Budget(cell['eps'])}, n = {cell['data']['n']} images, "
            f"{cell['coupling']}: alpha = ||d1 - lambda d2|| / (||d1|| + |lambda| ||d2||), below `orthogonal` it cancels; CMRR "
            "above 1 cancels, below 1 amplifies (levels values and held: --json or --out)",
            ("layer", "under", "cos", "alpha", "orthogonal", "CMRR", "cancels"),
            (
                (
                    short_layer(row["layer"]),
                    row["perturbation"],
                    *(number(row[key]) for key in ("cos", "alpha", "reference", "cmrr_median")),
                    with_interval(row["cancels"], 0),
                )
                for row in by_layers(cell["layers"])
                if row["level"] == "maps"
            ),
        )
        for row in cell["common_mode"]:
            if row["statistic"] == "cos" and row["level"] == "maps" and row["matched"]:
                stdout.print(
                    f"- {short_layer(row['layer'])}, {row['noise']} against {row['attack']} of equal l2: "
                    f"{row['verdict']} (cos {number(row['under_noise']['value'])} and "
                    f"{number(row['under_attack']['value'])}, n = {row['difference']['n']}, p = {row['p']:.2g})",
                    markup=False,
                )


def _show_depth(cells: list[Row]) -> None:
    for cell in cells:
        table(
            f"perturbation along the residual stream at eps {Budget(cell['eps'])}, n = {cell['data']['n']} images, means: "
            "gain = change out / change in, slack = gain / largest singular value, vs lambda = 0: change / without subtraction",
            ("block", "under", "relative change", "gain", "slack", "vs lambda = 0"),
            (
                (
                    short_layer(layer),
                    curve["perturbation"],
                    number(curve["relative"][k + 1]["value"]),
                    *(number(curve[key][k]["value"]) for key in ("gains", "slack", "counterfactual")),
                )
                for k, layer in enumerate(cell["curves"][0]["layers"])
                for curve in cell["curves"]
            ),
        )


def _show_correlation(cells: list[Row]) -> None:
    keys = {
        "pearson": "Pearson",
        "divergence": "JS bits",
        "overlap": "top-5",
        "negative_mass": "negative",
        "change_cosine": "cos of changes",
    }
    for cell in cells:
        table(
            f"correlation of the two maps and of their changes, n = {cell['data']['n']} images, {cell['coupling']}",
            ("layer", "images", *keys.values()),
            (
                (short_layer(row["layer"]), row["perturbation"], *(number(row[key]["value"]) for key in keys))
                for row in by_layers(cell["layers"])
            ),
        )


def _show_caption_correlation(cells: list[Row]) -> None:
    keys = {"pearson": "Pearson", "divergence": "JS bits", "overlap": "top-5", "change_cosine": "cos of changes"}
    for cell in cells:
        table(
            f"correlation of the two maps of the text tower, {cell['data']['n']} captions of {cell['data']['name']}; long: "
            f"{cell['long']} tokens or more; inserted: with a random word of the others",
            ("layer", "captions", "n", *keys.values()),
            (
                (
                    row["layer"].removesuffix(".attn"),
                    row["perturbation"],
                    str(row["images"]),
                    *(number(row[key]["value"]) for key in keys),
                )
                for row in by_layers(cell["layers"])
            ),
        )


def _show_focus(cells: list[Row]) -> None:
    keys = ("mass", "area", "entropy", "negative")
    for cell in cells:
        table(
            f"attention on the object at eps {Budget(cell['eps'])}, n = {cell['data']['n']} images, means: mass = share of the "
            "class token's positive weight that lies on its box (looking everywhere alike: area), entropy of that row in bits, "
            "changed: share of predictions (means over all rows: --json or --out)",
            ("layer", "map", "under", *keys, "changed"),
            (
                (
                    short_layer(row["layer"]),
                    row["map"],
                    row["perturbation"],
                    *(number(row[key]["value"]) for key in keys),
                    percent(row["changed"], 0),
                )
                for row in by_layers(cell["layers"])
            ),
        )


def show_interventions(cells: list[Row]) -> None:
    for cell in cells:
        table(
            f"interventions under {attack_text(cell['attack'])} at eps {Budget(cell['eps'])}, n = {cell['data']['n']} images, "
            "95 % intervals; ASR: attacked anew with the intervention, of all images and of those that are correct with it; "
            "minus none: in points, of the images that are correct with and without; transferred: of the images that fooled the "
            "untouched model; L: of the maps, mean over layers",
            ("intervention", "accuracy", "ASR", "of correct", "minus none", "transferred", "L"),
            (
                (
                    row["intervention"],
                    *(with_interval(row[name], 0) for name in ("accuracy", "asr_change", "asr_correct")),
                    "" if row is cell["interventions"][0] else _points(row["against_none"]["asr_both_correct"]),
                    with_interval(row["transfer_fooled"], 0),
                    number(sum(layer["value"] for layer in row["lipschitz"]) / len(row["lipschitz"])),
                )
                for row in cell["interventions"]
            ),
        )
        for flag in dict.fromkeys(flag for row in cell["interventions"] for flag in row["flags"]):
            stdout.print(f"red flag: {flag}", style="red", markup=False)


def _points(difference: Row) -> str:
    """A paired difference of two rates, in points"""
    if difference["value"] is None:
        return "undefined"
    low, high = difference["interval"]
    return f"{100 * difference['value']:+.0f} [{100 * low:+.0f}, {100 * high:+.0f}]"


def _split(row: Row) -> str:
    """The amplification and its causes: the two energies, the angle and, where there is one, a third term by its name."""
    if row["amplification"] is None:
        return "-"
    third = next((f" x {row[name]:.2f} ({name})" for name in ("gate", "integral") if row.get(name) is not None), "")
    return f"{row['amplification']:.2f} = {row['energy']:.2f} x {row['angle']:.2f}{third}"


def _show_lambda(rows: list[Row]) -> None:
    keys = ("lambda", "lambda_init", "drift", "first", "second")
    table(
        "lambda = first - second + lambda_init",
        ("layer", *keys, "flags"),
        ((short_layer(row["layer"]), *(number(row[key]) for key in keys), "; ".join(row["flags"])) for row in rows),
    )


SHOWN: dict[str, Callable[[Any], None]] = {
    "lipschitz": _show_lipschitz,
    "alignment": _show_alignment,
    "cancellation": _show_cancellation,
    "depth": _show_depth,
    "correlation": _show_correlation,
    "focus": _show_focus,
    "caption-correlation": _show_caption_correlation,
    "interventions": show_interventions,
    "lambda": _show_lambda,
}
