"""A run measured on images: each question computed once and kept in the run's folder, as summaries per layer and raw rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from antiphase import console
from antiphase.config import InputError, to_plain
from antiphase.data.imageset import ImageSet
from antiphase.data.pairs import Captions
from antiphase.measures.alignment import READINGS, align, controls, existing_controls
from antiphase.measures.branch_pairs import Alignment, Coupling, gamma
from antiphase.measures.cancellation import cancellation, over_layers
from antiphase.measures.caption_correlation import caption_correlation, numbers_of
from antiphase.measures.common_mode import common_mode
from antiphase.measures.correlation import MEANING, correlation
from antiphase.measures.focus import MEANING as FOCUS_MEANING
from antiphase.measures.focus import focus
from antiphase.measures.interventions import MEANING as INTERVENTIONS_MEANING
from antiphase.measures.interventions import interventions
from antiphase.measures.jacobians_forward import map_norms
from antiphase.measures.lipschitz import LEVELS, l_sample, l_search
from antiphase.measures.mixed_change import mixed_change
from antiphase.measures.perturbations import PERTURBATIONS
from antiphase.measures.questions import (
    PAPER_EPS,
    AlignmentQuestion,
    CancellationQuestion,
    CaptionCorrelationQuestion,
    CorrelationQuestion,
    DepthQuestion,
    FocusQuestion,
    InterventionQuestion,
    LipschitzQuestion,
    MarginQuestion,
    MixedChangeQuestion,
    PredictionQuestion,
    StepCostQuestion,
    columns,
)
from antiphase.measures.radius import LABEL, margins
from antiphase.measures.residual_stream import Propagation, block_sigma, propagation
from antiphase.measures.stats import finite
from antiphase.measures.success import predictions
from antiphase.models.attention import lambda_parts, lambdas
from antiphase.models.clip import CLIP
from antiphase.models.run import Run, check_baseline
from antiphase.rates import rate
from antiphase.results.shares import in_shares
from antiphase.store import Content, Entry, Question
from antiphase.training.step_cost import step_seconds

Device = torch.device | str
LIPSCHITZ: dict[str, tuple[Callable[..., list[Any]], str]] = {
    "sample": (l_sample, "L-sample: largest ||change||_F / ||xi||_2 over the draws, of the {}; a lower bound"),
    "sharp": (l_search, "L-power at x and L-ascent within 8/255, over ||xi||_2, of the {}; lower bounds"),
}


def measure(
    run: Run, images: ImageSet, question: Question, *, base: Run | None = None, device: Device = "cpu"
) -> Entry:
    """The answer to one of the questions of measures/questions.py. `base`: a softmax run, for questions that take one."""
    if question.takes_base:
        check_baseline(run, base)

    if type(question) not in MEASURES:
        raise InputError(f"{type(question).__name__} is no measure: results/measure.py lists them in MEASURES")

    def compute(_: Path) -> Content:
        return MEASURES[type(question)](run, images, question, base, device)

    return run.answer_on(question, images, compute, base=base)


def measure_captions(
    run: Run, captions: Captions, question: CaptionCorrelationQuestion, *, device: Device = "cpu"
) -> Entry:
    """The maps of the text tower on captions (C1 on texts); kept like every other answer."""

    def compute(_: Path) -> Content:
        clip = run.model(device)
        if not isinstance(clip, CLIP):
            raise InputError(f"{run.folder} is a {run.config.title}, which has no text tower: it reads no captions")
        texts, long = captions.texts, question.long
        layers = caption_correlation(clip, texts, long=long, seed=question.seed)
        about = [(layer, numbers_of(layer.perturbation, texts, clip, long)) for layer in layers]
        return {
            "coupling": "branches",
            "meaning": MEANING,
            "long": long,
            "layers": [layer.summary() for layer in layers],
            "rows": columns(row for layer, numbers in about for row in layer.rows(numbers)),
        }

    return run.answer(question, captions, compute, words={})


def _predictions(run: Run, images: ImageSet, _: PredictionQuestion, __: Run | None, device: Device) -> Content:
    model = run.classifier_for(images, device)
    predicted = in_shares(images, lambda share: predictions(model, share, device=device))
    per_image = {"id": images.ids.tolist(), "label": images.labels.tolist(), "clean": predicted.tolist()}
    return {"images": per_image, "accuracy": rate(predicted == images.labels).plain()}


def _margins(run: Run, images: ImageSet, _: MarginQuestion, __: Run | None, device: Device) -> Content:
    """Margins of clean images, and the distances to the nearest boundary that the gradients at the image give (appendix B)."""
    model = run.classifier_for(images, device)
    measured = in_shares(images, lambda share: margins(model, share, device=device))
    numbers = {name: list(map(finite, measured[name])) for name in ("margin", "first_l2", "first_linf")}
    return {"meaning": LABEL, "rows": {"image": images.ids.tolist(), **numbers}}


def _lipschitz(run: Run, images: ImageSet, question: LipschitzQuestion, _: Run | None, device: Device) -> Content:
    estimate, reading = LIPSCHITZ[question.estimator]
    sizes: dict[str, Any] = {"draws": question.draws, "level": question.level, "seed": question.seed, "device": device}
    model = run.classifier_for(images, device)
    layers = in_shares(images, lambda share: estimate(model, share, **sizes))
    return {
        "estimator": question.estimator,
        "level": question.level,
        "reading": reading.format(LEVELS[question.level]),
        "eps": float(PAPER_EPS),
        "layers": [layer.summary() for layer in layers],
        "rows": columns(row for layer in layers for row in layer.rows(images.ids)),
    }


def _alignment(run: Run, images: ImageSet, question: AlignmentQuestion, base: Run | None, device: Device) -> Content:
    """One reading and its controls: this model before training, heads that do not belong together, a softmax model's heads."""
    model, reading = run.classifier_for(images, device), question.reading
    settings: dict[str, Any] = {"probes": question.probes, "max_probes": question.max_probes}
    settings |= {"seed": question.seed, "device": device}
    softmax = base.classifier_for(images, device) if base is not None else model
    others = {"untrained": run.untrained_for(images, device), "softmax": softmax}
    with console.passes(1 + len(existing_controls(model, images.subset(1), reading, **others, device=device))):
        layers = in_shares(images, lambda share: align(model, share, reading, **settings))
        beside = in_shares(images, lambda share: controls(model, share, reading, **others, **settings))
    return {
        "reading": reading,
        "meaning": READINGS[reading],
        "layers": [layer.summary() for layer in layers],
        "gamma": _gamma(layers, base, images, settings) if reading == "R1" and base is not None else [],
        "controls": {name: [layer.summary() for layer in control] for name, control in beside.items()},
        "rows": columns(
            {"pairs": pairs} | row
            for pairs, of_pairs in {"own": layers, **beside}.items()
            for layer in of_pairs
            for row in layer.rows(images.ids)
        ),
    }


