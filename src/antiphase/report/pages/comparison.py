"""A comparison of two runs as a page."""

from __future__ import annotations

import shlex
from typing import Any

from antiphase.config import Budget
from antiphase.report.figures.models import AttackedModel, MeasuredModel, sensitivity_figure, success_figure
from antiphase.report.page_parts import Column, Model, Page, Section, Slot, Table, Value
from antiphase.report.pages.cards import accuracy, command
from antiphase.report.sentences import findings
from antiphase.results.comparison_rule import is_significant
from antiphase.tables import interval_of, percent

Row = dict[str, Any]
NEEDS = ("models", "paired", "config", "data", "differences", "denominators", "environment")
RATES = {"robust_accuracy": "robust acc.", "asr_change": "asr_change", "asr_correct": "asr_correct"}


def comparison_page(comparison: Row, source: str = "comparison.json") -> Page:
    """The findings, a card for each model, the lens, attack success, and the sensitivity of the maps."""
    models = comparison["models"]
    names = [model["name"] for model in models]
    headline, *others = findings(comparison)
    looks = tuple((n, cell) for n, cell in zip(names, comparison.get("looks") or []) if cell)
    data = [] if models[0]["epochs"] else [f"--data {shlex.quote(comparison['data']['name'])}"]
    folders = [model.get("folder", model["name"]) for model in models]
    again = command("compare", folders, *data, "--out FOLDER")
    return Page(
        title=" and ".join(names),
        lede=_lede(comparison),
        headline=headline,
        findings=tuple(others),
        models=tuple(_card(model, comparison["data"]["n"]) for model in models),
        looks=looks,
        no_lens=None if looks else Slot(study="lens", command=again, why="This comparison kept no maps for the lens."),
        sections=(_under_attack(comparison), _inside(comparison)),
        made=_made(comparison),
        source=source,
    )


def _lede(c: Row) -> str:
    if not c["models"][0]["epochs"]:
        how = f"that classify {c['data']['name']} by prompts"
    else:
        how = f"trained {'' if c['differences'] else 'the same way '}on {c['data']['name']}"
    return (
        f"What does the subtraction in differential attention cost in robustness? Two models {how}, attacked and measured on "
        f"the same {c['data']['n']} {c['data']['split']} images with the same random starts."
    )


def _card(model: Row, n: int) -> Model:
    clean = model["attacks"][0]["rates"]["clean_accuracy"]
    trained = model["epochs"]
    facts = [
        ("parameters", Value(f"{model['parameters']:,}")),
        (f"clean accuracy (n = {n} attacked)", Value(percent(clean), interval_of(clean))),
        *(
            [
                (
                    f"train accuracy, last of {trained} epochs",
                    accuracy(model["train_accuracy"], model.get("train_images")),
                )
            ]
            if trained
            else []
        ),
        (
            f"{'' if trained else 'zero-shot '}test accuracy (n = {model['test_images']})",
            accuracy(model["test_accuracy"], model["test_images"]),
        ),
        *(
            (f"λ of layer {i} (from {row['lambda_init']:.3g})", Value(f"{row['lambda']:.3f}"))
            for i, row in enumerate(model["lambda"], start=1)
        ),
    ]
    return Model(name=model["name"], title=f"{model['title']}, depth {model['depth']}", facts=tuple(facts))


# ------------------------------------------------------------------------------------------------- sections
def _under_attack(c: Row) -> Section:
    models = [AttackedModel(model["name"], i, model["attacks"]) for i, model in enumerate(c["models"])]
    return Section(
        name="under-attack",
        title="Under attack",
        note=f"PGD, {c['config']['steps']} steps, {c['config']['runs']} random starts, Linf, away from the true label.",
        parts=(
            success_figure(
                "attack-success",
                "Attack success",
                models,
                "Bands are 95 % Wilson intervals, the starts of one image counted as one cluster.",
            ),
            _attack_table(c),
        ),
    )


