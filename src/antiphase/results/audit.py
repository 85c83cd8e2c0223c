"""An audit of one model, or of a model beside a baseline: under attack, judged by AutoAttack, and inside its attention.

Every answer is kept in the folder of its run, so an audit that was interrupted goes on where it stopped. A model and its
baseline get the same images and the same random streams.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from antiphase import runtime
from antiphase.attacks import PGD, Linf
from antiphase.attacks.config import Attack
from antiphase.attacks.question import AttackAnswer, AttackQuestion
from antiphase.attacks.red_flags import FEW, call
from antiphase.config import Budget, InputError, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.measures.attack_rates import DENOMINATORS
from antiphase.measures.questions import (
    AlignmentQuestion,
    CancellationQuestion,
    InterventionQuestion,
    LipschitzQuestion,
)
from antiphase.measures.stats import Verdict, paired_rates
from antiphase.models.clip_config import CLIPConfig
from antiphase.models.config import ViTConfig
from antiphase.models.foreign_config import ForeignConfig, Preprocessing
from antiphase.models.open_model import agreement
from antiphase.models.run import Run, check_classes
from antiphase.models.taps import taps
from antiphase.rates import rate
from antiphase.results.attack import attack_answers
from antiphase.results.compare import paired_tests
from antiphase.results.comparison_rule import decide
from antiphase.results.look import look
from antiphase.results.measure import measure, parameters
from antiphase.results.questions import AuditConfig, LookQuestion
from antiphase.results.transfer import transfer_matrix
from antiphase.store import Content, Question

Row = dict[str, Any]
Device = torch.device | str
UNLIKE = 0.1  # relative difference in parameters above which a comparison is called unequal
ANY = Budget("1/255")  # what an attack costs does not depend on its budget
ACCURACY_GAP = 0.05  # difference in clean accuracy above which it is


def audit(runs: Sequence[Run], images: ImageSet, config: AuditConfig, *, device: Device = "cpu") -> Row:
    """Everything that is asked of one run, or of a run and its baseline, as plain values."""
    check_runs(runs, images)
    named = list(zip(runs, names(runs)))
    curves = [_attacked(run, name, images, config.attacks(), config, device) for run, name in named]
    few, budgets = images.at_most(config.judge_images, config.seed), _judge_eps(config, curves)
    judged = [
        [_judged(run, name, few, curve, eps, config, device) for eps in budgets]
        for (run, name), curve in zip(named, curves)
    ]
    models = [
        _about(run, name)
        | _under_attack(run, name, images, curve, judge, config, device)
        | _inside(run, images, config, budgets[0], device)
        for (run, name), curve, judge in zip(named, curves, judged)
    ]
    for model in models:
        model["flags"] = sorted({*model["flags"], *_judge_flags(model["judged"])})
    return {
        "format": 1,
        "config": to_plain(config),
        "data": {"name": images.name, "split": images.split, "n": len(images), "fingerprint": images.fingerprint},
        "denominators": DENOMINATORS,
        "models": models,
        "comparison": None if len(runs) == 1 else _comparison(models, curves, judged),
        "transfer": None if len(runs) == 1 else _transfer(runs, few, config, budgets[0], device),
        "environment": runtime.environment(),
    }


def check_runs(runs: Sequence[Run], images: ImageSet) -> None:
    """Refuse runs that cannot look at these images, or that are one and the same."""
    for run in runs:
        check_classes(run, images)
    if len(runs) == 2 and runs[0].folder.resolve() == runs[1].folder.resolve():
        raise InputError(f"{runs[0].folder} cannot be its own baseline: name two models")


def names(runs: Sequence[Run]) -> list[str]:
    short = [run.name for run in runs]
    return short if len(set(short)) == len(short) else [str(run.folder) for run in runs]


def _about(run: Run, name: str) -> Row:
    config = run.config
    tower = config.vision if isinstance(config, CLIPConfig) else config
    foreign = config if isinstance(config, ForeignConfig) else None
    maps = tower.heads * (2 if foreign and foreign.is_differential else 1)  # of a layer: our own count heads as maps
    return {
        "name": name,
        "folder": str(run.folder),
        "title": config.title,
        "source": run.source.spec if foreign and run.source.library != "python" else None,
        "random_weights": foreign is not None and run.source.random,
        "parameters": parameters(run),
        "depth": config.depth,
        "heads": tower.heads,
        "maps": maps,
        "width": tower.width,
        "differential": config.is_differential,
        "preprocessing": _preprocessing(config),
        "prompts": run.wording if run.by_prompts else None,
        **({"classes_by": run.classes_by} if run.by_prompts else {}),
        "no_lens": "" if foreign is None else foreign.no_lens,
    }


def _preprocessing(config: Any) -> str:
    if isinstance(config, ForeignConfig):
        return str(config.preprocessing)
    return str(Preprocessing(mean=config.mean, std=config.std)) if isinstance(config, ViTConfig) else "its own"


# ------------------------------------------------------------------------------------------------- under attack


def _judge_eps(config: AuditConfig, curves: Sequence[Sequence[AttackAnswer]]) -> list[Budget]:
    """The budgets that were named; else the one at which PGD fools most nearly half of the correct images of all models.

    Where it is one that fools none, the largest of those: a smaller one could show even less.
    """
    if config.judge_eps:
        return sorted(set(config.judge_eps))
    budgets = [Budget(answer.content["eps"]) for answer in curves[0]]
    fooled = [
        np.mean([answer.fooled[answer.correct].mean() if answer.correct.any() else 0.0 for answer in answers])
        for answers in zip(*curves)
    ]
    nearest = int(np.argmin(np.abs(np.array(fooled) - 0.5)))
    return [budgets[nearest if fooled[nearest] > 0 else int(np.flatnonzero(np.equal(fooled, 0.0))[-1])]]


def _attacked(
    run: Run, name: str, images: ImageSet, attacks: Sequence[Attack], config: AuditConfig, device: Device
) -> list[AttackAnswer]:
    return attack_answers(run, images, attacks, protocol="fast", seed=config.seed, device=device, name=name)


def _judged(
    run: Run,
    name: str,
    few: ImageSet,
    curve: Sequence[AttackAnswer],
    eps: Budget,
    config: AuditConfig,
    device: Device,
) -> AttackAnswer:
    """Some of the images under PGD and under AutoAttack: an image counts as fooled if either fooled it, in that order of rows.

    What fools within a smaller budget of the curve fools within this one.
    """
    rows = [int(np.flatnonzero(np.array(curve[0].content["images"]["id"]) == i)[0]) for i in few.ids]
    smaller = [answer.fooled[rows] for answer in curve if answer.content["eps"] <= float(eps) + 1e-12]
    by_pgd: NDArray[np.bool_] = np.logical_or.reduce([np.zeros(len(rows), bool), *smaller])
    answers = [_attacked(run, name, few, [judge], config, device)[0] for judge in config.judges(eps, few.classes)]
    images = answers[0].content["images"]
    by_judge = np.logical_or.reduce([answer.fooled for answer in answers])
    flags = sorted({flag for answer in answers for flag in answer.content["flags"]})
    return AttackAnswer(
        {
            "eps": float(eps),
            "attacks": [answer.content["attack"]["kind"] for answer in answers],
            "images": {
                "label": images["label"],
                "clean": images["clean"],
                "changed_in_run": [by_pgd.astype(int).tolist(), by_judge.astype(int).tolist()],
            },
            "flags": flags,
        }
    )


def _under_attack(
    run: Run,
    name: str,
    images: ImageSet,
    curve: Sequence[AttackAnswer],
    judged: Sequence[AttackAnswer],
    config: AuditConfig,
    device: Device,
) -> Row:
    near = images.at_most(config.l2_images, config.seed)
    (smallest,) = _attacked(run, name, near, [config.smallest()], config, device)
    held = agreement(run, images)
    every = [*curve, *judged, smallest]
    return {
        "agreement": None if held is None else {**held._asdict(), "words": str(held)},
        "clean_accuracy": curve[0].content["rates"]["clean_accuracy"],
        "pgd": [{"eps": a.content["eps"], "rates": a.content["rates"]} for a in curve],
        "judged": [_judged_row(answer) for answer in judged],
        "smallest_l2": {"n": len(near), **smallest.content["distances"]},
        "flags": sorted({flag for answer in every for flag in answer.content["flags"]}),
    }


def _judged_row(answer: AttackAnswer) -> Row:
    """Success on the correctly classified images: of PGD, of AutoAttack, and of either; and what stays correct, of all."""
    correct = answer.correct
    by_pgd, by_judge = answer.changed
    return {
        "eps": answer.content["eps"],
        "attacks": answer.content["attacks"],
        "pgd": rate(by_pgd[correct]).plain(),
        "judge": rate(by_judge[correct]).plain(),
        "either": rate(answer.fooled[correct]).plain(),
        "robust_accuracy": rate(correct & ~answer.fooled).plain(),
        "only_judge": int((correct & by_judge & ~by_pgd).sum()),
        "only_pgd": int((correct & by_pgd & ~by_judge).sum()),
    }


def _judge_flags(rows: Sequence[Row]) -> list[str]:
    """Where the judge breaks many images that PGD did not, the curve of PGD makes the model look robuster than it is."""
    flags = []
    for row in rows:
        n, missed, eps = row["either"]["n"], row["only_judge"], Budget(row["eps"])
        if n and missed > max(2, 0.1 * n):
            flags.append(
                f"at {eps} AutoAttack fooled {missed} of {n} correct images that PGD did not: the curve of PGD is too low"
            )
        if n and row["only_pgd"] > max(2, 0.1 * n):
            flags.append(
                f"at {eps} PGD fooled {row['only_pgd']} of {n} correct images that AutoAttack did not: something misleads it"
            )
    return flags


# ------------------------------------------------------------------------------------------------- inside attention


def _inside(run: Run, images: ImageSet, config: AuditConfig, eps: Budget, device: Device) -> Row:
    """Lipschitz layer by layer, the two branches where there are some, and a look; what cannot be had is left out, with why.

    Interventions on the subtraction are attacked at the budget of the judge."""
    few, seen = (images.at_most(n, config.seed) for n in (config.measure_images, config.look_images))
    result: Row = {
        "lipschitz": None,
        "alignment": None,
        "cancellation": None,
        "interventions": None,
        "lambda": [],
        "look": False,
        "left_out": [],
    }
    if isinstance(run.config, ForeignConfig) and run.config.no_lens:
        return result | {"left_out": [{"what": "attention", "why": run.config.no_lens}]}
    for name, question in _inner_questions(run, config, eps).items():
        try:
            if isinstance(question, LookQuestion):
                look(run, seen, question, device=device)
                result["look"] = True
            else:
                result[name] = measure(run, few, question, device=device).content
        except (InputError, NotImplementedError) as refusal:
            result["left_out"].append({"what": name, "why": str(refusal).splitlines()[0]})
    if run.config.is_differential:
        result["lambda"] = _lambdas(run, few, device)
    return result


def _inner_questions(run: Run, config: AuditConfig, judged_at: Budget) -> dict[str, Question]:
    questions: dict[str, Question] = {"lipschitz": LipschitzQuestion(draws=config.draws, seed=config.seed)}
    if run.config.is_differential:
        questions["alignment"] = AlignmentQuestion(probes=config.probes, seed=config.seed)
        questions["cancellation"] = CancellationQuestion(seed=config.seed)
        questions["interventions"] = InterventionQuestion(
            eps=judged_at, steps=config.steps, draws=config.draws, seed=config.seed
        )
    eps = tuple(attack.within.eps for attack in config.attacks())
    return questions | {"look": LookQuestion(eps=tuple(map(Budget, eps)), probes=config.probes, seed=config.seed)}


def _lambdas(run: Run, images: ImageSet, device: Device) -> list[Content]:
    """lambda of every differential layer, on these images: its mean and range, which are one number unless it depends on them."""
    model, pixels = (
        run.classifier_for(images, device),
        images.take(np.arange(min(FEW, len(images)))).all.pixels.to(device),
    )
    with runtime.at_rest(model), taps(model) as record:
        model(pixels)
    return [
        {"layer": name, "lambda": float(b.lam.mean()), "least": float(b.lam.min()), "most": float(b.lam.max())}
        for name, b in record.items()
        if b.noise is not None
    ]


# ------------------------------------------------------------------------------------------------- beside a baseline


def _comparison(
    models: Sequence[Row], curves: Sequence[list[AttackAnswer]], judged: Sequence[list[AttackAnswer]]
) -> Row:
    """Paired tests on the same images, by PGD on all and by the judge on some; the judge decides."""
    by_pgd, by_judge = (
        [row | {"difference": _difference(a, b)} for row, a, b in zip(paired_tests(*answers), *answers)]
        for answers in (curves, judged)
    )
    return {
        "by_pgd": {"paired": by_pgd, "verdict": _words(models, decide({"paired": by_pgd}), "PGD")},
        "by_judge": {"paired": by_judge, "verdict": _words(models, decide({"paired": by_judge}), "AutoAttack and PGD")},
        "unequal": unequal(*models),
    }


def _transfer(runs: Sequence[Run], few: ImageSet, config: AuditConfig, eps: Budget, device: Device) -> Row:
    """Images made for each of the two by PGD at the budget of the judge, shown to both."""
    attack = PGD(within=Linf(eps), steps=config.steps, restarts=config.restarts)
    return transfer_matrix(runs, few, attack, seed=config.seed, device=device)


def _difference(first: AttackAnswer, second: AttackAnswer) -> Row:
    """Share of images fooled, first less second, of those that both classify correctly, with its 95 % interval."""
    both = first.correct & second.correct
    return paired_rates(first.fooled[both], second.fooled[both])


def _words(models: Sequence[Row], verdict: Verdict, attack: str) -> Row:
    """The verdict in a sentence."""
    first, second = (model["name"] for model in models)
    at = ", ".join(contrast.name for contrast in verdict.contrasts)
    sentence = {
        "first is easier to fool": f"{first} is easier to fool than {second} under {attack} (at {at})",
        "second is easier to fool": f"{second} is easier to fool than {first} under {attack} (at {at})",
        "neither is more robust": f"under {attack} each is easier to fool at some budgets ({at})",
        "no difference shown": f"no difference between {first} and {second} could be shown under {attack}",
        "not comparable": f"no image is classified correctly by both {first} and {second}",
    }[verdict.outcome]
    return {"outcome": verdict.outcome, "sentence": f"{sentence}: {verdict.why}.", "why": verdict.why}


def unequal(first: Row, second: Row) -> list[str]:
    """What makes the comparison unfair: sizes, preprocessing, accuracy."""
    notes = []
    a, b = first["parameters"], second["parameters"]
    if abs(a - b) > UNLIKE * max(a, b, 1):
        notes.append(f"parameters: {a:,} and {b:,}")
    said = {"depth": "layers", "maps": "attention maps per layer", "width": "width", "preprocessing": "preprocessing"}
    for name, words in {**said, "prompts": "prompts"}.items():
        if first[name] != second[name]:
            notes.append(f"{words}: {first[name]} and {second[name]}")
    accuracies = [model["clean_accuracy"]["value"] for model in (first, second)]
    if abs(accuracies[0] - accuracies[1]) > ACCURACY_GAP:
        notes.append(f"clean accuracy: {100 * accuracies[0]:.1f} % and {100 * accuracies[1]:.1f} %")
    if first["random_weights"] != second["random_weights"]:
        notes.append("one of them has random weights")
    return notes


# ------------------------------------------------------------------------------------------------- what it will cost


def forwards_needed(run: Run, images: ImageSet, config: AuditConfig) -> float:
    """Forward passes of one image that an audit takes at most, counted from its questions."""
    n, depth = len(images), run.config.depth
    judged, near, few, seen = (
        min(n, limit) for limit in (config.judge_images, config.l2_images, config.measure_images, config.look_images)
    )
    judges = [judge for eps in config.judge_eps or (ANY,) for judge in config.judges(eps, images.classes)]
    asked: list[tuple[Question, int]] = [(AttackQuestion(attack=attack), n) for attack in config.attacks()]
    asked += [(AttackQuestion(attack=judge), judged) for judge in judges]
    asked += [(AttackQuestion(attack=config.smallest()), near)]
    if run.config.depth:
        asked += [
            (q, seen if isinstance(q, LookQuestion) else few) for q in _inner_questions(run, config, ANY).values()
        ]
    return float(sum(question.work.forwards(count, depth) * count for question, count in asked))


def seconds_per_forward(run: Run, images: ImageSet, device: Device = "cpu") -> float:
    """Of one image in a small batch, measured; the faster of two tries."""
    model = run.classifier_for(images, device)
    pixels = images.take(np.arange(min(8, len(images)))).all.pixels.to(device)
    took = []
    with runtime.at_rest(model):
        for _ in range(3):
            began = time.perf_counter()
            call(model, pixels)
            took.append(time.perf_counter() - began)
    return min(took[1:]) / len(pixels)