def _gamma(layers: list[Alignment], base: Run, images: ImageSet, settings: dict[str, Any]) -> list[Content]:
    """Against the baseline's layers at the same depth, by the same probes at the same points."""
    sizes = {name: settings[name] for name in ("probes", "seed", "device")}
    model = base.classifier_for(images, settings["device"])
    norms = in_shares(images, lambda share: map_norms(model, share, around=float(PAPER_EPS), **sizes))
    first = slice(0, settings["probes"])  # those that every image took
    same = [replace(la, n1=la.n1[..., first], n2=la.n2[..., first], ip=la.ip[..., first]) for la in layers]
    return [gamma(layer, norms[layer.layer]) for layer in same if layer.layer in norms]


def _cancellation(run: Run, images: ImageSet, question: CancellationQuestion, _: Run | None, device: Device) -> Content:
    """What the subtraction takes away under noise and under attack of equal size, and whether the two differ (X1)."""
    coupling, eps = _coupling(run), float(question.eps)
    sizes: dict[str, Any] = {"perturbations": question.perturbations, "eps": eps, "seed": question.seed}
    model = run.classifier_for(images, device)
    layers = in_shares(images, lambda share: cancellation(model, share, coupling=coupling, device=device, **sizes))
    kinds = {PERTURBATIONS[name].kind for name in question.perturbations}
    return {
        "eps": eps,
        "coupling": coupling,
        "layers": [layer.summary() for layer in layers],
        "over_layers": over_layers(layers),
        "common_mode": common_mode(layers) if {"noise", "attack"} <= kinds else [],
        "rows": columns(row for layer in layers for row in layer.rows(images.ids)),
    }


def _depth(run: Run, images: ImageSet, question: DepthQuestion, _: Run | None, device: Device) -> Content:
    """How a perturbation grows or shrinks from block to block."""
    model, eps = run.classifier_for(images, device), float(question.eps)
    common: dict[str, Any] = {"seed": question.seed, "device": device}

    def curves_of(share: ImageSet) -> list[Propagation]:
        sigma = block_sigma(model, share, **common)
        return propagation(model, share, perturbations=question.perturbations, eps=eps, sigma=sigma, **common)

    curves = in_shares(images, curves_of)
    return {
        "eps": eps,
        "curves": [curve.summary() for curve in curves],
        "rows": columns(row for curve in curves for row in curve.rows(images.ids)),
    }


def _correlation(run: Run, images: ImageSet, question: CorrelationQuestion, _: Run | None, device: Device) -> Content:
    """Do the two maps look alike, and do they move alike under noise, blur and JPEG? (C1)"""
    coupling, model = _coupling(run), run.classifier_for(images, device)
    settings: dict[str, Any] = {"coupling": coupling, "seed": question.seed, "device": device}
    layers = in_shares(images, lambda share: correlation(model, share, **settings))
    return {
        "coupling": coupling,
        "meaning": MEANING,
        "layers": [layer.summary() for layer in layers],
        "rows": columns(row for layer in layers for row in layer.rows(images.ids)),
    }


