"""An audit as a page: what was found in sentences, the judge beside PGD, the pair, then everything that runs have on a page.

No torch: only files are read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from antiphase.config import Budget
from antiphase.report.numbers import interval_text, value_text
from antiphase.report.page_parts import Column, Page, Section, Slot, Table, Value
from antiphase.report.pages.runs import runs_page
from antiphase.report.sentences import capital
from antiphase.tables import number, percent, with_interval

Row = dict[str, Any]


def audit_page(audit: Row) -> Page:
    """The page of the runs that were audited, with the findings of the audit before what is stored of them."""
    models = audit["models"]
    page = runs_page([Path(model["folder"]) for model in models])
    flags = tuple(f"Red flag, {model['name']}: {flag}." for model in models for flag in model["flags"])
    judged = (_judge_table(audit), *([_pair_table(audit), _transfer_table(audit)] if audit["comparison"] else []))
    changed = tuple(_intervention_table(model) for model in models if model["interventions"])
    lens = page.no_lens
    if lens is not None and (why := _no_lens(audit)):
        lens = Slot(study="lens", command=lens.command, why=why)
    return replace(
        page,
        title=f"Audit of {' beside '.join(model['name'] for model in models)}",
        lede=(
            f"{audit['data']['n']} {audit['data']['split']} images of {audit['data']['name']}. Success is over the images that "
            "are classified correctly; PGD runs on all of them, and AutoAttack judges on some. Intervals are 95 %."
        ),
        findings=(*audit_findings(audit), *flags, *page.findings),
        no_lens=lens,
        sections=(
            Section(name="judged", title="Judged by AutoAttack", short="Judged", parts=judged),
            *([Section(name="interventions", title="Is it the subtraction?", parts=changed)] if changed else []),
            *_filled(page.sections),
        ),
    )


def _filled(sections: tuple[Section, ...]) -> tuple[Section, ...]:
    """Without sections that hold nothing but places for what was not asked here."""
    return tuple(section for section in sections if not all(isinstance(part, Slot) for part in section.parts))


def _no_lens(audit: Row) -> str:
    reasons = [
        f"{m['name']}: {row['why']}"
        for m in audit["models"]
        for row in m["left_out"]
        if row["what"] in ("attention", "look")
    ]
    return "; ".join(reasons)


def audit_findings(audit: Row) -> list[str]:
    """What an audit found, in sentences; with a baseline the verdict comes first."""
    sentences = []
    if pair := audit["comparison"]:
        sentences += [capital(pair[part]["verdict"]["sentence"]) for part in ("by_judge", "by_pgd")]
        if pair["unequal"]:
            sentences.append(f"The two are not alike: {'; '.join(pair['unequal'])}.")
    sentences += _too_small(audit["models"])
    for model in audit["models"]:
        sentences += _about(model)
    sentences.append("Intervals and tests cover the choice of images, not the choice of a training seed.")
    return sentences


def _too_small(models: list[Row]) -> list[str]:
    """That no budget of PGD fooled anything, and what to do: such an audit tells nothing of robustness beyond the largest one."""
    rates = [(row["eps"], row["rates"]["asr_correct"]) for model in models for row in model["pgd"]]
    if any(rate["hits"] for _, rate in rates) or not any(rate["n"] for _, rate in rates):
        return []
    largest = max(eps for eps, _ in rates)
    larger = f", as in --eps {Budget(min(1.0, 4 * largest))}" if largest < 1 else ""
    return [
        f"PGD fooled no correctly classified image at any budget, the largest being {Budget(largest)}: give larger --eps{larger}."
    ]


def _about(model: Row) -> list[str]:
    name, sentences = model["name"], []
    if model["random_weights"]:
        sentences.append(
            f"{name} has random weights: its numbers are those of a dry run and say nothing about a trained model."
        )
    if "classes_by" in model:  # a CLIP, whose numbers depend on them
        sentences.append(f"{name}: {model['classes_by']}.")
    for row in model["judged"]:
        n = row["either"]["n"]
        if not n:
            sentences.append(_none_right(model, row))
            continue
        sentences.append(
            f"{name} is right on {with_interval(model['clean_accuracy'])} of the images; at {Budget(row['eps'])} "
            f"{'AutoAttack or PGD fools' if 'AutoAttack' in row['attacks'] else 'one of the attacks fools'} "
            f"{with_interval(row['either'])} of {n} correct ones ({row['only_judge']} that PGD alone did not)."
        )
    near = model["smallest_l2"]["correct"]
    if near["median"]["value"] is not None:
        ends = near["median"]["interval"]
        around = f" [{', '.join(map(number, ends))}]" if ends and None not in ends else ""  # too few images have none
        sentences.append(
            f"The smallest L2 that fools {name} has the median {number(near['median']['value'])}{around} (found for "
            f"{near['found']['hits']} of {near['found']['n']} correct images)."
        )
    if model["agreement"]:
        sentences.append(f"{name}: {model['agreement']['words']}.")
    if model["alignment"]:
        layers = model["alignment"]["layers"]
        most = max(layers, key=lambda row: row["amplifying"]["value"] or 0)
        rank = "" if len(layers) == 1 else f", more than in any other of its {len(layers)} layers with two branches"
        sentences.append(
            f"In {most['layer']} of {name} the subtraction amplifies {percent(most['amplifying'])} of (image, head) pairs{rank}."
        )
    if model["interventions"]:
        sentences.append(_held(model))
    if model["lambda"]:
        low, high = min(row["least"] for row in model["lambda"]), max(row["most"] for row in model["lambda"])
        where = f"is {number(low)}" if number(low) == number(high) else f"lies between {number(low)} and {number(high)}"
        sentences.append(f"Lambda of {name} {where} over its layers.")
    sentences += [f"{name}: no {row['what']}: {row['why']}." for row in model["left_out"]]
    return sentences


def _none_right(model: Row, row: Row) -> str:
    """Of a model without a correct prediction among the images that are judged; one of random weights needs no remedy."""
    remedy = "" if model["random_weights"] else ": check its weights, its preprocessing and the order of its classes"
    return (
        f"{model['name']} classifies none of the {row['robust_accuracy']['n']} images correctly on which it is judged, so there "
        f"is nothing to fool at {Budget(row['eps'])}{remedy}."
    )


def _held(model: Row) -> str:
    """What attack success becomes when A2 does not move with the pixels: the share of it that needs the second branch."""
    cell = model["interventions"]
    (held,) = (row for row in cell["interventions"] if row["intervention"] == "hold=A2")
    apart = held["against_none"]["asr_both_correct"]
    if apart["value"] is None:
        return f"No image is right both with and without A2 of {model['name']} held at its clean map."
    change = f"{value_text(apart['value'], 'points')} {interval_text(apart['interval'], 'points')}"
    return (
        f"With A2 of {model['name']} held at its clean map, success of PGD at {Budget(cell['eps'])} changes by {change} (of the "
        f"{apart['n']} images that are right either way): below 0, the second branch helps the attack."
    )


def _judge_table(audit: Row) -> Table:
    rows, data = [], []
    for model in audit["models"]:
        for row in model["judged"]:
            rates = [row[key] for key in ("pgd", "judge", "either", "robust_accuracy")]
            texts = [Value(percent(r), interval_text(r["interval"], "%")) for r in rates]
            rows.append((Value(model["name"]), Value(str(Budget(row["eps"]))), *texts))
            data.append((model["name"], row["eps"], *(r["value"] for r in rates), row["either"]["n"]))
    titles = ("model", "eps", "fooled by PGD", "by AutoAttack", "by either", "still correct, of all")
    keys = ("model", "eps", "pgd", "judge", "either", "robust_accuracy", "correct_images")
    return Table(
        name="judged",
        title="PGD and its judge on the same images",
        columns=tuple(Column(title=title, words=title == "model") for title in titles),
        rows=tuple(rows),
        data={key: [row[i] for row in data] for i, key in enumerate(keys)},
        note="Of the correctly classified images, but for the last column. An image counts as fooled if either attack fooled it.",
    )


def _pair_table(audit: Row) -> Table:
    first, second = (model["name"] for model in audit["models"])
    lines = [
        (attack, row)
        for attack, part in (("PGD", "by_pgd"), ("judge", "by_judge"))
        for row in audit["comparison"][part]["paired"]
    ]
    rows = [
        (
            Value(attack),
            Value(str(Budget(row["eps"]))),
            Value(
                value_text(row["difference"]["value"], "points"), interval_text(row["difference"]["interval"], "points")
            ),
            Value(str(row["difference"]["n"])),
            Value(f"{row['both_right']['p_holm']:.2g}"),
        )
        for attack, row in lines
    ]
    ends = [row["difference"]["interval"] or (None, None) for _, row in lines]
    return Table(
        name="pair",
        title=f"Images fooled: {first} less {second}",
        columns=tuple(
            Column(title=t, words=t == "attack") for t in ("attack", "eps", "difference", "n", "McNemar p (Holm)")
        ),
        rows=tuple(rows),
        data={
            "attack": [attack for attack, _ in lines],
            "eps": [row["eps"] for _, row in lines],
            "difference": [row["difference"]["value"] for _, row in lines],
            "low": [low for low, _ in ends],
            "high": [high for _, high in ends],
            "n": [row["difference"]["n"] for _, row in lines],
            "p_holm": [row["both_right"]["p_holm"] for _, row in lines],
        },
        note="Of the images that both classify correctly, which are the same for both, as are the random starts.",
    )


def _transfer_table(audit: Row) -> Table:
    made = audit["transfer"]
    names, keys = made["models"], ("transfer_change", "transfer_correct", "transfer_fooled")
    pairs = [(i, j) for i in range(len(names)) for j in range(len(names)) if i != j]
    rates = [[made["matrix"][i][j][key] for key in keys] for i, j in pairs]
    titles = ("made for", "shown to", "changed, of all", "fooled, of correct", "of those that fooled the source")
    return Table(
        name="transfer",
        title="Images made for one model and shown to the other",
        columns=tuple(Column(title=t, words=t in titles[:2]) for t in titles),
        rows=tuple(
            (Value(names[i]), Value(names[j]), *(Value(percent(r), interval_text(r["interval"], "%")) for r in row))
            for (i, j), row in zip(pairs, rates)
        ),
        data={
            "made_for": [names[i] for i, _ in pairs],
            "shown_to": [names[j] for _, j in pairs],
            **{key: [row[k]["value"] for row in rates] for k, key in enumerate(keys)},
        },
        note=f"PGD at {Budget(made['attack']['within']['eps'])}, n = {made['n']} images.",
    )


def _intervention_table(model: Row) -> Table:
    cell = model["interventions"]
    rows, keys = cell["interventions"], ("accuracy", "asr_correct", "transfer_fooled")
    titles = ("intervention", "accuracy", "fooled anew, of correct", "against none, points", "fooled by transfer")
    body, apart = [], [row["against_none"]["asr_both_correct"] for row in rows]
    for row, difference in zip(rows, apart):
        accuracy, anew, transferred = (Value(percent(row[k]), interval_text(row[k]["interval"], "%")) for k in keys)
        against = Value(value_text(difference["value"], "points"), interval_text(difference["interval"], "points"))
        first = row["intervention"] == "none"
        body.append((Value(row["intervention"]), accuracy, anew, Value("-") if first else against, transferred))
    return Table(
        name=f"interventions-{model['name']}",
        title=f"{model['name']}, attacked anew with one thing changed",
        columns=tuple(Column(title=t, words=t == titles[0]) for t in titles),
        rows=tuple(body),
        data={
            "intervention": [row["intervention"] for row in rows],
            **{key: [row[key]["value"] for row in rows] for key in keys},
            "against_none": [difference["value"] for difference in apart],
        },
        note=(
            f"PGD at {Budget(cell['eps'])}, n = {cell['data']['n']} images. lam=0: A1 alone; swap: A2 - lambda A1; hold: that "
            "map stays as it is for the clean image. Against none: of the images that are right with and without the change. "
            "Transfer: the images that fooled the untouched model."
        ),
    )