def _attack_table(c: Row) -> Table:
    both = f"both right (n = {c['paired'][0]['both_right']['n']})"
    columns = [Column(title="budget", words=True)]
    columns += [Column(title=t, group=m["name"], model=m["name"]) for m in c["models"] for t in RATES.values()]
    columns += [Column(title="broken", group=both), Column(title="p (Holm)", group=both)]
    rows = []
    for pair, *cells in zip(c["paired"], *(model["attacks"] for model in c["models"])):
        test = pair["both_right"]
        rates = [cell["rates"][name] for cell in cells for name in RATES]
        strong = is_significant(test)
        rows.append(
            (
                Value(str(Budget(pair["eps"]))),
                *(Value(percent(rate), interval_of(rate)) for rate in rates),
                Value(f"{test['first']} : {test['second']}", strong=strong),
                Value(f"{test['p_holm']:.2g}", strong=strong),
            )
        )
    meanings = " ".join(f"{name} {meaning}." for name, meaning in c["denominators"].items())
    return Table(
        name="attack-rates",
        title="Rates and paired tests",
        columns=tuple(columns),
        rows=tuple(rows),
        note=f"{meanings} The last columns count, of the images that both models classify correctly, those that at least one "
        "start breaks for each model; McNemar's test, Holm-corrected over the budgets. An image that is wrong from the start is "
        "pushed deeper into its wrong class by this attack, so it says little about robustness.",
        data=_attack_data(c),
    )


def _attack_data(c: Row) -> dict[str, list[Any]]:
    flat = [
        (Budget(cell["eps"]), model["name"], name, rate["value"], *(rate["interval"] or (None, None)), rate["n"])
        for model in c["models"]
        for cell in model["attacks"]
        for name, rate in cell["rates"].items()
    ]
    names = ("eps", "model", "reading", "ours", "low", "high", "n")
    return {name: [row[i] for row in flat] for i, name in enumerate(names)}


def _inside(c: Row) -> Section:
    models = [MeasuredModel(m["name"], i, m["lipschitz"], m["alignment"]) for i, m in enumerate(c["models"])]
    first = models[0].lipschitz
    note = (
        f"Largest ‖A(x+ξ) − A(x)‖ / ‖ξ‖ over {c['config']['draws']} draws of ξ uniform in ±{Budget(first['eps'])}, per image "
        f"(n = {first['data']['n']}): a lower bound, not a certificate. Rows of A1 − λA2 sum to 1 − λ, and twins differ in "
        "their number of heads, so absolute values are not on the same footing: the findings give them per head and relative "
        "to the map too."
    )
    if any(model.alignment for model in models):
        note += (
            " Cosine: between the Jacobians of A1 and A2 with respect to the pixels, one entry per image and head. Left of "
            "zero the branches react in opposite directions; the subtraction amplifies already from κ/2 down, κ = λ‖J2‖/‖J1‖."
        )
    figure = sensitivity_figure("sensitivity", "Sensitivity of the maps", models, note)
    return Section(name="inside", title="Inside the attention", parts=(figure,))


def _made(c: Row) -> tuple[tuple[str, str], ...]:
    data, environment = c["data"], c["environment"]
    trained = [(model["name"], _training(model)) for model in c["models"]]
    return (
        ("data", f"{data['name']}, {data['split']}, n = {data['n']}, fingerprint {data['fingerprint']}"),
        ("attack seed", str(c["config"]["seed"])),
        *trained,
        *((name, str(version)) for name, version in environment["versions"].items()),
        ("threads", f"{environment['threads']} ({environment['cpu_capability']})"),
    )


def _training(model: Row) -> str:
    if model["epochs"]:
        return f"{model['epochs']} epochs, training seed {model['training_seed']}"
    how = f"{model['pair_epochs']} epochs on pairs" if model.get("pair_epochs") else "converted"
    return f"{how}, prompts {model['prompts']}"