def _focus(run: Run, images: ImageSet, question: FocusQuestion, _: Run | None, device: Device) -> Content:
    """Attention on the object's box and its entropy, clean and under perturbations of equal size."""
    eps = float(question.eps)
    sizes: dict[str, Any] = {"perturbations": question.perturbations, "eps": eps, "seed": question.seed}
    model = run.classifier_for(images, device)
    layers = in_shares(images, lambda share: focus(model, share, device=device, **sizes))
    return {
        "eps": eps,
        "meaning": FOCUS_MEANING,
        "layers": [layer.summary() for layer in layers],
        "rows": columns(row for layer in layers for row in layer.rows(images.ids)),
    }


def _interventions(
    run: Run, images: ImageSet, question: InterventionQuestion, _: Run | None, device: Device
) -> Content:
    """Each intervention beside the untouched model, on the same images."""
    sizes: dict[str, Any] = {"names": question.interventions, "draws": question.draws, "seed": question.seed}
    untouched, *changed = interventions(
        run.classifier_for(images, device), images, question.attack, device=device, **sizes
    )
    return {
        "eps": float(question.eps),
        "attack": to_plain(question.attack),
        "meaning": INTERVENTIONS_MEANING,
        "interventions": [one.summary(untouched) for one in (untouched, *changed)],
        "rows": columns(row for one in (untouched, *changed) for row in one.rows(images.ids)),
    }


def _mixed_change(run: Run, images: ImageSet, question: MixedChangeQuestion, _: Run | None, device: Device) -> Content:
    sizes: dict[str, Any] = {"perturbations": question.perturbations, "eps": float(question.eps), "seed": question.seed}
    model = run.classifier_for(images, device)
    layers = in_shares(images, lambda share: mixed_change(model, share, device=device, **sizes))
    return {
        "eps": float(question.eps),
        "layers": [layer.summary() for layer in layers],
        "rows": columns(row for layer in layers for row in layer.rows(images.ids)),
    }


def _step_cost(run: Run, images: ImageSet, question: StepCostQuestion, base: Run | None, device: Device) -> Content:
    """The median over rounds of the ratio of two steps that follow each other, and the seconds it rests on."""
    if base is None:
        raise InputError("a step is timed beside one of another run: give it as the base")
    seconds = step_seconds((run, base), images, rounds=question.rounds, device=device)
    own, other = np.median(seconds, axis=0).tolist()
    return {
        "ratio": float(np.median(seconds[:, 0] / seconds[:, 1])),
        "step_seconds": own,
        "step_seconds_of_base": other,
    }


MEASURES: dict[type[Question], Callable[[Run, ImageSet, Any, Run | None, Device], Content]] = {
    PredictionQuestion: _predictions,
    MarginQuestion: _margins,
    LipschitzQuestion: _lipschitz,
    AlignmentQuestion: _alignment,
    CancellationQuestion: _cancellation,
    DepthQuestion: _depth,
    CorrelationQuestion: _correlation,
    FocusQuestion: _focus,
    InterventionQuestion: _interventions,
    MixedChangeQuestion: _mixed_change,
    StepCostQuestion: _step_cost,
}


def _coupling(run: Run) -> Coupling:
    """A differential model's branches; of a softmax model pairs of heads, so that there is something to compare with."""
    return "branches" if run.config.is_differential else "pseudo"


# ------------------------------------------------------------------------------------------------- read off the weights


def parameters(run: Run) -> int:
    return sum(p.numel() for p in run.model().parameters())


def lambda_rows_if_any(run: Run) -> list[Content]:
    """The same, and nothing of a model that has no lambda in its weights."""
    return lambda_rows(run) if lambdas(run.model()) else []


def lambda_rows(run: Run) -> list[Content]:
    """lambda of every differential layer with its parts, and what is odd about it. Drift is from the mean start
    (docs/method.md 2.6)."""
    model = run.model()
    if run.config.is_differential and not lambdas(model):
        raise InputError(
            f"{run.folder} has no lambda in its weights: every layer computes it from the input; --measures alignment gives its "
            "mean and what its changes do"
        )
    if not lambdas(model):
        raise InputError(f"{run.folder} has no lambda: no layer of this model has two branches (it is all softmax)")
    modules = dict(model.named_modules())
    rows = []
    for name in lambdas(model):
        parts = lambda_parts(modules[name])
        value = parts["lambda"]
        flags = ["lambda <= 0: the subtraction adds"] * (value <= 0) + ["lambda >= 1: rows sum to no more than 0"] * (
            value >= 1
        )
        rows.append({"layer": name, **parts, "drift": value - parts["lambda_init"], "flags": flags})
    return rows
