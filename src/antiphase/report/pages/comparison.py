"""A comparison of two runs as a page."""

from __future__ import annotations

import shlex
from typing import Any

from antiphase.config import Budget
from antiphase.console import all_visible
from antiphase.report.figures.models import (
    AttackedModel,
    MeasuredModel,
    cosine_figure,
    sensitivity_figure,
    success_figure,
)
from antiphase.report.page_parts import Column, Figure, Model, Page, Section, Slot, Table, Value
from antiphase.report.pages.cards import accuracy, command
from antiphase.report.pages.key_numbers import key_numbers
from antiphase.report.sentences import capital, caveats, comparison_headline
from antiphase.report.words import detail_words
from antiphase.results.comparison_rule import is_significant
from antiphase.tables import interval_of, number, percent

Row = dict[str, Any]
NEEDS = ("models", "paired", "config", "data", "differences", "denominators", "environment")
RATES = {"robust_accuracy": "robust", "asr_correct": "fooled, correct", "asr_change": "fooled, all"}


def comparison_page(comparison: Row, source: str = "comparison.json") -> Page:
    """The headline beside attack success, the findings as one number each, the models, the lens, and every number in tables."""
    comparison = all_visible(comparison)
    models = comparison["models"]
    names = [model["name"] for model in models]
    headline = comparison_headline(comparison)
    looks = tuple((n, cell) for n, cell in zip(names, comparison.get("looks") or []) if cell)
    data = [] if models[0]["epochs"] else [f"--data {shlex.quote(comparison['data']['name'])}"]
    folders = [model.get("folder", model["name"]) for model in models]
    again = command("compare", folders, *data, "--out FOLDER")
    return Page(
        title=" and ".join(names),
        lede=_lede(comparison),
        headline=headline.first_sentence,
        evidence=headline.second_sentence,
        first_figure=_success(comparison),
        key_numbers=key_numbers(comparison),
        findings=tuple(caveats(comparison)),
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
        f"What does the subtraction in differential attention cost in robustness? Two models {how}, on the same "
        f"{c['data']['n']} {c['data']['split']} images, with the same random starts."
    )


def _card(model: Row, n: int) -> Model:
    clean = model["attacks"][0]["rates"]["clean_accuracy"]
    trained = model["epochs"]
    facts = [
        ("parameters", Value(f"{model['parameters']:,}")),
        ("clean accuracy, attacked images", Value(percent(clean), f"{interval_of(clean)}, n = {n}")),
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
            f"{'' if trained else 'zero-shot '}test accuracy",
            accuracy(model["test_accuracy"], model["test_images"]),
        ),
        *(
            (f"λ of layer {i} (from {row['lambda_init']:.3g})", Value(f"{row['lambda']:.3f}"))
            for i, row in enumerate(model["lambda"], start=1)
        ),
    ]
    return Model(name=model["name"], title=f"{model['title']}, depth {model['depth']}", facts=tuple(facts))


# ------------------------------------------------------------------------------------------------- sections
def _success(c: Row) -> Figure:
    models = [AttackedModel(model["name"], i, model["attacks"]) for i, model in enumerate(c["models"])]
    note = "Bands: 95 % intervals, the restarts of an image count as one cluster."
    return success_figure("attack-success", "Attack success", models, note, one_at_a_time=True)


