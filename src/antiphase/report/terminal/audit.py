"""What `antiphase audit` prints: each model under attack, layer by layer, and what to make of it in sentences."""

from __future__ import annotations

from typing import Any

from antiphase.config import Budget
from antiphase.console import stdout
from antiphase.report.numbers import interval_text, value_text
from antiphase.report.pages.audit import audit_findings
from antiphase.report.terminal.measure import show_interventions
from antiphase.report.terminal.tables import table
from antiphase.tables import number, short_layer, with_interval

Row = dict[str, Any]


def show_audit(result: Row) -> None:
    models, data = result["models"], result["data"]
    table(
        f"{data['n']} {data['name']} {data['split']} images, 95 % intervals: success of PGD on correctly classified images",
        ("eps", *(model["name"] for model in models)),
        [
            ("clean accuracy", *(with_interval(model["clean_accuracy"]) for model in models)),
            *(
                (str(Budget(rows[0]["eps"])), *(with_interval(row["rates"]["asr_correct"]) for row in rows))
                for rows in zip(*(model["pgd"] for model in models))
            ),
        ],
    )
    for model in models:
        for row in model["judged"]:
            if not row["either"]["n"]:
                continue  # a finding says that no image is classified correctly
            stdout.print(
                f"{model['name']} judged at {Budget(row['eps'])} on {row['robust_accuracy']['n']} images: "
                f"PGD fools {with_interval(row['pgd'])}, {' and '.join(row['attacks'])} {with_interval(row['judge'])}, "
                f"either {with_interval(row['either'])} of the correct ones",
                markup=False,
            )
        if model["lipschitz"]:
            table(
                f"{model['name']}: local Lipschitz of the maps (a lower bound), n = {model['lipschitz']['data']['n']} images",
                ("layer", "max", "per head", "relative"),
                (
                    (short_layer(row["layer"]), *(number(row[key]) for key in ("max", "per_head_max", "relative_max")))
                    for row in model["lipschitz"]["layers"]
                ),
            )
        if model["interventions"]:
            stdout.print(model["name"], markup=False)
            show_interventions([model["interventions"]])
    if result["comparison"]:
        _show_pairs(result)
    for sentence in audit_findings(result):
        stdout.print(f"- {sentence}", markup=False)
    for model in models:
        for flag in model["flags"]:
            stdout.print(f"red flag, {model['name']}: {flag}", style="red", markup=False)


def _show_pairs(result: Row) -> None:
    first, second = (model["name"] for model in result["models"])
    table(
        f"images fooled, {first} less {second}, of those that both classify correctly",
        ("attack", "eps", "difference", "95 % interval", "n", "McNemar p (Holm)"),
        (
            (
                name,
                str(Budget(row["eps"])),
                value_text(row["difference"]["value"], "points"),
                interval_text(row["difference"]["interval"], "points"),
                str(row["difference"]["n"]),
                f"{row['both_right']['p_holm']:.2g}",
            )
            for name, part in (("PGD", "by_pgd"), ("judge", "by_judge"))
            for row in result["comparison"][part]["paired"]
        ),
    )
