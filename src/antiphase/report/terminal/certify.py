"""What `antiphase certify` prints: certified accuracy by radius, paired tests of two runs, the sandwich of a few images."""

from __future__ import annotations

from typing import Any

from antiphase.console import stdout
from antiphase.report.numbers import interval_text
from antiphase.report.sentences import out_of_reach
from antiphase.report.terminal.tables import table
from antiphase.tables import number, with_interval

Row = dict[str, Any]


def show_certificates(result: Row) -> None:
    runs, config = result["runs"], result["config"]
    for run in runs:
        clean = with_interval(run["accuracy"])
        stdout.print(f"{run['title']} in {run['folder']}: clean accuracy without noise {clean}", markup=False)
    for place, first in enumerate(runs[0]["certificates"]):
        of_runs = [run["certificates"][place] for run in runs]
        tests = {test["radius"]: test for test in result["paired"] if test["sigma"] == first["sigma"]}
        data = f"{result['data']['n']} {result['data']['name']} {result['data']['split']} images"
        table(
            f"\ncertified accuracy of the model smoothed at sigma {first['sigma']:g}, n = {data}, 95 % intervals",
            ("L2 radius", *(run["name"] for run in runs), *(["McNemar p (Holm)"] if tests else [])),
            [
                *(
                    (
                        f"{rates[0]['radius']:g}",
                        *map(with_interval, rates),
                        *([f"{tests[rates[0]['radius']]['p_holm']:.2g}"] if tests else []),
                    )
                    for rates in zip(*(own["rates"] for own in of_runs))
                ),
                *(
                    (f"{radius:g}", *["out of reach"] * len(runs), *(["-"] if tests else []))
                    for radius in first["out_of_reach"]
                ),
            ],
        )
        if first["out_of_reach"]:
            sentence = out_of_reach(first["out_of_reach"], config["samples"], first["sigma"], config["alpha"])
            stdout.print(sentence, markup=False)
        for run, own in zip(runs, of_runs):
            average = own["average_radius"]
            around = "" if average["interval"] is None else f" {interval_text(average['interval'], '')}"
            stdout.print(
                f"{run['name']}: abstains on {with_interval(own['abstained'])}; average certified radius "
                f"{number(average['value'])}{around}",
                markup=False,
            )
    for run in runs:
        for own in run["certificates"]:
            _show_sandwich(run["name"], own)
    stdout.print(
        f"\nA certificate is of the smoothed model, which is another function than the model itself, and wrong with a chance of "
        f"at most {config['alpha']:g} per image: docs/certify.md.",
        markup=False,
    )


def _show_sandwich(name: str, own: Row) -> None:
    """certified <= true <= attacked; the model itself beside it."""
    if not own["sandwich"]:
        return
    table(
        f"\n{name} at sigma {own['sigma']:g}, L2: certified <= true radius of the smoothed model <= attacked",
        ("image", "label", "smoothed", "certified", "attacked", "becomes", "model itself, attacked"),
        (
            (
                str(row["id"]),
                str(row["label"]),
                "abstains" if row["predicted"] is None else str(row["predicted"]),
                number(row["certified"]),
                number(row["attacked"]),
                "-" if row["becomes"] is None else str(row["becomes"]),
                number(row["model_itself"]),
            )
            for row in own["sandwich"]
        ),
    )
    for flag in own["flags"]:
        stdout.print(f"red flag: {flag}", style="red", markup=False)