def _under_attack(c: Row) -> Section:
    return Section(
        name="under-attack",
        title="Under attack",
        short="Attack",
        note=f"PGD, {c['config']['steps']} steps, {c['config']['runs']} random starts, Linf, away from the true label.",
        parts=(_attack_table(c),),
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
    meanings = " ".join(f"{capital(title)}: {c['denominators'][name]}." for name, title in RATES.items())
    return Table(
        name="attack-rates",
        title="Rates and paired tests",
        columns=tuple(columns),
        rows=tuple(rows),
        note=f"{meanings} A restart is one random start of the attack. The last columns count, of the images that both models "
        "classify correctly, those that at least one restart breaks for each model; McNemar's test, Holm-corrected over the "
        "budgets. An image that is wrong from the start is pushed deeper into its wrong class by this attack, so it says little "
        "about robustness.",
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
    sensitivity = sensitivity_figure(
        "sensitivity",
        "Sensitivity of the maps",
        models,
        f"Largest ‖A(x+ξ) − A(x)‖ / ‖ξ‖ over {c['config']['draws']} draws of ξ uniform in ±{Budget(first['eps'])}, divided by "
        f"‖A(x)‖; one value per image (n = {first['data']['n']}), a lower bound, no certificate. Absolute values do not compare: "
        "rows of A1 − λA2 sum to 1 − λ, and twins differ in their number of heads.",
    )
    cosines = cosine_figure(
        "cosines",
        "Opposition of the branches",
        models,
        "Cosine between the Jacobians of A1 and A2 with respect to the pixels, one per image and head. Undecided: within two "
        "standard errors of zero, and so in no share of opposed pairs. The subtraction amplifies already from κ/2 down, "
        "κ = λ‖J2‖/‖J1‖.",
    )
    tables = (_sensitivity_table(c), *([_alignment_table(c)] if cosines else []))
    figures = (sensitivity, *([cosines] if cosines else []))
    return Section(name="inside", title="Inside the attention", short="Inside", parts=(*figures, *tables), beside=True)


SENSITIVITY = {"relative_max": "relative to the map", "max": "absolute", "per_head_max": "absolute, per head"}


def _sensitivity_table(c: Row) -> Table:
    layers = [(m["name"], i, row) for m in c["models"] for i, row in enumerate(m["lipschitz"]["layers"], start=1)]
    return Table(
        name="sensitivity-by-layer",
        title="Sensitivity, layer by layer",
        columns=(
            Column(title="model", words=True),
            Column(title="layer"),
            *(Column(title=words) for words in SENSITIVITY.values()),
            Column(title="images"),
        ),
        rows=tuple(
            (
                Value(name),
                Value(str(i)),
                *(Value(number(row[key]), strong=key == "relative_max") for key in SENSITIVITY),
                Value(str(row["n"])),
            )
            for name, i, row in layers
        ),
        note="Means over images.",
        data={
            "model": [name for name, *_ in layers],
            "layer": [i for _, i, _ in layers],
            **{key: [row[key] for *_, row in layers] for key in SENSITIVITY},
            "n": [row["n"] for *_, row in layers],
        },
    )


ALIGNMENT = {
    "negative": "opposed (cos < 0)",
    "undecided": "undecided",
    "cos": "mean cosine",
    "amplifying": "amplified",
    "amplification": "by a factor",
    "energy": "= energy",
    "angle": "× angle",
    "gate": "× gate",
    "integral": "× mean row",
    "lambda": "λ",
}


def _alignment_table(c: Row) -> Table:
    """Each layer of each differential model, its controls beneath it; layers are matched by their place."""
    rows = [
        (model["name"], i + 1, pairs, layers[i])
        for model in c["models"]
        if model["alignment"]
        for i in range(len(model["alignment"]["layers"]))
        for pairs, layers in {"own": model["alignment"]["layers"], **model["alignment"]["controls"]}.items()
        if i < len(layers)
    ]
    keys = [key for key in ALIGNMENT if any(row.get(key) is not None for *_, row in rows)]
    names = list(dict.fromkeys(name for name, *_ in rows))
    several = len(names) > 1
    return Table(
        name="cosines-by-layer",
        title=f"Branches of {' and '.join(names)}, layer by layer",
        columns=(
            *([Column(title="model", words=True)] if several else []),
            Column(title="layer"),
            Column(title="pairs", words=True),
            *(Column(title=ALIGNMENT[key]) for key in keys),
        ),
        rows=tuple(
            (
                *([Value(name)] if several else []),
                Value(str(i)),
                Value("A1 and A2 of a head" if pairs == "own" else detail_words(f"control: {pairs}")),
                *(_alignment_value(row.get(key), strong=pairs == "own" and key == "negative") for key in keys),
            )
            for name, i, pairs, row in rows
        ),
        note="Opposed: of the pairs whose sign is decided. Amplified: A1 − λA2 is more sensitive than A1 alone; by what factor "
        "on average, and how much of it is the energy that a second branch at a right angle adds, and the angle between the two.",
        data={
            "model": [name for name, *_ in rows],
            "layer": [i for _, i, *_ in rows],
            "pairs": [pairs for *_, pairs, _ in rows],
            **{key: [_plain(row.get(key)) for *_, row in rows] for key in keys},
        },
    )


def _alignment_value(measured: Row | float | None, strong: bool) -> Value:
    """A rate with its interval, or a mean."""
    if isinstance(measured, dict):
        return Value(percent(measured), interval_of(measured), strong=strong)
    return Value("-" if measured is None else f"{measured:.2f}")


def _plain(measured: Row | float | None) -> Any:
    return measured["value"] if isinstance(measured, dict) else measured


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
