"""A ViT and its differential twin side by side: the same images, the same random starts, the same draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from antiphase import runtime
from antiphase.attacks.question import AttackAnswer
from antiphase.config import InputError, from_plain, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.measures.attack_rates import DENOMINATORS
from antiphase.measures.questions import AlignmentQuestion, LipschitzQuestion
from antiphase.measures.stats import holm, mcnemar
from antiphase.models.config import ViTConfig
from antiphase.models.run import Run, check_classes
from antiphase.results.attack import attack_answers
from antiphase.results.look import look
from antiphase.results.measure import lambda_rows_if_any, measure, parameters
from antiphase.results.questions import CompareConfig, LookQuestion, budgets
from antiphase.store import Content
from antiphase.training.config import Penalty
from antiphase.training.penalty_syntax import penalty_text

Row = dict[str, Any]
Pair = tuple[Run, Run]


def compare(runs: Pair, images: ImageSet, config: CompareConfig, *, device: torch.device | str = "cpu") -> Row:
    """All rows of a comparison, as plain values: what `report` draws and writes about."""
    for run in runs:
        check_classes(run, images)
    check_apart(runs)
    attacks = config.attacks()
    answers = [attack_answers(run, images, attacks, seed=config.seed, device=device) for run in runs]
    measured_on = images.subset(min(config.measure_images or len(images), len(images)), config.seed)
    models = [
        {"name": name, "folder": str(run.folder)}
        | _about(run, under_attack)
        | {"attacks": [answer.content for answer in under_attack]}
        | _measured(run, other, measured_on, config, device)
        for name, run, other, under_attack in zip(distinct_names(runs), runs, reversed(runs), answers)
    ]
    return {
        "format": 2,
        "config": to_plain(config),
        "data": {"name": images.name, "split": images.split, "n": len(images), "fingerprint": images.fingerprint},
        "differences": differences(*runs),
        "denominators": DENOMINATORS,
        "models": models,
        "paired": paired_tests(*answers),
        "looks": [_look(run, images, config, device) for run in runs],
        "environment": runtime.environment(),
    }


def check_apart(runs: Sequence[Run]) -> None:
    """No run is held against itself."""
    folders = [run.folder.resolve() for run in runs]
    if len(set(folders)) < len(folders):
        raise InputError(f"{runs[0].folder} cannot be compared with itself: name two runs")


def distinct_names(runs: Sequence[Run]) -> list[str]:
    """Of runs side by side: their folders where names are the same."""
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.folder) for run in runs]


def differences(first: Run, second: Run) -> list[str]:
    """In what, besides their attention, the two runs were made differently."""
    different = []
    for part in ("model", "training", "data"):
        a, b = _flat(first.about[part]), _flat(second.about[part])
        different += [f"{key}: {_text(key, a)} and {_text(key, b)}" for key in a if a.get(key) != b.get(key)]
    inits = {run.config.init for run in (first, second) if isinstance(run.config, ViTConfig)}
    if inits == {"official"} and first.config.title != second.config.title:
        different.append("initialisation: DiffCLIP's own for differential blocks, timm's for softmax ones")
    return different


def _text(key: str, about: Row) -> str:
    """A setting as it is written on the command line where it has parts; a run of an earlier version may lack it."""
    value = about.get(key)
    if key != "penalty":
        return str(value)
    return penalty_text(None if value is None else from_plain(Penalty, value, where="run.json: penalty"))


def _flat(about: Row, where: str = "") -> Row:
    """What two runs are meant to have in common, by name; the towers of a CLIP field by field."""
    apart = {"attention", "init", "checkpoint_seconds", "origin"}
    flat: Row = {}
    for key, value in about.items():
        if key in ("vision", "text"):
            flat |= _flat(value, f"{key}.")
        elif key not in apart:
            flat[where + key] = value
    return flat


def _about(run: Run, answers: list[AttackAnswer]) -> Row:
    return {
        "title": run.config.title,
        "depth": run.config.depth,
        "parameters": parameters(run),
        **(_trained(run) if isinstance(run.config, ViTConfig) else _judged_here(run, answers)),
        "lambda": lambda_rows_if_any(run),
    }


def _trained(run: Run) -> Row:
    log, about = run.log, run.about
    return {
        "epochs": len(log),
        "training_seed": about["training"]["seed"],
        "train_accuracy": log[-1]["train_accuracy"],
        "test_accuracy": log[-1]["test_accuracy"],
        "train_images": about["data"]["train"]["images"],
        "test_images": about["data"]["test"]["images"],
    }


def _judged_here(run: Run, answers: list[AttackAnswer]) -> Row:
    """A CLIP, or a model that was made elsewhere: the accuracy is that on the images compared."""
    clean = answers[0].correct
    return {
        **({"prompts": run.wording} if run.by_prompts else {}),
        "pair_epochs": len(run.log) if run.about["training"] else None,
        "epochs": None,
        "training_seed": None,
        "train_accuracy": None,
        "test_accuracy": float(clean.mean()),
        "test_images": len(clean),
    }


def _measured(run: Run, other: Run, images: ImageSet, config: CompareConfig, device: torch.device | str) -> Row:
    """Sensitivity and alignment; a softmax model beside it serves as the control of the alignment."""
    aligned = None
    if run.config.is_differential:
        twin = not other.config.is_differential and other.config.depth == run.config.depth
        question = AlignmentQuestion(probes=config.probes, max_probes=config.max_probes, seed=config.seed)
        aligned = measure(run, images, question, base=other if twin else None, device=device).content
    sensitivity = LipschitzQuestion(draws=config.draws, seed=config.seed)
    return {"lipschitz": measure(run, images, sensitivity, device=device).content, "alignment": aligned}


def _look(run: Run, images: ImageSet, config: CompareConfig, device: torch.device | str) -> Content | None:
    """A few of the images through the lens at every budget; None where the only budget is 0."""
    eps = tuple(budget for budget in budgets(config.eps) if budget > 0)
    few = images.subset(min(config.look_images, len(images)), config.seed)
    question = LookQuestion(eps=eps, probes=config.probes, seed=config.seed)
    return look(run, few, question, device=device).content if eps else None


def paired_tests(first: list[AttackAnswer], second: list[AttackAnswer]) -> list[Row]:
    """The two models on the same images, budget by budget: did at least one restart change the prediction?

    Once over all images and once over those that both models classify correctly. The attack drives away from the true
    label, so an image that is already wrong is pushed deeper into its wrong class: only the second is about robustness.
    """
    rows: list[Row] = [{"eps": answer.content["eps"]} for answer in first]
    for name in ("all", "both_right"):
        tests = []
        for a, b in zip(first, second):
            chosen = a.correct & b.correct if name == "both_right" else slice(None)
            tests.append(mcnemar(a.fooled[chosen], b.fooled[chosen]))
        for row, test, p in zip(rows, tests, holm([test["p"] for test in tests])):
            row[name] = test | {"p_holm": p}
    return rows
